package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// tools knows the tools of servers, and asks them again what they are.
type tools struct {
	*catalog.Catalog
	rules *currentRules
	log   *slog.Logger
	// declareTasks adds the gateway's tasks to the capabilities of servers.
	declareTasks bool
	access       *access.Service
	health       *health

	once      singleflight.Group // by server
	mu        sync.Mutex
	refreshed map[string]time.Time // when each server was last asked
	// changed has the servers that have announced new tools and are to be listed
	// again, each with the call on whose stream the latest announcement came. The
	// call is nil while the list is being read.
	changed   map[string]*enforce.Call
	announced chan string // servers whose lists are to be read again
}

func newTools(pins *catalog.Catalog, r *currentRules, cfg *Config, h *health, log *slog.Logger) *tools {
	return &tools{
		Catalog: pins, rules: r, log: log, declareTasks: cfg.Approval.Tasks, health: h,
		refreshed: make(map[string]time.Time), changed: make(map[string]*enforce.Call), announced: make(chan string, max(len(cfg.Servers), maxServers)),
	}
}

// maxServers bounds the servers of a configuration that a running gateway reads.
const maxServers = 1000

// run lists the tools of servers again that announce changes, until ctx ends.
func (t *tools) run(ctx context.Context) {
	var refreshing sync.WaitGroup
	defer refreshing.Wait()
	for {
		select {
		case server := <-t.announced:
			refreshing.Go(func() { t.refreshChanged(ctx, server) })
		case <-ctx.Done():
			return
		}
	}
}

// FindTool implements [enforce.Tools].
func (t *tools) FindTool(ctx context.Context, c *enforce.Call) (*enforce.Tool, error) {
	found, err := t.Tool(c.Server, c.Params.Name)
	if t.isStale(c.Server, errors.Is(err, catalog.ErrUnknown)) {
		if err := t.refreshTools(context.WithoutCancel(ctx), c); err != nil {
			return nil, err
		}
		found, err = t.Tool(c.Server, c.Params.Name)
	}
	switch {
	case errors.Is(err, catalog.ErrUnknown):
		return nil, enforce.NoSuchTool()
	case err != nil:
		return nil, quarantined(err)
	}
	coerced, err := t.rules.Load().arguments[c.Server].fit(found, c.Params.Arguments)
	if err != nil {
		return nil, invalidArguments(err)
	}
	tool := &enforce.Tool{Definition: found.Definition, Digest: found.Digest, Coerced: coerced}
	if !t.rules.ignoresAuthorization(c.Server) {
		tool.Authorization = enforce.ReadAuthorization(found.Definition)
	}
	return tool, nil
}

// quarantined returns the refusal of a call for a definition that the operator has to
// accept, and other errors unchanged.
func quarantined(err error) error {
	if errors.Is(err, catalog.ErrQuarantined) || errors.Is(err, catalog.ErrProposed) {
		return &enforce.Refusal{Message: err.Error(), Data: enforce.Data{Reason: enforce.ReasonQuarantined}}
	}
	return err
}

// CheckItem implements [enforce.Tools].
func (t *tools) CheckItem(c *enforce.Call) error {
	switch c.Message.Method {
	case wire.MethodPromptsGet:
		return quarantined(t.Listed(c.Server, "prompts/list", c.Params.Name))
	case wire.MethodResourceRead, "resources/subscribe":
		return quarantined(t.Listed(c.Server, "resources/list", c.Params.URI))
	}
	return nil
}

// minRefreshInterval is the shortest time between two lists of the same server,
// for an unknown tool or an announced change.
const minRefreshInterval = time.Second

// isStale reports whether the server's tools must be listed again.
func (t *tools) isStale(server string, unknown bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, told := t.changed[server]
	age := time.Since(t.refreshed[server])
	return age >= t.rules.Load().cfg.Catalog.Refresh || (unknown || told) && age >= minRefreshInterval
}

// refreshTools lists the tools of the call's server, in the session of the
// call. Calls that come meanwhile share the list. They do not share the server's
// refusal of another caller's session: each then lists in its own.
func (t *tools) refreshTools(ctx context.Context, c *enforce.Call) error {
	for {
		own := false
		_, err, _ := t.once.Do(c.Server, func() (any, error) {
			own = true
			return nil, t.readList(ctx, c)
		})
		var refused *enforce.Refusal
		if own || !errors.As(err, &refused) {
			return err
		}
	}
}

// readList lists the tools of the call's server. The error is a [enforce.Refusal]
// if the server refuses the session.
func (t *tools) readList(ctx context.Context, c *enforce.Call) error {
	err := t.Refresh(ctx, c.Server, func(ctx context.Context, cursor string) (jsontext.Value, error) { return list(ctx, c, cursor) })
	t.recordList(c.Server, err)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshed[c.Server] = time.Now()
	return nil
}

// recordList records what a list has shown of the server. A refusal of the
// session is an answer.
func (t *tools) recordList(server string, err error) {
	var refused *enforce.Refusal
	if errors.As(err, &refused) && refused.Data.Reason == enforce.ReasonCredential {
		return // the server was not asked
	}
	if err == nil || errors.As(err, &refused) {
		t.health.record(server, "")
		return
	}
	t.health.record(server, withoutPassword(err.Error()))
}

// onNotification lists the tools of a server again that has announced a change:
// at most once in [minRefreshInterval], however often it announces one.
func (t *tools) onNotification(c *enforce.Call, m *wire.Message) {
	if m.Method != wire.MethodToolsChanged {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, asked := t.changed[c.Server]
	t.changed[c.Server] = c
	if !asked {
		t.announced <- c.Server // it has room: each server is in it once at most
	}
}

// refreshChanged lists the tools of a server for as long as it announces
// changes.
func (t *tools) refreshChanged(ctx context.Context, server string) {
	for pause := t.untilRefresh(server); ; pause = minRefreshInterval {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		c := t.takeChanged(server)
		if c == nil {
			return
		}
		t.once.Forget(server) // a list that is being read may be of before
		if err := t.refreshTools(ctx, c); err != nil {
			t.log.Warn("the tools of a server that says they have changed", "server", server, "error", err)
		}
	}
}

// untilRefresh returns the time until the server may be listed again.
func (t *tools) untilRefresh(server string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, minRefreshInterval-time.Since(t.refreshed[server]))
}

// takeChanged returns the call on whose stream the server last announced a
// change, or nil if it has announced none since the last list.
func (t *tools) takeChanged(server string) *enforce.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.changed[server]
	if t.changed[server] = nil; c == nil {
		delete(t.changed, server)
	}
	return c
}

// listTimeout bounds the wait for one page of a list.
const listTimeout = 30 * time.Second

// list asks for a page of the tools of the server of a call.
func list(ctx context.Context, c *enforce.Call, cursor string) (jsontext.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
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
	response, err := c.Upstream(ctx, &wire.Message{ID: jsontext.Value(`"gw-list"`), Method: wire.MethodToolsList, Params: text})
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

// CheckOutput implements [enforce.Tools].
func (t *tools) CheckOutput(server, tool string, structured jsontext.Value) error {
	found, err := t.Tool(server, tool)
	if err != nil {
		return err
	}
	return found.CheckOutput(structured)
}

// FilterList implements [enforce.Tools].
func (t *tools) FilterList(ctx context.Context, c *enforce.Call, result jsontext.Value, ask enforce.Ask) (jsontext.Value, error) {
	if wire.IsIntroduction(c.Message.Method) {
		return t.introduce(ctx, c, result)
	}
	filtered, err := t.Filter(ctx, catalog.List{
		Server: c.Server, Method: c.Message.Method, Result: result, TTL: t.rules.Load().cfg.Catalog.TTL, Ask: ask, ShowAll: t.rules.observes(c.Server),
		Question: func(name string, item jsontext.Value) (*authzen.EvaluationRequest, error) {
			return t.rules.Load().mapper.item(c, name, item)
		},
	})
	if err != nil {
		return nil, err
	}
	return t.addAccessTools(ctx, c, filtered)
}

// introduce returns the result of initialize or server/discover without
// instructions that the operator has to accept, and with the extensions of the gateway.
func (t *tools) introduce(ctx context.Context, c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	result, err := t.Instructions(c.Server, result)
	if err != nil {
		return nil, err
	}
	if result, err = wire.WithWelcome(result, t.access.Welcome(ctx, c, []string{c.Server})); err != nil {
		return nil, err
	}
	if t.declareTasks && c.Message.Method == wire.MethodDiscover {
		if result, err = declareExtension(result, wire.ExtensionTasks); err != nil {
			return nil, err
		}
	}
	if t.access.Ways(ctx, c) == (enforce.Ways{}) {
		return result, nil
	}
	return declareExtension(result, wire.ExtensionAccess)
}
