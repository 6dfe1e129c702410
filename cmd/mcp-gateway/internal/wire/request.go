package wire

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Methods of the gateway about calls that another participant carries out.
const (
	MethodToolsRequest  = "tools/request"  // asks that somebody carries out a call
	MethodToolsRequests = "tools/requests" // lists the requests that the caller may fulfil
	MethodToolsWithdraw = "tools/withdraw"
)

// Members of the params of a tools/call that fulfils a request. No server gets them.
const (
	memberOnBehalfOf = "onBehalfOf"
	memberRequestID  = "requestId"
)

// A Fulfilment says which request a tools/call fulfils.
type Fulfilment struct {
	OnBehalfOf string `json:"onBehalfOf"` // the requester: its id, or TYPE:ID
	RequestID  string `json:"requestId"`
}

var (
	errFulfilment = errors.New("params/onBehalfOf and params/requestId must be strings, and both or neither of them must be there")
	errReason     = errors.New("params/reason must be a string of at most 4096 bytes")
	errTask       = errors.New("params/task is not defined for " + MethodToolsRequest)
)

// maxReason bounds the reason of a request, in bytes.
const maxReason = 4 << 10

// RequestedCall returns the tools/call that a tools/request asks for, and the reason.
func (m *Message) RequestedCall() (call *Message, reason string, err error) {
	call, err = m.withParams(func(params jsonobject.Object) error {
		if params["task"] != nil {
			return errTask
		}
		if text := params["reason"]; text != nil {
			if text.Kind() != '"' || json.Unmarshal(text, &reason) != nil || len(reason) > maxReason {
				return errReason
			}
		}
		params.Remove("reason")
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	call.Method = MethodToolsCall
	return call, reason, nil
}

// TakeFulfilment returns which request a tools/call fulfils, and the message without the
// members that say so. It returns nil and the message itself for every other message.
func (m *Message) TakeFulfilment() (*Fulfilment, *Message, error) {
	// A message that was read writes each name in one way.
	if m.Method != MethodToolsCall || !bytes.Contains(m.Params, []byte(`"`+memberOnBehalfOf+`"`)) && !bytes.Contains(m.Params, []byte(`"`+memberRequestID+`"`)) {
		return nil, m, nil
	}
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, nil, err
	}
	whose, which := params[memberOnBehalfOf], params[memberRequestID]
	if whose == nil && which == nil { // they are in the arguments
		return nil, m, nil
	}
	f := new(Fulfilment)
	for member, into := range map[*string]jsontext.Value{&f.OnBehalfOf: whose, &f.RequestID: which} {
		if into.Kind() != '"' || json.Unmarshal(into, member) != nil || *member == "" {
			return nil, nil, errFulfilment
		}
	}
	without, err := m.withParams(func(params jsonobject.Object) error {
		params.Remove(memberOnBehalfOf, memberRequestID)
		return nil
	})
	return f, without, err
}

// WithFulfilment returns a tools/call with other params that fulfils a request. It keeps
// the _meta of the message.
func (m *Message) WithFulfilment(name string, arguments jsontext.Value, f *Fulfilment) (*Message, error) {
	call, err := m.withParams(func(params jsonobject.Object) error {
		meta := params["_meta"]
		clear(params)
		params.Put("_meta", meta)
		params.Put("arguments", arguments)
		return errors.Join(params.Set("name", name), params.Set(memberOnBehalfOf, f.OnBehalfOf), params.Set(memberRequestID, f.RequestID))
	})
	if err != nil {
		return nil, err
	}
	call.Method = MethodToolsCall
	return call, nil
}
