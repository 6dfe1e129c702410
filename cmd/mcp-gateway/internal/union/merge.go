package union

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// versions are those with sessions, from the newest.
var versions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}

// initialize begins a session, and those at the servers that answer in time. The
// others follow with the first need.
func (h *Handler) initialize(c *call) {
	if err := h.newSession(c); err != nil {
		h.fail(c, err)
		return
	}
	parts := h.askAll(c, h.all(), func(ctx context.Context, s *Server) (*wire.Message, error) {
		_, err := h.open(ctx, c, s)
		return nil, err
	})
	if err := firstError(parts); err != nil {
		h.sessions.end(c.session.ID)
		c.out.W.Header().Del(endpoint.HeaderSession)
		h.fail(c, err)
		return
	}
	version := versions[0]
	if slices.Contains(versions, c.Params.ProtocolVersion) {
		version = c.Params.ProtocolVersion
	}
	h.greet(c, parts, map[string]any{"protocolVersion": version}, func(p part) (capabilities jsontext.Value, instructions string) {
		inner := c.session.at(p.server)
		return inner.capabilities, inner.instructions
	})
	c.session.greet(false)
}

// all lists the servers.
func (h *Handler) all() []*Server {
	all := make([]*Server, len(h.cfg.Servers))
	for i := range h.cfg.Servers {
		all[i] = &h.cfg.Servers[i]
	}
	return all
}

// discover answers with what all servers are. If one of them only has sessions,
// the client has to begin one, so that it gets every server.
func (h *Handler) discover(c *call) {
	parts := h.askAll(c, h.all(), func(ctx context.Context, s *Server) (*wire.Message, error) { return h.askOne(ctx, c, s, nil) })
	for i, p := range parts {
		if p.err == nil {
			parts[i].err = hasVersion(p.answer.Result, c.Params.Meta.ProtocolVersion)
		}
		err := parts[i].err
		if isInvalid(err) {
			h.fail(c, err)
			return
		}
		if err != nil && !isAbsence(err) && !isDenied(err) {
			_ = c.out.Message(http.StatusBadRequest, wire.Refuse(c.Message.ID, codeVersion, "a server of the endpoint does not have this version of the protocol", map[string]any{
				"supported": versions, "requested": c.Params.Meta.ProtocolVersion,
			}))
			return
		}
	}
	if err := firstError(parts); err != nil {
		h.fail(c, err)
		return
	}
	h.greet(c, parts, map[string]any{
		"supportedVersions": append([]string{c.Params.Meta.ProtocolVersion}, versions...), "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
	}, func(p part) (jsontext.Value, string) {
		var said struct {
			Capabilities jsontext.Value `json:"capabilities"`
			Instructions string         `json:"instructions"`
		}
		if json.Unmarshal(p.answer.Result, &said) != nil {
			return nil, ""
		}
		h.absent.learn(p.server.Name, said.Capabilities)
		return said.Capabilities, said.Instructions
	})
}

// hasVersion returns an error unless a server has said that it has a version.
func hasVersion(discovered jsontext.Value, version string) error {
	var said struct {
		Versions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(discovered, &said); err != nil {
		return err
	}
	if !slices.Contains(said.Versions, version) {
		return &refusedError{http.StatusBadRequest, wire.Refuse(nil, codeVersion, "the server does not have the version", nil)}
	}
	return nil
}

// codeVersion is the code of an unsupported version (MCP 2026-07-28, "Error Codes").
const codeVersion = -32022

// greet answers with what the servers are together. Said returns what a server has
// said of itself.
func (h *Handler) greet(c *call, parts []part, result map[string]any, said func(part) (capabilities jsontext.Value, instructions string)) {
	all := jsonobject.Object{}
	instructions := []string{"Tools and prompts are called SERVER__NAME."}
	for _, p := range parts {
		switch {
		case p.err == nil:
			capabilities, text := said(p)
			addCapabilities(all, capabilities)
			instructions = append(instructions, instructionsOf(p.server.Name, text)...)
		case isAbsence(p.err):
			addCapabilities(all, h.absent.capabilities(p.server.Name))
			c.session.miss(p.server)
		}
	}
	if h.ways(c) != (enforce.Ways{}) {
		declareAccess(all)
	}
	result["capabilities"], result["instructions"] = all, strings.Join(instructions, "\n")
	if c.Stateless {
		result["_meta"] = map[string]any{metaServer: serverInfo}
	} else {
		result["serverInfo"] = serverInfo
	}
	text, err := json.Marshal(result, json.Deterministic(true))
	if err == nil {
		text, err = wire.WithWelcome(text, h.welcome(c))
	}
	if err != nil {
		h.fail(c, err)
		return
	}
	_ = c.out.Message(http.StatusOK, &wire.Message{ID: c.Message.ID, Result: text})
}

// instructionsOf returns the instructions of a server. Each line names the server,
// so that it cannot speak for another.
func instructionsOf(server, text string) (lines []string) {
	if text == "" {
		return nil
	}
	for line := range strings.Lines(text) {
		lines = append(lines, "["+server+"] "+plain.Text(strings.TrimRight(line, "\r\n")))
	}
	return lines
}

// metaServer is the member of _meta by which results name their server (MCP
// 2026-07-28).
const metaServer = "io.modelcontextprotocol/serverInfo"

// serverInfo is what a union says of itself.
var serverInfo = map[string]string{"name": "mcp-gateway", "version": "1"}

// listed are the capabilities whose lists the union announces changes of, because
// servers come and go.
var listed = []string{"tools", "prompts", "resources"}

// routed are the capabilities beside them that a union passes on. Others belong to
// methods that it does not know.
var routed = []string{"completions", "logging", "tasks"}

const tasksExtension = wire.ExtensionTasks

// addCapabilities adds those of a server.
func addCapabilities(all jsonobject.Object, of jsontext.Value) {
	members, err := jsonobject.Parse(of)
	if err != nil {
		return
	}
	for _, name := range listed {
		if members[name].Kind() != '{' {
			continue
		}
		if declares(members[name], "subscribe") || declares(all[name], "subscribe") {
			all.Put(name, jsontext.Value(`{"listChanged":true,"subscribe":true}`))
			continue
		}
		all.Put(name, jsontext.Value(`{"listChanged":true}`))
	}
	for _, name := range routed {
		if members[name].Kind() == '{' && all[name] == nil {
			all.Put(name, members[name])
		}
	}
	extensions, err := jsonobject.Parse(members["extensions"])
	if err == nil && extensions[tasksExtension] != nil {
		if text, err := (jsonobject.Object{tasksExtension: extensions[tasksExtension]}).Encode(); err == nil {
			all.Put("extensions", text)
		}
	}
}

// declareAccess adds the extension of the gateway.
func declareAccess(all jsonobject.Object) {
	extensions, err := jsonobject.Parse(all["extensions"])
	if err != nil {
		return
	}
	extensions.Put(wire.ExtensionAccess, jsontext.Value("{}"))
	if text, err := extensions.Encode(); err == nil {
		all.Put("extensions", text)
	}
}

// declares reports whether an object of capabilities has a member that is not
// false.
func declares(capabilities jsontext.Value, name string) bool {
	members, err := jsonobject.Parse(capabilities)
	value := members[name]
	return err == nil && value != nil && value.Kind() != 'f' && value.Kind() != 'n'
}
