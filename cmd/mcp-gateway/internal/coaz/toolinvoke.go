package coaz

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxSaid bounds a client's description of its call, in bytes.
const maxSaid = 1 << 10

// said are the members of params._meta that the tool.invoke profile passes on: the
// client's description of its call. Policies should not take them for more.
var said = []string{"purpose", "workflow_id", "agent_invocation_id"}

// invoke maps a tools/call by the tool.invoke profile: the subject as its claims
// describe it, and the resource SERVER:NAME with the operator's labels.
func (a *mappingRun) invoke(name string) (*authzen.EvaluationRequest, error) {
	if name == "" {
		return nil, unmapped("params.name is not there")
	}
	subject, err := a.actor()
	if err != nil {
		return nil, err
	}
	context, err := a.purpose()
	if err != nil {
		return nil, err
	}
	request := &authzen.EvaluationRequest{
		Subject:  subject,
		Action:   authzen.Action{Name: "tool.invoke"},
		Resource: authzen.Resource{Type: "tool", ID: at(a.call.Server, name)},
	}
	if request.Resource.Properties, err = a.labels(name); err != nil {
		return nil, err
	}
	request.Context, err = a.context(context, &mapping{dialect: Default}, false)
	return request, err
}

func (a *mappingRun) actor() (authzen.Subject, error) {
	id, err := a.subject()
	if err != nil {
		return authzen.Subject{}, err
	}
	properties := members{}
	roles := a.call.Claims[cmp.Or(a.Actor.Roles, "roles")]
	if list, ok := roles.([]any); ok {
		if properties["roles"], err = json.Marshal(list); err != nil {
			return authzen.Subject{}, &MappingError{"the roles of the token cannot be read", err}
		}
	}
	if department := a.claim(cmp.Or(a.Actor.Department, "department_id")); department != "" {
		properties.setString("department_id", department)
	}
	subject := authzen.Subject{Type: a.actorType(), ID: id}
	if len(properties) > 0 {
		subject.Properties, err = properties.text()
	}
	return subject, err
}

// actorType returns the type of the subject: that of the token, of the settings, of
// the caller, or agent.
func (a *mappingRun) actorType() string {
	claimed := ""
	if a.Actor.TypeClaim != "" {
		claimed = a.claim(a.Actor.TypeClaim)
	}
	known := a.call.Subject.Type
	if known == subjectType { // nobody has said one
		known = ""
	}
	return cmp.Or(claimed, a.Actor.Type, known, "agent")
}

// purpose returns the client's description of its call, and a summary of the
// arguments.
func (a *mappingRun) purpose() (jsontext.Value, error) {
	context := members{}
	params, _ := a.in.params.(map[string]any)
	meta, _ := params["_meta"].(map[string]any)
	for _, name := range said {
		text, ok := meta[name].(string)
		switch {
		case meta[name] == nil:
			continue
		case !ok || len(text) > maxSaid:
			return nil, unmapped("params._meta.%s is not a string of at most %d bytes", name, maxSaid)
		}
		context.setString(name, text)
	}
	var call struct {
		Arguments jsontext.Value `json:"arguments"`
	}
	if a.call.Params != nil {
		if err := json.Unmarshal(a.call.Params, &call); err != nil {
			return nil, &MappingError{"params cannot be read", err}
		}
	}
	if summary := plain.Members(call.Arguments); summary != "" {
		context.setString("param_summary", summary)
	}
	return context.text()
}
