package wire

import (
	"bytes"
	"errors"
	"slices"
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
	MetaApproval   = ownPrefix + "approval"
)

var (
	errCapability      = errors.New("params/capability and " + MetaCapability + " in _meta must be the id or the token of a capability")
	errCapabilityProof = errors.New("the proof of a capability must be an object of timestamp, nonce and signature")
	errCapabilityTwo   = errors.New("params and " + MetaCapability + " in _meta present different capabilities or proofs")
	errCapabilityCall  = errors.New("only tools/call presents a capability")
	errProofAlone      = errors.New("params/proof needs params/capability")
)

// maxCapability bounds the id or the token of a capability, in bytes.
const maxCapability = 8 << 10

// A Presented capability is what a call presents. The zero one is none.
type Presented struct {
	Capability string         // id or token
	Proof      jsontext.Value // in canonical form; nil for none
}

// TakeCapability returns the capability that a message presents, and the message
// without it and without everything else in _meta that is for the gateway. It returns
// the message itself if there is nothing to take.
func (m *Message) TakeCapability() (p Presented, without *Message, err error) {
	// A message that was read writes each name in one way.
	if !bytes.Contains(m.Params, []byte(`"`+paramCapability+`"`)) && !bytes.Contains(m.Params, []byte(ownPrefix)) {
		return p, m, nil
	}
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return p, nil, err
	}
	var meta jsonobject.Object
	if params["_meta"].Kind() == '{' {
		if meta, err = jsonobject.Parse(params["_meta"]); err != nil {
			return p, nil, err
		}
	}
	own := removeOwn(meta)
	var inParams jsonobject.Object
	if m.Method == MethodToolsCall { // elsewhere the members are not defined
		inParams = jsonobject.Object{paramCapability: params[paramCapability], paramProof: params[paramProof]}
	}
	if own == nil && inParams[paramCapability] == nil {
		return p, m, nil
	}
	if m.Method != MethodToolsCall && own[MetaCapability] != nil {
		return p, nil, errCapabilityCall
	}
	if p, err = onePresented(inParams, own[MetaCapability]); err != nil {
		return p, nil, err
	}
	without, err = m.withParams(func(params jsonobject.Object) error {
		if inParams != nil {
			params.Remove(paramCapability, paramProof)
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
	return p, without, err
}

// WithCapability returns a message that presents a capability in its _meta and nowhere
// else, as [Message.TakeCapability] takes it. The proof is in canonical form.
func (m *Message) WithCapability(p Presented) (*Message, error) {
	shown := jsonobject.Object{}
	if err := shown.Set(paramCapability, p.Capability); err != nil {
		return nil, err
	}
	shown.Put(paramProof, p.Proof)
	return m.withParams(func(params jsonobject.Object) error {
		meta := jsonobject.Object{}
		if params["_meta"].Kind() == '{' {
			var err error
			if meta, err = jsonobject.Parse(params["_meta"]); err != nil {
				return err
			}
		}
		if err := meta.Set(MetaCapability, shown); err != nil {
			return err
		}
		return params.Set("_meta", meta)
	})
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
	if welcome != nil && members["cacheScope"] != nil { // others hear something else
		members.Put("cacheScope", jsontext.Value(`"private"`))
	}
	return members.Encode()
}

// Members of the params of a call, and of the object in _meta.
const (
	paramCapability = "capability"
	paramProof      = "proof"
)

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

// onePresented returns what params and _meta present, of which either may be nothing.
// In _meta that is an id or a token alone, or an object of capability and proof.
func onePresented(params jsonobject.Object, inMeta jsontext.Value) (Presented, error) {
	first, err := presented(params)
	if err != nil || inMeta == nil {
		return first, err
	}
	members := jsonobject.Object{paramCapability: inMeta}
	if inMeta.Kind() == '{' {
		if members, err = jsonobject.Parse(inMeta); err != nil || !hasOnly(members, paramCapability, paramProof) {
			return first, errCapability
		}
	}
	second, err := presented(members)
	if err != nil || first.Capability == "" {
		return second, err
	}
	if second.Proof == nil {
		second.Proof = first.Proof
	}
	if first.Proof == nil {
		first.Proof = second.Proof
	}
	if first.Capability != second.Capability || !bytes.Equal(first.Proof, second.Proof) {
		return first, errCapabilityTwo
	}
	return first, nil
}

// hasOnly reports whether an object has no other members than these.
func hasOnly(object jsonobject.Object, names ...string) bool {
	for name := range object {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// presented reads a capability and its proof from the members of an object.
func presented(members jsonobject.Object) (p Presented, err error) {
	capability, proof := members[paramCapability], members[paramProof]
	switch {
	case capability == nil && proof == nil:
		return p, nil
	case capability == nil:
		return p, errProofAlone
	case capability.Kind() != '"' || json.Unmarshal(capability, &p.Capability) != nil || p.Capability == "" || len(p.Capability) > maxCapability:
		return p, errCapability
	case proof == nil:
		return p, nil
	case proof.Kind() != '{' || len(proof) > maxCapability:
		return p, errCapabilityProof
	}
	if p.Proof, err = jsonobject.Canonical(proof); err != nil {
		return p, errCapabilityProof
	}
	return p, nil
}
