package wire

import (
	"bytes"
	"iter"
	"maps"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// protocolMeta are the members of _meta that the protocol defines for requests (MCP
// 2025-11-25 and 2026-07-28, "_meta"; W3C Trace Context), each with its format. They
// belong to one message, not to the call. Baggage is not among them, because its
// sender may write anything there.
var protocolMeta = map[string]func(jsontext.Value) bool{
	"progressToken": isID,
	"traceparent":   textOf(`00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}`),
	"tracestate":    textOf(`[!#-\[\]-~]{1,512}`),

	"io.modelcontextprotocol/protocolVersion":    isText,
	"io.modelcontextprotocol/clientInfo":         isObject,
	"io.modelcontextprotocol/clientCapabilities": isObject,
	"io.modelcontextprotocol/logLevel":           isText,
	"io.modelcontextprotocol/subscriptionId":     isID,
	"io.modelcontextprotocol/related-task":       isObject,
}

func isText(v jsontext.Value) bool   { return v.Kind() == '"' }
func isObject(v jsontext.Value) bool { return v.Kind() == '{' }

// textOf returns a function that reports whether a value is a text of the pattern.
func textOf(pattern string) func(jsontext.Value) bool {
	whole := regexp.MustCompile(`^"(` + pattern + `)"$`)
	return func(v jsontext.Value) bool { return whole.Match(v) }
}

// isOfMessage reports whether the protocol defines a member of _meta.
func isOfMessage(name string, value jsontext.Value) bool {
	form := protocolMeta[name]
	return form != nil && form(value)
}

// SplitMeta divides the _meta of params into the members of the message, which the
// protocol defines or passing names, and the others, which belong to the call. Either
// is nil if it has no members.
func SplitMeta(params jsontext.Value, passing []string) (message, call jsontext.Value, err error) {
	var read struct {
		Meta jsonobject.Object `json:"_meta"`
	}
	if params == nil {
		return nil, nil, nil
	}
	if err := json.Unmarshal(params, &read); err != nil {
		return nil, nil, err
	}
	ofMessage, ofCall := jsonobject.Object{}, jsonobject.Object{}
	for name, value := range read.Meta {
		if isOfMessage(name, value) || slices.Contains(passing, name) {
			ofMessage[name] = value
		} else {
			ofCall[name] = value
		}
	}
	if message, err = ofMessage.EncodeMembers(); err != nil {
		return nil, nil, err
	}
	call, err = ofCall.EncodeMembers()
	return message, call, err
}

// MergeMeta returns the members of both objects, which have no member in common.
func MergeMeta(message, call jsontext.Value) (jsontext.Value, error) {
	all, err := jsonobject.Parse(message)
	if err != nil {
		return nil, err
	}
	others, err := jsonobject.Parse(call)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, others)
	return all.EncodeMembers()
}

// decoder returns a decoder of a value that was read before. It need not look for
// duplicate names again.
func decoder(v jsontext.Value) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true))
}

// Elements yields the elements of an array.
func Elements(v jsontext.Value) iter.Seq2[int, jsontext.Value] {
	return func(yield func(int, jsontext.Value) bool) {
		if v.Kind() != '[' {
			return
		}
		dec := decoder(v)
		_, _ = dec.ReadToken()
		for i := 0; dec.PeekKind() != ']'; i++ {
			value, err := dec.ReadValue()
			if err != nil || !yield(i, value) {
				return
			}
		}
	}
}

// Members yields the names and values of an object.
func Members(v jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		if v.Kind() != '{' {
			return
		}
		dec := decoder(v)
		_, _ = dec.ReadToken()
		for dec.PeekKind() == '"' {
			name, err := dec.ReadToken()
			if err != nil {
				return
			}
			text := name.String()
			value, err := dec.ReadValue()
			if err != nil || !yield(text, value) {
				return
			}
		}
	}
}
