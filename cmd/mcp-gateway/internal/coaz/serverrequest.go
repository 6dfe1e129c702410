package coaz

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A ServerRequest is a request of a server to its client.
type ServerRequest struct {
	Method string
	Params jsontext.Value // an object, or nil
	// During and Name are the method of the client's call in whose course the request
	// came, and what the call names. Both are "" where no call is known.
	During, Name string
}

// serverRequests are the default mappings of requests of servers. The binding has
// none: the action is the method, and the resource the server. Their params are
// those of serverParams.
var serverRequests = map[string]rule{
	"sampling/createMessage": {serverType, "", during},
	"elicitation/create":     {serverType, "", during + `,"mode":"$params.mode","url":"$params.?url"`},
	"roots/list":             {serverType, "", during},
}

const during = `,"during":"$params.?during"`

// ServerRequests lists the requests of servers that can be asked about, in order.
func ServerRequests() []string { return slices.Sorted(maps.Keys(serverRequests)) }

// serverParams are what the mapping of a server's request reads.
type serverParams struct {
	Mode   string        `json:"mode"`
	URL    string        `json:"url,omitzero"`
	During *calledDuring `json:"during,omitempty"`
}

type calledDuring struct {
	Method string `json:"method"`
	Name   string `json:"name,omitzero"`
}

// MapServerRequest returns what to ask before a client gets a request of its server.
// Call is that of the client: its subject, its claims and its server. The error is
// [ErrUnknownMethod] or a [MappingError].
func (m *Mapper) MapServerRequest(call Call, r ServerRequest) (*authzen.EvaluationRequest, error) {
	u, ok := m.upstreams[call.Server]
	if !ok {
		return nil, unmapped("there is no server of that name")
	}
	mapping, ok := m.requests[r.Method]
	if !ok {
		return nil, ErrUnknownMethod
	}
	params := serverParams{Mode: "form"}
	if r.Params != nil {
		if err := json.Unmarshal(r.Params, &params); err != nil {
			return nil, &MappingError{"the params of the server's request cannot be read", err}
		}
	}
	if params.During = nil; r.During != "" {
		params.During = &calledDuring{r.During, r.Name}
	}
	var err error
	if call.Params, err = json.Marshal(params); err != nil {
		return nil, &MappingError{"the params of the server's request cannot be written", err}
	}
	call.Method, call.Notification, call.Tool = r.Method, false, nil
	a := &mappingRun{Mapper: m, upstream: u, call: call, dialect: Default}
	if r.During == toolsCall {
		a.during = r.Name
	}
	if err := a.read(); err != nil {
		return nil, err
	}
	q, err := a.ask(mapping)
	return q.Evaluation, err
}

// requests compiles the mappings of requests of servers.
func (c *compiler) requests() (map[string]*mapping, error) {
	all := make(map[string]*mapping)
	for method, r := range serverRequests {
		m, err := c.enveloped(r.template(method))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		m.dialect, m.server = Default, true
		all[method] = m
	}
	return all, nil
}
