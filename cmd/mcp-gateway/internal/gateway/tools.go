package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// tools knows the tools of servers, and asks them again what they are.
type tools struct {
	*catalog.Catalog
	mapper  *mapper
	pdp     *enforce.PDP
	gate    *enforce.Gate
	refresh time.Duration // after which a server is asked again
	ttl     time.Duration // for which a client may keep a list

	once singleflight.Group // by server
	mu   sync.Mutex
	read map[string]time.Time // when each server was last asked
	// told has each server that is asked again because it has said that its tools
	// are others, with the call on whose stream it said so last; nil once it is asked.
	told      map[string]*enforce.Call
	rereading sync.WaitGroup
	life      context.Context
	end       context.CancelFunc
}

func newTools(pins *catalog.Catalog, m *mapper, pdp *enforce.PDP, cfg *catalogConfig) *tools {
	t := &tools{
		Catalog: pins, mapper: m, pdp: pdp, refresh: time.Duration(cfg.Refresh), ttl: time.Duration(cfg.TTL),
		read: make(map[string]time.Time), told: make(map[string]*enforce.Call),
	}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// Close ends what is asked, and closes the catalog.
func (t *tools) Close() error {
	t.end()
	t.rereading.Wait()
	return t.Catalog.Close()
}

// tool is that of [enforce.Config.Tool].
func (t *tools) tool(ctx context.Context, c *enforce.Call) (*enforce.Tool, error) {
	found, err := t.Tool(c.Server, c.Params.Name)
	if t.isStale(c.Server, errors.Is(err, catalog.ErrUnknown)) {
		if err := t.ask(context.WithoutCancel(ctx), c); err != nil {
			return nil, err
		}
		found, err = t.Tool(c.Server, c.Params.Name)
	}
	refuse := func(code int, reason string) error {
		return &enforce.Refusal{Code: code, Status: 200, Message: err.Error(), Data: enforce.Data{Reason: reason}}
	}
	switch {
	case errors.Is(err, catalog.ErrUnknown):
		return nil, enforce.NoSuchTool()
	case errors.Is(err, catalog.ErrQuarantined), errors.Is(err, catalog.ErrProposed):
		return nil, refuse(enforce.DefaultDenial.Code, enforce.ReasonQuarantined)
	case err != nil:
		return nil, err
	}
	if err = found.Check(c.Params.Arguments); err != nil {
		return nil, refuse(wire.CodeParams, enforce.ReasonArguments)
	}
	return &enforce.Tool{Definition: found.Definition, Digest: found.Digest}, nil
}

// soon is how soon after a list a server is asked again for a tool that was not
// on it, or because it says that its tools have changed.
const soon = time.Second

// isStale reports whether the server is to be asked again.
func (t *tools) isStale(server string, unknown bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, told := t.told[server]
	age := time.Since(t.read[server])
	return age >= t.refresh || (unknown || told) && age >= soon
}

// ask has the server list its tools, in the session of a call.
func (t *tools) ask(ctx context.Context, c *enforce.Call) error {
	_, err, _ := t.once.Do(c.Server, func() (any, error) {
		err := t.Refresh(ctx, c.Server, func(ctx context.Context, cursor string) (jsontext.Value, error) { return list(ctx, c, cursor) })
		if err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.read[c.Server] = time.Now()
		}
		return nil, err
	})
	return err
}

// heard is told what servers say of their own accord. One that says that its
// tools have changed is asked what they are, once in [soon] however often it says
// so.
func (t *tools) heard(c *enforce.Call, m *wire.Message) {
	if m.Method != wire.MethodToolsChanged {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, asked := t.told[c.Server]
	t.told[c.Server] = c
	if !asked {
		pause := max(0, soon-time.Since(t.read[c.Server]))
		t.rereading.Go(func() { t.reread(c.Server, pause) })
	}
}

// reread asks a server for its tools as long as it has said that they are
// others.
func (t *tools) reread(server string, pause time.Duration) {
	for ; ; pause = soon {
		select {
		case <-time.After(pause):
		case <-t.life.Done():
			return
		}
		c := t.take(server)
		if c == nil {
			return
		}
		t.once.Forget(server) // a list that is being read may be of before
		if err := t.ask(t.life, c); err != nil {
			t.mapper.log.Warn("the tools of a server that says they have changed", "server", server, "error", err)
		}
	}
}

// take returns the call on whose stream a server has said that its tools are
// others, or nil where it has not since it was asked.
func (t *tools) take(server string) *enforce.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.told[server]
	if t.told[server] = nil; c == nil {
		delete(t.told, server)
	}
	return c
}

// listPatience bounds the wait for one page of a list.
const listPatience = 30 * time.Second

// list asks for a page of the tools of the server of a call.
func list(ctx context.Context, c *enforce.Call, cursor string) (jsontext.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	params := map[string]any{}
	if cursor != "" {
		params["cursor"] = cursor
	}
	if c.Stateless {
		params["_meta"] = wire.OwnMeta(c.Params.Meta.ProtocolVersion)
	}
	text, err := json.Marshal(params, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	response, err := c.Reach(ctx, &wire.Message{ID: jsontext.Value(`"gw-list"`), Method: wire.MethodToolsList, Params: text})
	if err != nil {
		return nil, err
	}
	if response.Result == nil {
		return nil, fmt.Errorf("the server answered %s", response.Error)
	}
	return response.Result, nil
}

// digest returns that of the definition of a tool as it is called by now, or "".
func (t *tools) digest(server, name string) string {
	found, err := t.Tool(server, name)
	if err != nil {
		return ""
	}
	return found.Digest
}

// called returns the tool that a message calls, as it was accepted, or nil.
func (t *tools) called(server string, m *wire.Message) *enforce.Tool {
	params, err := m.Read()
	if err != nil || m.Method != wire.MethodToolsCall {
		return nil
	}
	found, err := t.Tool(server, params.Name)
	if err != nil {
		return nil
	}
	return &enforce.Tool{Definition: found.Definition, Digest: found.Digest}
}

// filter is that of [enforce.Config.Filter].
func (t *tools) filter(ctx context.Context, c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	return t.Filter(ctx, catalog.List{
		Server: c.Server, Method: c.Message.Method, Result: result, TTL: t.ttl,
		Question: func(name string, item jsontext.Value) (*authzen.EvaluationRequest, error) {
			return t.mapper.item(c, name, item)
		},
		Ask: func(ctx context.Context, batch *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
			question, err := t.gate.Declare(&enforce.Question{Evaluations: batch})
			if err != nil {
				return nil, err
			}
			answer, err := t.pdp.Ask(ctx, c.Caller.Tenant, question)
			if err != nil {
				return nil, err
			}
			t.gate.TellHidden(ctx, c, answer)
			return &authzen.EvaluationsResponse{Evaluations: answer.Decisions}, nil
		},
	})
}
