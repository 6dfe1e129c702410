package union

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// An outward names what a server says to the client of a union.
type outward struct {
	h      *Handler
	server string
	caller *enforce.Caller
}

// message returns what the client gets of a server's message, or nil if the client
// must not get it.
func (o outward) message(m *wire.Message) (*wire.Message, error) {
	out := *m
	var err error
	switch {
	case m.IsResponse() && m.Result != nil:
		out.Result, err = o.result(m.Result)
	case m.IsResponse():
		out.Error, err = o.fault(m.Error)
	default:
		if m.IsRequest() {
			out.ID = outerID(o.server, m.ID)
		}
		if m.Method == wire.MethodProgress {
			out.Params = o.progress(m.Params)
			if out.Params == nil {
				return nil, nil
			}
			break
		}
		out.Params, err = o.params(m.Method, m.Params)
	}
	return &out, err
}

// progress returns the params of a progress notification with the client's token,
// or nil if it is not of a call of this server.
func (o outward) progress(params jsontext.Value) jsontext.Value {
	members, err := jsonobject.Parse(params)
	if err != nil {
		return nil
	}
	token := o.h.openToken(o.server, o.caller, members["progressToken"])
	if token == nil {
		return nil
	}
	members.Put("progressToken", token)
	text, err := members.Encode()
	if err != nil {
		return nil
	}
	return text
}

// params names what a server's request or notification has.
func (o outward) params(method string, params jsontext.Value) (jsontext.Value, error) {
	if params == nil {
		return nil, nil
	}
	members, err := jsonobject.Parse(params)
	if err != nil {
		return nil, err
	}
	switch method {
	case wire.MethodElicitation:
		o.elicitation(members)
	case wire.MethodLog:
		o.logger(members)
	case wire.MethodCancelled:
		if id := members["requestId"]; id != nil {
			members.Put("requestId", outerID(o.server, id))
		}
	}
	o.text(members, "uri", outerURI)
	o.text(members, "elicitationId", outerName)
	if err := o.content(members); err != nil {
		return nil, err
	}
	if err := o.meta(members, true); err != nil {
		return nil, err
	}
	return members.Encode()
}

// elicitation says in front of a message to a person which server it is of.
func (o outward) elicitation(members jsonobject.Object) {
	o.text(members, "message", func(server, message string) string { return "[" + server + "] " + message })
}

// logger names the server in front of the logger of a log message.
func (o outward) logger(members jsonobject.Object) {
	if members["logger"] == nil {
		members.Put("logger", jsontext.Value(`""`))
	}
	o.text(members, "logger", func(server, logger string) string { return strings.TrimSuffix(server+"/"+logger, "/") })
}

// named are names of the members that are given other names: a result without any
// of them stays as it is. A message that was read writes each in one way.
var named = [][]byte{[]byte(`"uri"`), []byte(`"taskId"`), []byte(`"inputRequests"`)}

// result names what a result has.
func (o outward) result(result jsontext.Value) (jsontext.Value, error) {
	for _, name := range named {
		if bytes.Contains(result, name) {
			members, err := jsonobject.Parse(result)
			if err != nil {
				return nil, err
			}
			if err := o.content(members); err != nil {
				return nil, err
			}
			return members.Encode()
		}
	}
	return result, nil
}

// content names what the members of a result, a task or params have.
func (o outward) content(members jsonobject.Object) error {
	o.text(members, "taskId", outerName)
	for name, each := range map[string]func(jsonobject.Object) error{
		"task": o.content, "result": o.content, "content": o.block, "contents": o.block, "messages": o.content, "tasks": o.content,
	} {
		if err := o.each(members, name, each); err != nil {
			return err
		}
	}
	if err := o.inputRequests(members); err != nil {
		return err
	}
	if fault := members["error"]; fault.Kind() == '{' {
		text, err := o.fault(fault)
		if err != nil {
			return err
		}
		members.Put("error", text)
	}
	return o.meta(members, false)
}

// block names what a block of content has: a link to a resource, or a resource.
func (o outward) block(members jsonobject.Object) error {
	o.text(members, "uri", outerURI)
	if err := o.each(members, "resource", o.block); err != nil {
		return err
	}
	return o.each(members, "content", o.block)
}

// inputRequests names what the requests in a result have (MCP 2026-07-28, "Multi
// Round-Trip Requests").
func (o outward) inputRequests(members jsonobject.Object) error {
	if members["inputRequests"].Kind() != '{' {
		return nil
	}
	requests, err := jsonobject.Parse(members["inputRequests"])
	if err != nil {
		return err
	}
	for name, text := range requests {
		request, err := jsonobject.Parse(text)
		if err != nil {
			return err
		}
		var method string
		if err := json.Unmarshal(request["method"], &method); err != nil {
			return err
		}
		params, err := o.params(method, request["params"])
		if err != nil {
			return err
		}
		request.Put("params", params)
		if requests[name], err = request.Encode(); err != nil {
			return err
		}
	}
	return members.Set("inputRequests", requests)
}

// fault names what an error has: pages to which it leads people, and the tool of a call
// that waits for a person.
func (o outward) fault(fault jsontext.Value) (jsontext.Value, error) {
	if !wire.IsPageError(fault) && !bytes.Contains(fault, []byte(`"authorizationRequest"`)) {
		return fault, nil
	}
	members, err := jsonobject.Parse(fault)
	if err != nil {
		return nil, err
	}
	err = o.each(members, "data", func(data jsonobject.Object) error {
		err := o.each(data, "authorizationRequest", func(asked jsonobject.Object) error {
			o.text(asked, "tool", outerTool)
			return nil
		})
		if err != nil {
			return err
		}
		return o.each(data, "elicitations", func(e jsonobject.Object) error {
			o.elicitation(e)
			o.text(e, "elicitationId", outerName)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return members.Encode()
}

const (
	metaTask    = "io.modelcontextprotocol/related-task"
	metaTasks   = "io.modelcontextprotocol/relatedTaskIds"
	memberToken = "progressToken"
)

// meta names the tasks that _meta is about and, of a server's request, the token
// by which the client reports progress.
func (o outward) meta(members jsonobject.Object, request bool) error {
	return o.each(members, "_meta", func(meta jsonobject.Object) error {
		if token := meta[memberToken]; request && token != nil {
			meta.Put(memberToken, outerID(o.server, token))
		}
		return o.each(meta, metaTask, func(task jsonobject.Object) error {
			o.text(task, "taskId", outerName)
			return nil
		})
	})
}

// text changes a member that is a text.
func (o outward) text(members jsonobject.Object, name string, change func(server, text string) string) {
	var text string
	if members[name].Kind() != '"' || json.Unmarshal(members[name], &text) != nil {
		return
	}
	if quoted, err := jsontext.AppendQuote(nil, change(o.server, text)); err == nil {
		members.Put(name, quoted)
	}
}

// each changes a member that is an object, or an array of objects.
func (o outward) each(members jsonobject.Object, name string, change func(jsonobject.Object) error) error {
	value := members[name]
	switch value.Kind() {
	case '{':
		changed, err := o.object(value, change)
		if err == nil {
			members.Put(name, changed)
		}
		return err
	case '[':
		var all []jsontext.Value
		if err := json.Unmarshal(value, &all); err != nil {
			return err
		}
		for i, item := range all {
			if item.Kind() != '{' {
				continue
			}
			changed, err := o.object(item, change)
			if err != nil {
				return err
			}
			all[i] = changed
		}
		return members.Set(name, all)
	}
	return nil
}

func (o outward) object(value jsontext.Value, change func(jsonobject.Object) error) (jsontext.Value, error) {
	members, err := jsonobject.Parse(value)
	if err != nil {
		return nil, err
	}
	if err := change(members); err != nil {
		return nil, err
	}
	return members.Encode()
}
