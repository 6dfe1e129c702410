package results

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A shape has, for each member that an object may have, what changes its value. The
// changed value nil removes the member. A member that is not listed withholds the
// response: nobody knows what a client does with it.
type shape map[string]func(*filter, jsontext.Value) (jsontext.Value, error)

// and returns the shape with another member.
func (s shape) and(name string, change func(*filter, jsontext.Value) (jsontext.Value, error)) shape {
	more := maps.Clone(s)
	more[name] = change
	return more
}

// Shapes of MCP 2025-03-26 to 2026-07-28 and of the tasks extension (SEP-2663).
var (
	toolResult = shape{
		"content": (*filter).blocks, "structuredContent": (*filter).structured, "isError": keep, "resultType": keep, "_meta": protocolMeta,
	}
	resourceResult = shape{
		"contents": (*filter).resources, "resultType": keep, "_meta": protocolMeta, "ttlMs": keep, "cacheScope": private,
	}
	promptResult = shape{
		"description": (*filter).sentence, "messages": (*filter).messages, "resultType": keep, "_meta": protocolMeta,
	}
	taskStatus = shape{
		"result": (*filter).toolResult, "error": (*filter).fault, "statusMessage": (*filter).sentence,
		"resultType": keep, "taskId": keep, "status": keep, "createdAt": keep, "lastUpdatedAt": keep, "ttl": keep, "ttlMs": keep,
		"pollInterval": keep, "pollIntervalMs": keep, "inputRequests": keep, "requestState": keep, "_meta": protocolMeta,
	}
	taskResult  = taskStatus.and("task", (*filter).task)
	inputResult = shape{"inputRequests": keep, "requestState": keep, "resultType": keep, "_meta": protocolMeta}

	textBlock    = shape{"type": keep, "text": (*filter).content, "annotations": annotations, "_meta": nothing}
	textResource = shape{"uri": keep, "mimeType": keep, "text": (*filter).content, "_meta": nothing}
	message      = shape{"role": keep, "content": (*filter).block}
	fault        = shape{"code": keep, "message": (*filter).sentence, "data": (*filter).masked}
)

// contents are the shapes of results by method.
var contents = map[string]shape{
	wire.MethodToolsCall: toolResult, wire.MethodResourceRead: resourceResult, wire.MethodPromptsGet: promptResult,
	"tasks/result": toolResult, "tasks/get": taskResult, "tasks/cancel": taskResult, "tasks/update": taskResult,
}

// response changes a response.
func (f *filter) response(method string, m *wire.Message) (*wire.Message, error) {
	out := *m
	var err error
	switch {
	case wire.IsPageError(m.Error): // a request of the server, which has no content
		return m, nil
	case m.Error != nil:
		out.Error, err = f.fault(m.Error)
	case m.Result != nil:
		out.Result, err = f.result(method, m.Result)
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// result changes the result of a method, or a result that comes before it: a task,
// or requests of the server.
func (f *filter) result(method string, v jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(v)
	if err != nil {
		return nil, withheld("it cannot be read")
	}
	switch {
	case string(members["resultType"]) == `"input_required"` && contents[method] != nil:
		return f.object(v, inputResult)
	case isTask(members):
		return f.object(v, taskResult)
	case contents[method] == nil:
		return nil, withheld("results of %s have no content that the gateway could change", method)
	}
	return f.object(v, contents[method])
}

// object changes the members of an object.
func (f *filter) object(v jsontext.Value, s shape) (jsontext.Value, error) {
	members, err := jsonobject.Parse(v)
	if err != nil || v.Kind() != '{' {
		return nil, withheld("a part of it is no object")
	}
	for name, value := range members {
		change, known := s[name]
		if !known {
			return nil, detailed("it has a member that the gateway does not change", "%q", name)
		}
		changed, err := change(f, value)
		if err != nil {
			return nil, err
		}
		members.Put(name, changed)
	}
	return members.Encode()
}

// array changes the elements of an array.
func (f *filter) array(v jsontext.Value, change func(jsontext.Value) (jsontext.Value, error)) (jsontext.Value, error) {
	if v.Kind() != '[' {
		return nil, withheld("its content is no array")
	}
	changed := []jsontext.Value{}
	for _, value := range wire.Elements(v) {
		value, err := change(value)
		if err != nil {
			return nil, err
		}
		changed = append(changed, value)
	}
	return json.Marshal(changed)
}

// keep leaves a member as it is.
func keep(_ *filter, v jsontext.Value) (jsontext.Value, error) { return v, nil }

// nothing removes a member.
func nothing(*filter, jsontext.Value) (jsontext.Value, error) { return nil, nil }

// private is the scope of a result that is changed for one caller.
func private(*filter, jsontext.Value) (jsontext.Value, error) {
	return jsontext.Value(`"private"`), nil
}

// protocolMeta removes the members of _meta that are not the protocol's.
func protocolMeta(_ *filter, v jsontext.Value) (jsontext.Value, error) {
	meta, err := jsonobject.Object{"_meta": v}.Encode()
	if err != nil {
		return nil, err
	}
	kept, _, err := wire.SplitMeta(meta, nil)
	if err != nil {
		return nil, withheld("its _meta is no object")
	}
	return kept, nil
}

// annotations leaves annotations as they are which have nothing but what MCP
// defines.
func annotations(_ *filter, v jsontext.Value) (jsontext.Value, error) {
	for name := range wire.Members(v) {
		if !slices.Contains([]string{"audience", "priority", "lastModified"}, name) {
			return nil, detailed("it has an annotation that the gateway does not change", "%q", name)
		}
	}
	return v, nil
}

func (f *filter) blocks(v jsontext.Value) (jsontext.Value, error) { return f.array(v, f.block) }

// block changes a block of content, which must be text.
func (f *filter) block(v jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(v)
	if err != nil || v.Kind() != '{' {
		return nil, withheld("a block of its content is no object")
	}
	if string(members["type"]) != `"text"` {
		return nil, detailed("it has content other than text", "%.64s", members["type"])
	}
	return f.object(v, textBlock)
}

func (f *filter) resources(v jsontext.Value) (jsontext.Value, error) {
	return f.array(v, func(v jsontext.Value) (jsontext.Value, error) { return f.object(v, textResource) })
}

func (f *filter) messages(v jsontext.Value) (jsontext.Value, error) {
	return f.array(v, func(v jsontext.Value) (jsontext.Value, error) { return f.object(v, message) })
}

func (f *filter) toolResult(v jsontext.Value) (jsontext.Value, error) {
	return f.object(v, toolResult)
}

func (f *filter) task(v jsontext.Value) (jsontext.Value, error) { return f.object(v, taskStatus) }

// structured changes structured content, which must fit the output schema then.
func (f *filter) structured(v jsontext.Value) (jsontext.Value, error) {
	out, err := f.document(v)
	if err != nil || f.valid == nil || string(out) == string(v) {
		return out, err
	}
	if err := f.valid(out); err != nil {
		return nil, detailed("what is left does not fit the output schema of the tool", "%v", err)
	}
	return out, nil
}

// content changes a text of content.
func (f *filter) content(v jsontext.Value) (jsontext.Value, error) { return changeText(v, f.text) }

// sentence masks a sentence. It has no paths: where paths are redacted, it goes.
func (f *filter) sentence(v jsontext.Value) (jsontext.Value, error) {
	if f.paths {
		return nil, nil
	}
	return changeText(v, f.freeText)
}

func changeText(v jsontext.Value, change func(string) (string, error)) (jsontext.Value, error) {
	var text string
	if err := json.Unmarshal(v, &text); err != nil {
		return nil, withheld("a text of it is no string")
	}
	changed, err := change(text)
	if err != nil || changed == text {
		return v, err
	}
	return jsontext.AppendQuote(nil, changed)
}

// fault masks a JSON-RPC error. Paths do not apply to errors.
func (f *filter) fault(v jsontext.Value) (jsontext.Value, error) {
	if f.paths {
		return nil, withheld("paths do not apply to errors")
	}
	return f.object(v, fault)
}

// masked masks a value that has no paths.
func (f *filter) masked(v jsontext.Value) (jsontext.Value, error) { return f.document(v) }
