package coaz

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// subjectType is the default type of a subject.
const subjectType = "identity"

// claim returns a claim that is a string, or "".
func (a *mappingRun) claim(name string) string {
	text, _ := a.call.Claims[name].(string)
	return text
}

// subject returns the id of the caller.
func (a *mappingRun) subject() (string, error) {
	if a.in.caller == "" {
		return "", unmapped("the token has no %s", claimSub)
	}
	return a.in.caller, nil
}

// bindSubject makes the caller of the token the subject. It fills in members
// that the mapping leaves out, and compares those that it sets. Another id is
// an error, unless the upstream may override the subject; then the subject is
// unverified.
func (a *mappingRun) bindSubject(parts members, m *mapping) (unverified bool, err error) {
	caller, err := a.subject()
	if err != nil {
		return false, err
	}
	if m.dialect == Default && a.Profile == ProfileToolInvoke {
		return false, a.described(parts)
	}
	subject, err := readMembers(parts[partSubject])
	if err != nil {
		return false, &MappingError{"/subject is not an object", err}
	}
	for name, value := range subject {
		if value.Kind() == 'n' {
			delete(subject, name)
		}
	}
	if _, typed := subject["type"]; !typed {
		subject.setString("type", a.subjectType())
	}
	if _, identified := subject["id"]; !identified {
		subject.setString("id", caller)
	}
	if unverified = subject.string("id") != caller; unverified {
		if !a.SubjectOverride {
			return false, unmapped("/subject/id is not the caller of the token")
		}
		a.warn("the mapping names another subject than the token")
	}
	parts[partSubject], err = subject.text()
	return unverified, err
}

// described makes the subject as the tool.invoke profile describes it.
func (a *mappingRun) described(parts members) error {
	subject, err := a.actor()
	if err != nil {
		return err
	}
	if parts[partSubject], err = json.Marshal(subject); err != nil {
		return &MappingError{"the subject cannot be written", err}
	}
	return nil
}

// subjectType returns the type of the caller.
func (a *mappingRun) subjectType() string {
	if a.Profile == ProfileToolInvoke {
		return a.actorType()
	}
	return cmp.Or(a.call.Subject.Type, subjectType)
}

// qualifyResource makes the resource of a default mapping a resource of this server:
// the server itself, or an id that begins with the server's name.
func (a *mappingRun) qualifyResource(parts members, m *mapping) error {
	if m.server {
		return a.setServerResource(parts)
	}
	if m.dialect != Default || a.Profile == ProfileCOAZ {
		return nil
	}
	resource, err := readMembers(parts[partResource])
	if err != nil {
		return &MappingError{"/resource is not an object", err}
	}
	if resource["id"].Kind() == '"' { // any other is refused, as in any request
		resource.setString("id", at(a.call.Server, resource.string("id")))
	}
	parts[partResource], err = resource.text()
	return err
}

// at returns the id of an item of a server. Names of servers have no colon.
func at(server, name string) string { return server + ":" + name }

// setServerResource makes the server the resource.
func (a *mappingRun) setServerResource(parts members) error {
	id := a.Resource
	if id == "" {
		if id = a.claim("aud"); id == "" {
			return unmapped("the audience of the token does not name this server alone")
		}
	}
	resource, err := readMembers(parts[partResource])
	if err != nil {
		return &MappingError{"/resource is not an object", err}
	}
	resource.setString("id", id)
	parts[partResource], err = resource.text()
	return err
}

// reserved are members of a context that a PDP believes if a gateway sends them. A
// server must not set them.
var reserved = []string{"approval", "justification", "supported_obligations", "session", "capability", "fulfils"}

const (
	contextAgent      = "agent"
	contextGateway    = "gateway"
	contextUnverified = "subject_unverified"
)

// context adds the facts of the gateway to a context.
func (a *mappingRun) context(text jsontext.Value, m *mapping, unverified bool) (jsontext.Value, error) {
	context, err := readMembers(text)
	if err != nil {
		return nil, &MappingError{"/context is not an object", err}
	}
	if m.dialect != Default {
		for _, name := range reserved {
			if _, said := context[name]; said {
				return nil, unmapped("/context has a member %q, which is not a mapping's to say", name)
			}
		}
		a.agent(context)
	}
	delete(context, contextUnverified)
	if unverified {
		context[contextUnverified] = jsontext.Value("true")
	}
	if context[contextGateway], err = a.facts(m); err != nil {
		return nil, err
	}
	return context.text()
}

// agent sets the agent of a context to the one in the token.
func (a *mappingRun) agent(context members) {
	shown := a.claim("client_id")
	if shown == "" {
		shown = a.claim("azp")
	}
	if act, ok := a.call.Claims["act"].(map[string]any); ok && shown == "" {
		shown, _ = act["sub"].(string)
	}
	if shown == "" || context.string(contextAgent) == shown {
		return
	}
	if _, said := context[contextAgent]; said {
		a.warn("the mapping names another agent than the token")
	}
	context.setString(contextAgent, shown)
}

// facts returns what policies may believe in addition to the subject: the server, the
// tool, the issuer of the token, and the mapping.
func (a *mappingRun) facts(m *mapping) (jsontext.Value, error) {
	facts := struct {
		Server  string  `json:"server"`
		Tool    string  `json:"tool,omitzero"`
		Issuer  string  `json:"iss,omitzero"`
		ACR     string  `json:"acr,omitzero"`
		Dialect Dialect `json:"dialect"`
		Mapping string  `json:"mapping,omitzero"`
	}{Server: a.call.Server, Tool: a.during, Issuer: a.claim("iss"), ACR: a.claim("acr"), Dialect: m.dialect, Mapping: m.digest}
	if params, ok := a.in.params.(map[string]any); ok && a.call.Method == toolsCall {
		facts.Tool, _ = params["name"].(string)
	}
	text, err := json.Marshal(facts)
	if err != nil {
		return nil, fmt.Errorf("encode the properties of the gateway: %w", err)
	}
	return text, nil
}

// warn adds a warning for the operator, once.
func (a *mappingRun) warn(text string) {
	if !slices.Contains(a.warnings, text) {
		a.warnings = append(a.warnings, text)
	}
}
