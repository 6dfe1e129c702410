package proxy

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// An eventID is an id of an event, as the client has it, sealed. With it the
// client resumes a stream (MCP 2025-11-25, "Resumability and Redelivery"), at this
// process or another one: it says whose the stream is, and the response to which
// call it may carry.
type eventID struct {
	ID      string    `json:"event"` // the server's
	Owner   owner     `json:",inline"`
	Session string    `json:"session,omitzero"` // the server's id
	Call    *sentCall `json:"call,omitempty"`   // nil for the stream of a session
}

// A sentCall is a forwarded call whose response is on a stream that can be
// resumed.
type sentCall struct {
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  jsontext.Value `json:"params,omitempty"` // of a list, whose items depend on them
	Request string         `json:"request"`          // [enforce.Call.RequestID]
	Object  string         `json:"object,omitzero"`  // [wire.Params.Object], unless it is long
	Trail   string         `json:"trail,omitzero"`   // [enforce.Disposition.TrailID]
	Results results.Rules  `json:"results,omitzero"` // [enforce.Call.Results]
}

const sealEvent = "event"

// Bounds, in bytes: of what a client keeps in the id of an event, and of the params
// of a call that is kept for its client to resume the stream.
const (
	maxEventID    = 1 << 10
	maxListParams = 1 << 10
	maxRules      = 2 << 10
	maxObject     = 256
	maxKeptParams = 64 << 10
)

// resumeTimeout is how long the gateway waits for a client to resume a stream.
const resumeTimeout = 10 * time.Minute

// newSentCall returns what the ids of events say of a call.
func newSentCall(c *call, v *enforce.Disposition) *sentCall {
	sent := &sentCall{ID: v.Forward.ID, Method: v.Forward.Method, Request: c.RequestID, Trail: v.TrailID}
	if wire.IsList(v.Forward.Method) && len(v.Forward.Params) <= maxListParams {
		sent.Params = v.Forward.Params
	}
	if object := c.Params.Object(); len(object) <= maxObject {
		sent.Object = object
	}
	if c.Results.Size() <= maxRules {
		sent.Results = c.Results
	} else { // the process that keeps the call knows them
		sent.Results = results.Rules{Lost: true}
	}
	return sent
}

// sealEvent seals the id of an event. An event without an id, or with one that is
// too long, cannot be resumed from.
func (h *Handler) sealEvent(c *call, e *endpoint.Event) error {
	if !e.HasID || e.ID == "" {
		return nil
	}
	if len(e.ID) > maxEventID {
		e.ID, e.HasID = "", false
		return nil
	}
	c.lastEvent = e.ID
	sealed, err := h.cfg.Seal.Seal(sealEvent, eventID{ID: e.ID, Owner: ownerOf(h.cfg.Server, c.Caller), Session: c.sessionID(), Call: c.sent})
	e.ID = sealed
	return err
}

// openEvent makes a call resume the stream that its request names, if it names
// one. An id that does not open, or is of another caller, server or session, is
// refused.
func (h *Handler) openEvent(c *call) *endpoint.Failure {
	sealed := c.request.Header.Get(endpoint.HeaderLast)
	if sealed == "" {
		return nil
	}
	var id eventID
	err := h.cfg.Seal.Open(sealEvent, sealed, &id)
	if err != nil || id.Owner != ownerOf(h.cfg.Server, c.Caller) || id.Session != c.sessionID() {
		return &endpoint.Failure{Status: http.StatusBadRequest, Fault: &wire.Fault{Code: wire.CodeRequest, Reason: "there is no such event"}}
	}
	c.lastEvent, c.sent = id.ID, id.Call
	return nil
}

// sessionID returns the server's id of the session of a call, or "".
func (c *call) sessionID() string {
	return c.session.id()
}

// settleSent returns what the client gets of a response to the call of a stream,
// which may be a resumed one. The stream carries no other response.
func (h *Handler) settleSent(c *call, m *wire.Message) (*wire.Message, error) {
	if c.sent == nil || string(c.sent.ID) != string(m.ID) {
		return nil, errWrongID
	}
	if settle := h.broken.take(c.sent.Request, c.sent.ID); settle != nil {
		return settle(c.request.Context(), m), nil
	}
	of := &enforce.Call{Server: h.cfg.Server, Caller: c.Caller, RequestID: uuid.NewString(), Upstream: c.Upstream, Session: c.sessionID(), Results: c.sent.Results}
	of.Message = &wire.Message{ID: c.sent.ID, Method: c.sent.Method, Params: c.sent.Params}
	var err error
	if of.Params, err = of.Message.Read(); err != nil {
		return nil, err
	}
	return h.cfg.Gate.Resume(c.request.Context(), of, c.sent.Trail, m), nil
}

// keepResumable keeps a call until its response comes, on whichever stream. It
// returns false for a call that is too large or one too many: its response may
// still come on another stream, and its outcome is unknown then.
func (h *Handler) keepResumable(c *call, v *enforce.Disposition) bool {
	if c.Stateless {
		return false
	}
	c.sent = newSentCall(c, v)
	return len(v.Forward.Params) <= maxKeptParams && h.broken.keep(c.RequestID, v.Forward.ID, v.Finish)
}

// awaitResume gives the client of a kept call time to resume its stream. If it
// does not, the outcome of the call is unknown.
func (h *Handler) awaitResume(sent *sentCall) {
	h.broken.expire(sent.Request, sent.ID, h.cfg.Resume)
}

// Attempts to resume a stream of the server that broke off, and the pause before
// each.
const (
	maxReconnects  = 2
	reconnectPause = time.Second
)

// reconnect resumes a stream of the server that broke off, as a client of the
// server would.
func (h *Handler) reconnect(c *call) (*http.Response, error) {
	select {
	case <-time.After(reconnectPause):
	case <-c.request.Context().Done():
		return nil, c.request.Context().Err()
	}
	r, err := http.NewRequestWithContext(c.request.Context(), http.MethodGet, h.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	h.prepare(r, c)
	response, err := h.do(c, r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || contentType(response) != endpoint.TypeEvents {
		response.Body.Close()
		return nil, fmt.Errorf("the server does not resume the stream: it answered %d", response.StatusCode)
	}
	return response, nil
}
