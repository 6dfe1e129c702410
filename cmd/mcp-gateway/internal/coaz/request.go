package coaz

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	toolsRequest    = "tools/request"
	toolsFulfil     = "tools/fulfil"
	toolRequestType = "tool_request"
)

// MapRequest returns the questions about a request that somebody else makes a
// tools/call: tools/request on the tool in place of the profile's question, and what a
// mapping of the tool asks about the call.
func (m *Mapper) MapRequest(call Call) (Questions, error) {
	a, err := m.run(call)
	if err != nil {
		return Questions{}, err
	}
	q, err := a.request()
	q.Dialect, q.Warnings = a.dialect, a.warnings
	return q, err
}

// run begins a mapping.
func (m *Mapper) run(call Call) (*mappingRun, error) {
	u, ok := m.upstreams[call.Server]
	if !ok {
		return nil, unmapped("there is no server of that name")
	}
	a := &mappingRun{Mapper: m, upstream: u, call: call, dialect: Default}
	return a, a.read()
}

func (a *mappingRun) request() (Questions, error) {
	name, _ := a.in.params.(map[string]any)["name"].(string)
	standard, err := a.standard(name)
	if err != nil {
		return Questions{}, err
	}
	standard.Evaluation.Action = authzen.Action{Name: toolsRequest}
	declared := a.pinned[name]
	if declared == nil && a.Trust != DefaultOnly {
		if declared, err = a.own(name); err != nil {
			return Questions{}, err
		}
	}
	if declared == nil {
		return standard, nil
	}
	a.dialect = declared.dialect
	return a.beside(standard.Evaluation, declared)
}

// A ToolRequest is what policies see of a request whose fulfilment they decide on.
type ToolRequest struct {
	ID        string
	Requester authzen.Subject
	Tool      string
	Digest    string // of the call
	Template  string // of the approval that it waits for
}

// MapFulfil returns the question whether the caller of a call may fulfil a request at the
// call's server.
func (m *Mapper) MapFulfil(call Call, of ToolRequest) (*authzen.EvaluationRequest, error) {
	q, err := m.standardOf(call, of.Tool)
	if err != nil {
		return nil, err
	}
	properties, err := of.properties(call.Server, q.Evaluation.Resource.ID)
	q.Evaluation.Action = authzen.Action{Name: toolsFulfil}
	q.Evaluation.Resource = authzen.Resource{Type: toolRequestType, ID: of.ID, Properties: properties}
	return q.Evaluation, err
}

// properties are those of the resource. Tool is the id of the tool.
func (r *ToolRequest) properties(server, tool string) (jsontext.Value, error) {
	type entity struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	text, err := json.Marshal(struct {
		Requester entity `json:"requester"`
		Server    string `json:"server"`
		Tool      string `json:"tool"`
		Digest    string `json:"arguments_digest"`
		Template  string `json:"template,omitzero"`
	}{entity{r.Requester.Type, r.Requester.ID}, server, tool, r.Digest, r.Template})
	if err != nil {
		return nil, &MappingError{"the request cannot be written", err}
	}
	return text, nil
}

// MapLevel returns the questions by which the level of a caller shows: may it call a tool
// of the server, and may it request the call? They are those of the profile.
func (m *Mapper) MapLevel(call Call, tool string) (calls, requests *authzen.EvaluationRequest, err error) {
	q, err := m.standardOf(call, tool)
	if err != nil {
		return nil, nil, err
	}
	requesting := *q.Evaluation
	requesting.Action = authzen.Action{Name: toolsRequest}
	return q.Evaluation, &requesting, nil
}

// standardOf returns the profile's question about a call of a tool without arguments, by
// the caller of another call.
func (m *Mapper) standardOf(call Call, tool string) (Questions, error) {
	params, err := json.Marshal(map[string]string{"name": tool})
	if err != nil {
		return Questions{}, &MappingError{"the name cannot be written", err}
	}
	call.Method, call.Params, call.Notification = toolsCall, params, false
	a, err := m.run(call)
	if err != nil {
		return Questions{}, err
	}
	return a.standard(tool)
}
