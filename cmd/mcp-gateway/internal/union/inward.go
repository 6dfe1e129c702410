package union

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A target is what a message of a client is about.
type target struct {
	server *Server
	name   string // the server's own
}

// find returns what a message is about by the name, the URI or the task in it.
// Without a server of that name it returns false.
func (h *Handler) find(m *wire.Message, p *wire.Params) (target, bool) {
	var server, name string
	var ok bool
	switch m.Method {
	case wire.MethodToolsCall, wire.MethodToolsRequest, wire.MethodPromptsGet:
		server, name, ok = split(p.Name)
	case wire.MethodResourceRead, "resources/subscribe", "resources/unsubscribe":
		server, name, ok = splitURI(p.URI)
	case "completion/complete":
		if server, name, ok = split(p.Ref.Name); p.Ref.URI != "" {
			server, name, ok = splitURI(p.Ref.URI)
		}
	default:
		server, name, ok = split(p.TaskID)
	}
	s := h.server(server)
	if s == nil || !ok {
		return target{}, false
	}
	if (m.Method == wire.MethodToolsCall || m.Method == wire.MethodToolsRequest) && len(p.Name) == MaxName {
		name = h.wholeName(s, p.Name, name)
	}
	return target{s, name}, true
}

// wholeName returns the server's own name of a tool whose name may have been
// shortened. A name that could be of two tools is none that was shortened.
func (h *Handler) wholeName(s *Server, outer, name string) string {
	if h.cfg.ToolNames == nil {
		return name
	}
	found := ""
	for _, known := range h.cfg.ToolNames(s.Name) {
		switch {
		case known == name:
			return name
		case outerTool(s.Name, known) != outer:
		case found != "":
			return name
		default:
			found = known
		}
	}
	if found != "" {
		return found
	}
	return name
}

// server returns the server of that name, or nil.
func (h *Handler) server(name string) *Server {
	for i := range h.cfg.Servers {
		if h.cfg.Servers[i].Name == name {
			return &h.cfg.Servers[i]
		}
	}
	return nil
}

// inward returns a message for a server, in which everything has the names that
// the server gave.
func (h *Handler) inward(s *Server, caller *enforce.Caller, m *wire.Message, change func(jsonobject.Object) error) (*wire.Message, error) {
	members, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, err
	}
	if change != nil {
		if err := change(members); err != nil {
			return nil, err
		}
	}
	if members["_meta"].Kind() == '{' {
		meta, err := h.inwardMeta(s, caller, members["_meta"])
		if err != nil {
			return nil, err
		}
		members.Put("_meta", meta)
	}
	in := *m
	in.Params, err = members.EncodeMembers()
	return &in, err
}

// inwardMeta seals the token for progress, and names the related tasks.
func (h *Handler) inwardMeta(s *Server, caller *enforce.Caller, text jsontext.Value) (jsontext.Value, error) {
	meta, err := jsonobject.Parse(text)
	if err != nil {
		return nil, err
	}
	if token := meta[memberToken]; token != nil {
		sealed, err := h.sealToken(s.Name, caller, token)
		if err != nil {
			return nil, err
		}
		meta.Put(memberToken, sealed)
	}
	if err := inwardTasks(s.Name, meta); err != nil {
		return nil, err
	}
	return meta.Encode()
}

// inwardTasks names the related tasks. One of another server is no task of this
// one.
func inwardTasks(server string, meta jsonobject.Object) error {
	if meta[metaTask].Kind() == '{' {
		task, err := jsonobject.Parse(meta[metaTask])
		if err != nil {
			return err
		}
		if err := setInner(task, "taskId", server); err != nil {
			return err
		}
		if err := meta.Set(metaTask, task); err != nil {
			return err
		}
	}
	if meta[metaTasks].Kind() != '[' {
		return nil
	}
	var ids []string
	if err := json.Unmarshal(meta[metaTasks], &ids); err != nil {
		return enforce.NoSuchTask()
	}
	for i, id := range ids {
		of, inner, ok := split(id)
		if !ok || of != server {
			return enforce.NoSuchTask()
		}
		ids[i] = inner
	}
	return meta.Set(metaTasks, ids)
}

// setInner replaces the id of a task by the server's own.
func setInner(members jsonobject.Object, name, server string) error {
	var id string
	if members[name].Kind() != '"' || json.Unmarshal(members[name], &id) != nil {
		return enforce.NoSuchTask()
	}
	of, inner, ok := split(id)
	if !ok || of != server {
		return enforce.NoSuchTask()
	}
	return members.Set(name, inner)
}

// rename returns a change of the member that says what a message is about.
func rename(m *wire.Message, p *wire.Params, name string) func(jsonobject.Object) error {
	return func(members jsonobject.Object) error {
		switch m.Method {
		case wire.MethodToolsCall, wire.MethodToolsRequest, wire.MethodPromptsGet:
			return members.Set("name", name)
		case wire.MethodResourceRead, "resources/subscribe", "resources/unsubscribe":
			return members.Set("uri", name)
		case "completion/complete":
			ref, err := jsonobject.Parse(members["ref"])
			if err != nil {
				return err
			}
			member := "name"
			if p.Ref.URI != "" {
				member = "uri"
			}
			if err := ref.Set(member, name); err != nil {
				return err
			}
			return members.Set("ref", ref)
		}
		return members.Set("taskId", name)
	}
}

// A token is one of progress, which a client has chosen, for a server.
type token struct {
	Token  jsontext.Value `json:"token"`
	Server string         `json:"server"`
	Tenant string         `json:"tenant,omitzero"`
	Type   string         `json:"type"` // of the caller
	Caller string         `json:"caller"`
}

const sealProgress = "union progress"

func (h *Handler) sealToken(server string, c *enforce.Caller, t jsontext.Value) (jsontext.Value, error) {
	sealed, err := h.cfg.Seal.Seal(sealProgress, token{t, server, c.Tenant, c.Subject.Type, c.Subject.ID})
	if err != nil {
		return nil, err
	}
	return jsontext.AppendQuote(nil, sealed)
}

// openToken returns the client's token, or nil if the server was not given it.
func (h *Handler) openToken(server string, c *enforce.Caller, sealed jsontext.Value) jsontext.Value {
	var text string
	var t token
	if sealed.Kind() != '"' || json.Unmarshal(sealed, &text) != nil || h.cfg.Seal.Open(sealProgress, text, &t) != nil {
		return nil
	}
	if t.Server != server || t.Tenant != c.Tenant || t.Type != c.Subject.Type || t.Caller != c.Subject.ID {
		return nil
	}
	return t.Token
}
