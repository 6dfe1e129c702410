package results

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/result"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// hides reports whether the obligations keep parts of the response from the client.
func (r Rules) hides() bool {
	return r.Lost || slices.ContainsFunc(r.Custom, func(properties jsontext.Value) bool {
		rule, err := result.Parse(properties)
		return err != nil || rule.Action == result.Redact || rule.Action == result.Mask
	})
}

// Interim returns what the client gets of a request or notification that the server
// sends before the response, or nil. Where parts of the response are hidden, the client
// gets no log messages, and of progress only the numbers: both may quote these parts.
func (r Rules) Interim(m *wire.Message) (*wire.Message, error) {
	switch {
	case r.Lost && m.IsRequest():
		return nil, nil
	case !r.hides():
		return m, nil
	case m.Method == wire.MethodLog:
		return nil, nil
	case m.Method != wire.MethodProgress:
		return m, nil
	}
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, err
	}
	for name := range params {
		if !slices.Contains([]string{"progressToken", "progress", "total", "_meta"}, name) {
			params.Remove(name)
		}
	}
	if params["_meta"] != nil {
		meta, err := protocolMeta(nil, params["_meta"])
		if err != nil {
			return nil, err
		}
		params.Put("_meta", meta)
	}
	out := *m
	out.Params, err = params.EncodeMembers()
	return &out, err
}
