package wire

import (
	"bytes"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// WithResultMeta returns a response with a member of _meta of its result, in place of
// one that is there.
func (m *Message) WithResultMeta(name string, value any) (*Message, error) {
	result, meta, err := m.resultMeta()
	if err != nil {
		return nil, err
	}
	if err := meta.Set(name, value); err != nil {
		return nil, err
	}
	return m.withResultMeta(result, meta)
}

// WithoutOwnMeta returns a response without the members of _meta of its result that
// only the gateway writes: the response itself if there are none.
func (m *Message) WithoutOwnMeta() (*Message, error) {
	if !bytes.Contains(m.Result, []byte(ownPrefix)) { // a message that was read writes each name in one way
		return m, nil
	}
	result, meta, err := m.resultMeta()
	if err != nil {
		return nil, err
	}
	if removeOwn(meta) == nil {
		return m, nil
	}
	return m.withResultMeta(result, meta)
}

// resultMeta returns the members of a result and of its _meta.
func (m *Message) resultMeta() (result, meta jsonobject.Object, err error) {
	if result, err = jsonobject.Parse(m.Result); err != nil {
		return nil, nil, err
	}
	if meta = (jsonobject.Object{}); result["_meta"].Kind() == '{' {
		meta, err = jsonobject.Parse(result["_meta"])
	}
	return result, meta, err
}

func (m *Message) withResultMeta(result, meta jsonobject.Object) (*Message, error) {
	encoded, err := meta.EncodeMembers()
	if err != nil {
		return nil, err
	}
	result.Put("_meta", encoded)
	with := *m
	with.Result, err = result.Encode()
	return &with, err
}
