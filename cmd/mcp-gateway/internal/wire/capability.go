package wire

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Methods of the gateway about capabilities.
const (
	MethodCapabilitiesRequest = "capabilities/request"
	MethodCapabilitiesList    = "capabilities/list"
	MethodCapabilitiesRevoke  = "capabilities/revoke"
)

// ExtensionAccess is the extension of the protocol that has these methods.
const ExtensionAccess = ownPrefix + "access"

// Members of _meta below ownPrefix are for the gateway.
const (
	ownPrefix      = "io.github.policy-service/"
	MetaCapability = ownPrefix + "capability"
	MetaWelcome    = ownPrefix + "welcome" // of the result of initialize and server/discover
)

var (
	errCapability     = errors.New("params/capability and " + MetaCapability + " in _meta must be the id of a capability")
	errCapabilityTwo  = errors.New("params/capability and " + MetaCapability + " in _meta name different capabilities")
	errCapabilityCall = errors.New("only tools/call presents a capability")
)

// maxCapability bounds the id of a capability, in bytes.
const maxCapability = 256

// TakeCapability returns the id of the capability that a message presents, and the
// message without it and without everything else in _meta that is for the gateway. It
// returns the message itself if there is nothing to take.
func (m *Message) TakeCapability() (id string, without *Message, err error) {
	// A message that was read writes each name in one way.
	if !bytes.Contains(m.Params, []byte(`"capability"`)) && !bytes.Contains(m.Params, []byte(ownPrefix)) {
		return "", m, nil
	}
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return "", nil, err
	}
	var meta jsonobject.Object
	if params["_meta"].Kind() == '{' {
		if meta, err = jsonobject.Parse(params["_meta"]); err != nil {
			return "", nil, err
		}
	}
	own := removeOwn(meta)
	inParams := params["capability"]
	if m.Method != MethodToolsCall {
		inParams = nil // it is not defined there
	}
	if own == nil && inParams == nil {
		return "", m, nil
	}
	if m.Method != MethodToolsCall && own[MetaCapability] != nil {
		return "", nil, errCapabilityCall
	}
	if id, err = oneCapability(inParams, own[MetaCapability]); err != nil {
		return "", nil, err
	}
	without, err = m.withParams(func(params jsonobject.Object) error {
		if inParams != nil {
			params.Remove("capability")
		}
		if own == nil {
			return nil
		}
		if len(meta) == 0 {
			params.Remove("_meta")
			return nil
		}
		return params.Set("_meta", meta)
	})
	return id, without, err
}

// WithWelcome returns the result by which a server introduces itself with what the
// gateway says to the caller, or nil for nothing. The server says none of it.
func WithWelcome(result, welcome jsontext.Value) (jsontext.Value, error) {
	if welcome == nil && !bytes.Contains(result, []byte(ownPrefix)) {
		return result, nil
	}
	members, err := jsonobject.Parse(result)
	if err != nil {
		return nil, err
	}
	meta, err := jsonobject.Parse(members["_meta"])
	if err != nil {
		return nil, err
	}
	removeOwn(meta)
	meta.Put(MetaWelcome, welcome)
	text, err := meta.EncodeMembers()
	if err != nil {
		return nil, err
	}
	members.Put("_meta", text)
	return members.Encode()
}

// removeOwn removes the members of _meta that are for the gateway, and returns them;
// nil if there are none.
func removeOwn(meta jsonobject.Object) (own jsonobject.Object) {
	for name, value := range meta {
		if !strings.HasPrefix(name, ownPrefix) {
			continue
		}
		if own == nil {
			own = jsonobject.Object{}
		}
		own[name] = value
		delete(meta, name)
	}
	return own
}

// oneCapability returns the id that two values have, of which either may be nil.
func oneCapability(a, b jsontext.Value) (string, error) {
	first, err := capabilityID(a)
	if err != nil || b == nil {
		return first, err
	}
	second, err := capabilityID(b)
	if err == nil && a != nil && first != second {
		err = errCapabilityTwo
	}
	return second, err
}

func capabilityID(v jsontext.Value) (id string, err error) {
	if v == nil {
		return "", nil
	}
	if v.Kind() != '"' || json.Unmarshal(v, &id) != nil || id == "" || len(id) > maxCapability {
		return "", errCapability
	}
	return id, nil
}
