package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Binding is the part of a call that an approval binds.
type Binding struct {
	Server     string
	Method     string
	Name       string         // of what the call is about ([Params.Object])
	Definition string         // digest of the tool's definition, or ""
	Arguments  jsontext.Value // an object, or nil
	Meta       jsontext.Value // the members of _meta that are of the call ([SplitMeta]), or nil
	Others     jsontext.Value // the members of params that nothing above has, or nil
}

// Bind returns what an approval of a message is bound to. Definition is the digest
// of the tool that it calls, or "". The members of _meta that passing names are not
// bound.
func Bind(server, definition string, m *Message, passing []string) (Binding, error) {
	params, err := m.Read()
	if err != nil {
		return Binding{}, err
	}
	b := Binding{Server: server, Method: m.Method, Name: params.Object(), Definition: definition, Arguments: params.Arguments}
	if _, b.Meta, err = SplitMeta(m.Params, passing); err != nil {
		return Binding{}, fmt.Errorf("_meta: %w", err)
	}
	b.Others, err = others(m)
	return b, err
}

// others returns the members of params that a [Binding] has in no other field. An
// approval does not bind how long the server keeps a task.
func others(m *Message) (jsontext.Value, error) {
	all, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	all.Remove(PassingParams(m.Method)...)
	all.Remove("_meta", "name", "uri", "taskId", "arguments", "task")
	return all.EncodeMembers()
}

// PassingParams are the members of params that belong to one message and not to the
// call, in addition to a part of _meta ([SplitMeta]).
func PassingParams(method string) []string {
	if method == "tasks/update" { // what a person said to the server is what the call is about
		return nil
	}
	return []string{"requestState", "inputResponses"}
}

// Digest returns the digest of the call: "sha256:" and hex. Calls have the same digest
// exactly if their parts are equal and their arguments and meta have the same values,
// in any notation. Values that are not [Exact] have no digest.
func (b Binding) Digest() (string, error) {
	arguments, err := canonical(b.Arguments)
	if err != nil {
		return "", fmt.Errorf("arguments: %w", err)
	}
	parts := []string{"mcp-gateway call 1", b.Server, b.Method, b.Name, b.Definition, arguments}
	if b.Meta != nil || b.Others != nil {
		meta, err := canonical(b.Meta)
		if err != nil {
			return "", fmt.Errorf("_meta: %w", err)
		}
		parts[0], parts = "mcp-gateway call 2", append(parts, meta)
	}
	if b.Others != nil {
		others, err := canonical(b.Others)
		if err != nil {
			return "", fmt.Errorf("params: %w", err)
		}
		parts[0], parts = "mcp-gateway call 3", append(parts, others)
	}
	hash := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

// canonical writes an object as RFC 8785 does; nil is an empty one.
func canonical(object jsontext.Value) (string, error) {
	if err := Exact(object); err != nil {
		return "", err
	}
	text := object.Clone()
	if len(text) == 0 {
		text = jsontext.Value("{}")
	}
	if err := text.Canonicalize(); err != nil {
		return "", err
	}
	return string(text), nil
}

// A NumberError is a number that some parsers read as another number.
type NumberError struct{ Number string }

func (e *NumberError) Error() string {
	return fmt.Sprintf("the number %s is not the same for every parser: send it as a string", e.Number)
}

// Exact reports a number in v that is not exactly what RFC 8785 would write for
// it ([number.Exact]). 9007199254740993 and 9007199254740992 would have the same
// digest.
func Exact(v jsontext.Value) error {
	dec := decoder(v)
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return nil
		}
		if token.Kind() == '0' && !number.Exact(token.String()) {
			return &NumberError{token.String()}
		}
	}
}
