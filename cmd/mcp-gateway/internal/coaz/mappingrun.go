package coaz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A mappingRun is the mapping of one call.
type mappingRun struct {
	*Mapper
	*upstream
	call     Call
	dialect  Dialect
	in       inputs
	warnings []string
	during   string // tool of the call in whose course a server's request came, or ""
}

const toolsCall = "tools/call"

func (a *mappingRun) questions() (Questions, error) {
	if err := a.read(); err != nil {
		return Questions{}, err
	}
	switch _, extra := extras[a.call.Method]; {
	case extra && !slices.Contains(a.Extra, a.call.Method):
		return Questions{}, ErrUnknownMethod
	case a.call.Method == toolsCall:
		return a.tool()
	case a.call.Method == listen:
		return a.listen()
	}
	m, ok := a.defaults[a.call.Method]
	if !ok {
		return Questions{}, ErrUnknownMethod
	}
	return a.ask(m)
}

// read sets the params and the claims, which expressions see.
func (a *mappingRun) read() (err error) {
	params := a.call.Params
	if params == nil {
		params = jsontext.Value("{}")
	}
	if params.Kind() != '{' {
		return unmapped("params is not an object")
	}
	a.in.caller = cmp.Or(a.call.Subject.ID, a.claim(claimSub))
	if a.in.params, err = read(params); err != nil {
		return &MappingError{"params cannot be read", err}
	}
	a.in.claims = a.call.Claims
	return nil
}

// tool maps a tools/call.
func (a *mappingRun) tool() (Questions, error) {
	name, _ := a.in.params.(map[string]any)["name"].(string)
	if m, ok := a.pinned[name]; ok {
		a.dialect = Operator
		return a.ask(m)
	}
	if a.Trust == DefaultOnly {
		return a.standard(name)
	}
	m, err := a.own(name)
	if m != nil {
		a.dialect = m.dialect
	}
	switch {
	case err != nil:
		return Questions{}, err
	case m == nil:
		return a.standard(name)
	case a.Trust == Declared:
		return a.ask(m)
	}
	return a.both(name, m)
}

// own returns the mapping that the tool's definition declares, or nil.
func (a *mappingRun) own(name string) (*mapping, error) {
	if a.call.Tool == nil {
		return nil, unmapped("the tool is not known")
	}
	return a.compiled(name, a.call.Tool)
}

// standard maps a tools/call by the profile of the upstream.
func (a *mappingRun) standard(name string) (Questions, error) {
	if a.Profile == ProfileToolInvoke {
		request, err := a.invoke(name)
		return Questions{Evaluation: request}, err
	}
	q, err := a.ask(a.defaults[toolsCall])
	if err == nil && a.Profile != ProfileCOAZ {
		q.Evaluation.Resource.Properties, err = a.labels(name)
	}
	return q, err
}

// both returns the questions of the profile and of a declared mapping.
func (a *mappingRun) both(name string, m *mapping) (Questions, error) {
	standard, err := a.standard(name)
	if err != nil {
		return Questions{}, err
	}
	return a.beside(standard.Evaluation, m)
}

// beside returns a question together with those of a declared mapping.
func (a *mappingRun) beside(standard *authzen.EvaluationRequest, m *mapping) (Questions, error) {
	declared, err := a.ask(m)
	if err != nil {
		return Questions{}, err
	}
	all := []*authzen.EvaluationRequest{standard}
	if declared.Evaluation != nil {
		return together(append(all, declared.Evaluation))
	}
	for _, item := range declared.Evaluations.Items() {
		all = append(all, item.Request) // that there is one, ask has seen
	}
	return together(all)
}

// maxURIs is the number of resources to which a client may listen.
const maxURIs = maxEntries - 1

// listen maps a subscriptions/listen: a question about the server, and one about each
// resource.
func (a *mappingRun) listen() (Questions, error) {
	var params struct {
		Notifications struct {
			URIs []string `json:"resourceSubscriptions"`
		} `json:"notifications"`
	}
	if a.call.Params != nil {
		if err := json.Unmarshal(a.call.Params, &params); err != nil {
			return Questions{}, &MappingError{"params.notifications cannot be read", err}
		}
	}
	uris := params.Notifications.URIs
	if len(uris) > maxURIs {
		return Questions{}, unmapped("there are more than %d resourceSubscriptions", maxURIs)
	}
	q, err := a.ask(a.defaults[listen])
	if err != nil || len(uris) == 0 {
		return q, err
	}
	all := []*authzen.EvaluationRequest{q.Evaluation}
	for _, uri := range uris {
		a.in.params = map[string]any{"uri": uri}
		q, err := a.ask(a.defaults["resources/subscribe"])
		if err != nil {
			return Questions{}, err
		}
		all = append(all, q.Evaluation)
	}
	return together(all)
}

// together returns one batch of complete requests.
func together(all []*authzen.EvaluationRequest) (Questions, error) {
	batch := &authzen.EvaluationsRequest{}
	for _, request := range all {
		item, err := json.Marshal(request)
		if err != nil {
			return Questions{}, &MappingError{"the request cannot be written", err}
		}
		batch.Evaluations = append(batch.Evaluations, item)
	}
	return Questions{Evaluations: batch}, nil
}

// ask resolves a mapping to complete requests.
func (a *mappingRun) ask(m *mapping) (Questions, error) {
	parts, err := a.resolve("", m.parts)
	if err != nil {
		return Questions{}, err
	}
	unverified, err := a.bindSubject(parts, m)
	if err != nil {
		return Questions{}, err
	}
	if err := a.qualifyResource(parts, m); err != nil {
		return Questions{}, err
	}
	if parts[partContext], err = a.context(parts[partContext], m, unverified); err != nil {
		return Questions{}, err
	}
	if m.entries == nil {
		return single(parts)
	}
	return a.batch(m, parts, unverified)
}

// resolve resolves parts, and checks their members against AuthZEN.
func (a *mappingRun) resolve(at string, nodes map[string]node) (members, error) {
	parts := members{}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		value, err := nodes[name].resolve(&a.in)
		if err != nil {
			return nil, err
		}
		parts.set(name, value)
	}
	for _, shape := range shapes {
		if template, ok := nodes[shape.part].(object); ok && template.hasOnly(shape.members) {
			continue
		}
		part, err := readMembers(parts[shape.part])
		if err != nil {
			return nil, &MappingError{at + "/" + shape.part + " is not an object", err}
		}
		if err := part.only(at+"/"+shape.part, shape.members...); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// shapes are the members of each part; all others stand below properties (AuthZEN 1.0,
// "Information Model").
var shapes = []struct {
	part    string
	members []string
}{
	{partSubject, []string{"type", "id", "properties"}},
	{partAction, []string{"name", "properties"}},
	{partResource, []string{"type", "id", "properties"}},
}

func single(parts members) (Questions, error) {
	text, err := parts.text()
	if err != nil {
		return Questions{}, &MappingError{"the request cannot be written", err}
	}
	request := new(authzen.EvaluationRequest)
	if err := authzen.Unmarshal(text, request); err != nil {
		return Questions{}, &MappingError{err.Error(), nil}
	}
	return Questions{Evaluation: request}, nil
}

// batch resolves the entries. An entry with a context of its own gets the facts of the
// gateway as well, because its context replaces that of the batch.
func (a *mappingRun) batch(m *mapping, parts members, unverified bool) (Questions, error) {
	batch := &authzen.EvaluationsRequest{
		Subject: parts[partSubject], Action: parts[partAction], Resource: parts[partResource], Context: parts[partContext],
	}
	for i, nodes := range m.entries {
		entry, err := a.resolve(fmt.Sprintf("/evaluations/%d", i), nodes)
		if err != nil {
			return Questions{}, err
		}
		if own, ok := entry[partContext]; ok {
			if entry[partContext], err = a.context(own, m, unverified); err != nil {
				return Questions{}, err
			}
		}
		text, err := entry.text()
		if err != nil {
			return Questions{}, &MappingError{"the request cannot be written", err}
		}
		batch.Evaluations = append(batch.Evaluations, text)
	}
	whole, err := json.Marshal(batch)
	if err != nil {
		return Questions{}, &MappingError{"the request cannot be written", err}
	}
	read := new(authzen.EvaluationsRequest)
	if err := authzen.Unmarshal(whole, read); err != nil {
		return Questions{}, &MappingError{err.Error(), nil}
	}
	for _, item := range read.Items() {
		if item.Err != nil {
			return Questions{}, &MappingError{item.Err.Error(), nil}
		}
	}
	return Questions{Evaluations: read}, nil
}
