package union

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A kind is that of a list: the member with the items, the member that names an
// item, and how that is named at the union.
type kind struct {
	items, name string
	outer       func(server, name string) string
}

var kinds = map[string]kind{
	wire.MethodToolsList:       {"tools", "name", outerTool},
	"prompts/list":             {"prompts", "name", outerName},
	"resources/list":           {"resources", "uri", outerURI},
	"resources/templates/list": {"resourceTemplates", "uriTemplate", outerURI},
	"tasks/list":               {"tasks", "taskId", outerName},
}

// isMerged reports whether the results of all servers make that of a method.
func isMerged(method string) bool {
	_, is := kinds[method]
	return is
}

// A cursor is where the next page of a list begins: at each server that has one.
type cursor struct {
	Endpoint string            `json:"endpoint"`
	Method   string            `json:"method"`
	Next     map[string]string `json:"next"` // cursors by server
}

const sealCursor = "union cursor"

var errCursor = &enforce.Refusal{Code: wire.CodeParams, Status: http.StatusOK, Message: "the cursor is not known", Data: enforce.Data{Reason: enforce.ReasonInvalidMessage}}

// A part is the answer of one server to a request to all.
type part struct {
	server *Server
	answer *wire.Message // with a result
	err    error
}

// list answers a list with the items of all servers that answer in time: a page of
// each.
func (h *Handler) list(c *call) {
	after, err := h.openCursor(c)
	if err != nil {
		h.fail(c, err)
		return
	}
	var servers []*Server
	for i := range h.cfg.Servers {
		if _, more := after.Next[h.cfg.Servers[i].Name]; more || after.Next == nil {
			servers = append(servers, &h.cfg.Servers[i])
		}
	}
	done := c.session.begin(c.Message.ID, servers...)
	defer done()
	parts := h.askAll(c, servers, func(ctx context.Context, s *Server) (*wire.Message, error) {
		return h.askOne(ctx, c, s, func(members jsonobject.Object) error {
			members.Remove("cursor")
			if next := after.Next[s.Name]; next != "" {
				return members.Set("cursor", next)
			}
			return nil
		})
	})
	own := c.Message.Method == wire.MethodToolsList && after.Next == nil && h.offersAccess()
	result, err := h.merge(c, parts, own)
	if err != nil {
		h.fail(c, err)
		return
	}
	_ = c.out.Message(http.StatusOK, &wire.Message{ID: c.Message.ID, Result: result})
}

func (h *Handler) openCursor(c *call) (cursor, error) {
	var params struct {
		Cursor string `json:"cursor"`
	}
	var after cursor
	if c.Message.Params == nil {
		return after, nil
	}
	if err := json.Unmarshal(c.Message.Params, &params); err != nil {
		return after, errCursor
	}
	if params.Cursor == "" {
		return after, nil
	}
	err := h.cfg.Seal.Open(sealCursor, params.Cursor, &after)
	if err != nil || after.Endpoint != h.cfg.Name || after.Method != c.Message.Method {
		return after, errCursor
	}
	return after, nil
}

// askAll asks servers, and waits for the answers as long as [Config.Wait]. Servers
// that have not answered lately are not waited for.
func (h *Handler) askAll(c *call, servers []*Server, ask func(context.Context, *Server) (*wire.Message, error)) []part {
	ctx, cancel := context.WithTimeoutCause(c.request.Context(), h.cfg.Wait, errSlow)
	defer cancel()
	parts := make([]part, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		parts[i].server = s
		if parts[i].err = h.absent.skips(s.Name); parts[i].err != nil {
			continue
		}
		asking.Go(func() {
			parts[i].answer, parts[i].err = ask(ctx, s)
			switch {
			case c.request.Context().Err() != nil:
			case isAbsence(parts[i].err):
				h.absent.miss(s.Name, ctx.Err() != nil)
			default:
				h.absent.note(s.Name)
			}
		})
	}
	asking.Wait()
	return parts
}

var errSlow = errors.New("the server did not answer in time")

// askOne sends the request of a call to one of the servers that it is for.
func (h *Handler) askOne(ctx context.Context, c *call, s *Server, change func(jsonobject.Object) error) (*wire.Message, error) {
	m, err := h.inward(s, c.caller, c.Message, change)
	if err != nil {
		return nil, err
	}
	response, err := h.send(ctx, c, s, m)
	if err != nil {
		return nil, err
	}
	return h.result(response)
}

// firstError returns the error of the first server, if no server has a result.
func firstError(parts []part) error {
	for _, p := range parts {
		if p.err == nil {
			return nil
		}
	}
	for _, p := range parts {
		if !isAbsence(p.err) {
			return p.err
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return parts[0].err
}

// absentTTL is how long a client may keep a list from which a server is left out,
// in milliseconds.
const absentTTL = 1000

// merge makes one result of those of the servers, and of the gateway's own tools.
func (h *Handler) merge(c *call, parts []part, own bool) (jsontext.Value, error) {
	if err := firstError(parts); err != nil {
		return nil, err
	}
	of := kinds[c.Message.Method]
	items, next, ttl := []jsontext.Value{}, make(map[string]string), int64(-1)
	for _, p := range parts {
		if p.err != nil {
			h.leaveOut(c, p)
			if isAbsence(p.err) {
				ttl = absentTTL
			}
			continue
		}
		page, err := h.page(p, of, c.caller)
		if err != nil {
			h.leaveOut(c, part{server: p.server, err: err})
			continue
		}
		items = append(items, page.items...)
		if page.next != "" {
			next[p.server.Name] = page.next
		}
		if page.ttl >= 0 && (ttl < 0 || page.ttl < ttl) {
			ttl = page.ttl
		}
	}
	if own {
		items = append(items, h.definitions(c)...)
	}
	return h.listResult(c, of, items, next, ttl)
}

// leaveOut logs that a list lacks the items of a server.
func (h *Handler) leaveOut(c *call, p part) {
	if !isAbsence(p.err) {
		return // the caller may not have them, or the server has none
	}
	c.session.miss(p.server)
	h.cfg.Log.WarnContext(c.request.Context(), "a list lacks the items of a server", "endpoint", h.cfg.Name, "server", p.server.Name, "method", c.Message.Method, "error", p.err)
}

func (h *Handler) listResult(c *call, of kind, items []jsontext.Value, next map[string]string, ttl int64) (jsontext.Value, error) {
	result := map[string]any{of.items: items}
	if len(next) > 0 {
		sealed, err := h.cfg.Seal.Seal(sealCursor, cursor{h.cfg.Name, c.Message.Method, next})
		if err != nil {
			return nil, err
		}
		result["nextCursor"] = sealed
	}
	if c.Stateless {
		result["resultType"], result["cacheScope"], result["ttlMs"] = "complete", "private", max(ttl, 0)
		result["_meta"] = map[string]any{metaServer: serverInfo}
	}
	return json.Marshal(result, json.Deterministic(true))
}

// A page is what one server gives to a page of the union.
type page struct {
	items []jsontext.Value
	next  string // cursor, or ""
	ttl   int64  // in milliseconds, or -1
}

// page reads a page of a server, and names its items.
func (h *Handler) page(p part, of kind, caller *enforce.Caller) (*page, error) {
	members, err := jsonobject.Parse(p.answer.Result)
	if err != nil {
		return nil, err
	}
	out := &page{ttl: -1}
	if err := json.Unmarshal(members[of.items], &out.items); err != nil {
		return nil, err
	}
	if text := members["nextCursor"]; text.Kind() == '"' {
		if err := json.Unmarshal(text, &out.next); err != nil {
			return nil, err
		}
	}
	if text := members["ttlMs"]; text.Kind() == '0' {
		if err := json.Unmarshal(text, &out.ttl); err != nil {
			return nil, err
		}
	}
	o := outward{h, p.server.Name, caller}
	for i, item := range out.items {
		if out.items[i], err = o.object(item, func(members jsonobject.Object) error {
			o.text(members, of.name, of.outer)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// setLevel sets the level of log messages of all servers.
func (h *Handler) setLevel(c *call) {
	c.session.setLevel(c.Message.Params)
	var servers []*Server
	for _, s := range c.session.opened(h) {
		if inner := c.session.at(s); inner != nil && declares(inner.capabilities, "logging") {
			servers = append(servers, s)
		}
	}
	parts := h.askAll(c, servers, func(ctx context.Context, s *Server) (*wire.Message, error) { return h.askOne(ctx, c, s, nil) })
	if err := firstError(parts); err != nil {
		h.fail(c, err)
		return
	}
	_ = c.out.Message(http.StatusOK, &wire.Message{ID: c.Message.ID, Result: jsontext.Value("{}")})
}

// maxLevel bounds the level of log messages that a session remembers, in bytes.
const maxLevel = 64

// setLevel remembers the level of log messages. A longer one is of no server.
func (s *session) setLevel(params jsontext.Value) {
	var asked struct {
		Level string `json:"level"`
	}
	if json.Unmarshal(params, &asked) != nil || len(asked.Level) > maxLevel {
		return
	}
	level, err := json.Marshal(&asked)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

// reportProgress passes on how far a client is with the request of a server.
func (h *Handler) reportProgress(w http.ResponseWriter, c *call) {
	var params struct {
		Token jsontext.Value `json:"progressToken"`
	}
	err := json.Unmarshal(c.Message.Params, &params)
	server, token, ok := splitID(params.Token)
	s := h.server(server)
	if err != nil || !ok || s == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.passChanged(w, c, s, func(members jsonobject.Object) error {
		members.Put(memberToken, token)
		return nil
	})
}

// notifyTask passes on the status of a task.
func (h *Handler) notifyTask(w http.ResponseWriter, c *call) {
	about, ok := h.find(c.Message, c.Params)
	if !ok {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.passChanged(w, c, about.server, func(members jsonobject.Object) error { return members.Set("taskId", about.name) })
}

func (h *Handler) passChanged(w http.ResponseWriter, c *call, s *Server, change func(jsonobject.Object) error) {
	m, err := h.inward(s, c.caller, c.Message, change)
	if err != nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.pass(w, c, s, m)
}
