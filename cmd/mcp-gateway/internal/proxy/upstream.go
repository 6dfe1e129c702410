package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

var (
	errWrongID       = errors.New("the server sent a response to another request")
	errResponse      = errors.New("the answer of the server is not MCP")
	errIncomplete    = errors.New("the stream ended before the response")
	errRequestDenied = errors.New("the gateway does not allow this request of the server")
	errServerRequest = errors.New("the server sent a request, which this version of the protocol does not have")
)

// send sends a message to the server, with headers that are made from it.
func (h *Handler) send(ctx context.Context, c *call, m *wire.Message) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(m.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", endpoint.TypeJSON)
	h.prepare(r, c)
	if c.Stateless && m.IsRequest() {
		r.Header.Set(endpoint.HeaderMethod, m.Method)
		if target, named := c.Params.Target(m.Method); named {
			r.Header.Set(endpoint.HeaderName, wire.HeaderText(target))
		}
		if err := c.mirror(r.Header, m); err != nil {
			return nil, err
		}
	}
	return h.do(c, r)
}

// mirror sets the headers that have arguments: those of the definition of the
// tool from the arguments, and others as they came, which mean nothing to who
// does not know them (SEP-2243).
func (c *call) mirror(header http.Header, m *wire.Message) error {
	if m.Method != wire.MethodToolsCall {
		return nil
	}
	for name, values := range c.request.Header {
		if strings.HasPrefix(name, endpoint.PrefixParam) {
			header[name] = values
		}
	}
	if c.Tool == nil {
		return nil
	}
	mirrors := c.mirrors
	if mirrors == nil || c.Tool.Coerced != nil {
		var err error
		if mirrors, err = wire.Mirrors(c.Tool.Definition, c.Params.Arguments); err != nil {
			return err
		}
	}
	for _, mirror := range mirrors {
		header.Del(endpoint.PrefixParam + mirror.Name)
		if mirror.Present {
			header.Set(endpoint.PrefixParam+mirror.Name, wire.HeaderText(mirror.Text))
		}
	}
	return nil
}

// prepare sets the headers that every request to the server has.
func (h *Handler) prepare(r *http.Request, c *call) {
	var takes []string
	for _, kind := range []string{endpoint.TypeJSON, endpoint.TypeEvents} {
		if endpoint.Accepts(c.request, kind) {
			takes = append(takes, kind)
		}
	}
	r.Header.Set("Accept", strings.Join(takes, ", "))
	r.Header.Set("User-Agent", "mcp-gateway")
	switch {
	case c.Params != nil && c.Params.Meta.ProtocolVersion != "":
		r.Header.Set(endpoint.HeaderVersion, c.Params.Meta.ProtocolVersion)
	case c.request.Header.Get(endpoint.HeaderVersion) != "":
		r.Header.Set(endpoint.HeaderVersion, c.request.Header.Get(endpoint.HeaderVersion))
	}
	if c.session != nil {
		r.Header.Set(endpoint.HeaderSession, c.session.ID)
	}
	if c.lastEvent != "" && r.Method == http.MethodGet {
		r.Header.Set(endpoint.HeaderLast, c.lastEvent)
	}
	if c.TraceParent != "" {
		r.Header.Set("Traceparent", c.TraceParent)
	}
	for name, value := range h.cfg.Header {
		r.Header.Set(name, value)
	}
	for name, value := range h.cfg.Secrets {
		r.Header.Set(name, value())
	}
}

// forward sends a message on and gives the client what comes back.
func (h *Handler) forward(c *call, v *enforce.Disposition) {
	defer h.track(c, v)()
	stop := c.reply.KeepAlive(c.request.Context())
	response, err := h.send(c.request.Context(), c, v.Forward)
	stop()
	if err != nil {
		h.unavailable(c, v, err)
		return
	}
	defer response.Body.Close()
	if err := h.passSession(c, response); err != nil {
		h.unavailable(c, v, err)
		return
	}
	switch {
	case isAboutGateway(response.StatusCode):
		h.unavailable(c, v, fmt.Errorf("the server answered %d to the gateway", response.StatusCode))
	case !v.Forward.IsRequest() && response.StatusCode/100 == 2: // accepted: what body it has means nothing
		v.Finish(c.request.Context(), nil)
		c.reply.W.WriteHeader(response.StatusCode)
	case contentType(response) == endpoint.TypeEvents && response.StatusCode == http.StatusOK:
		h.stream(c, v, response.Body)
	case contentType(response) == endpoint.TypeJSON:
		h.answer(c, v, response)
	case response.StatusCode/100 != 2:
		h.statusError(c, v, response, readReason(response).Message)
	default:
		h.unavailable(c, v, errResponse)
	}
}

// track notes a call with obligations on results until its response has come, and
// returns what ends the exchange with the client.
func (h *Handler) track(c *call, v *enforce.Disposition) (done func()) {
	if c.Call.Results.IsZero() || !v.Forward.IsRequest() {
		return func() {}
	}
	v.Finish = h.underWay.begin(c.conversation(), c.Call, v.Finish)
	return func() {
		if c.request.Context().Err() != nil {
			h.cfg.Gate.Leave(c.request.Context(), c.Call)
		}
	}
}

// conversation returns what tells the calls apart in whose course a message of the
// server may come: those of a caller in a session, or one call.
func (c *call) conversation() string {
	if c.session == nil {
		return c.RequestID
	}
	return strings.Join([]string{strconv.Quote(c.Caller.Tenant), strconv.Quote(c.Caller.Subject.Type), strconv.Quote(c.Caller.Subject.ID), c.session.ID}, " ")
}

// passSession gives the client the session that the server has begun, sealed.
func (h *Handler) passSession(c *call, response *http.Response) error {
	id := response.Header.Get(endpoint.HeaderSession)
	if id == "" || c.Stateless {
		return nil
	}
	if c.session != nil && c.session.ID == id {
		c.reply.W.Header().Set(endpoint.HeaderSession, c.request.Header.Get(endpoint.HeaderSession))
		return nil
	}
	sealed, err := h.sealSession(id, c)
	if err != nil {
		return err
	}
	c.reply.W.Header().Set(endpoint.HeaderSession, sealed)
	return nil
}

// An EndedError means that the server was ended during a request, which it may have
// carried out. Clients get the reason.
type EndedError struct{ Reason string }

func (e *EndedError) Error() string { return e.Reason }

// unavailable tells the client that the server did not answer, or that it did and
// the answer is withheld.
func (h *Handler) unavailable(c *call, v *enforce.Disposition, err error) {
	var refused *enforce.Refusal
	if errors.As(err, &refused) {
		h.refuse(c, v, refused)
		return
	}
	h.cfg.Log.WarnContext(c.request.Context(), "the server did not answer", "server", h.cfg.Server, "request_id", c.RequestID, "error", err)
	if ended, answer := h.withheld(v.Forward.ID, err); ended != nil && v.Forward.IsRequest() {
		v.Finish(c.request.Context(), ended)
		_ = c.reply.Message(http.StatusOK, answer) // many clients drop the error of any other status
		return
	}
	v.Finish(c.request.Context(), nil)
	if !v.Forward.IsRequest() {
		c.reply.W.WriteHeader(http.StatusBadGateway)
		return
	}
	status, message := http.StatusBadGateway, "the server did not answer"
	if ended := new(EndedError); errors.As(err, &ended) {
		status, message = http.StatusOK, ended.Reason // as above
	}
	_ = c.reply.Message(status, wire.Refuse(v.Forward.ID, wire.CodeInternal, message, enforce.Data{Reason: enforce.ReasonUnavailable}))
}

// answer passes on a body that is one message.
func (h *Handler) answer(c *call, v *enforce.Disposition, response *http.Response) {
	body, err := io.ReadAll(io.LimitReader(response.Body, h.cfg.MaxReply+1))
	if err == nil && int64(len(body)) > h.cfg.MaxReply {
		err = &withheldError{endpoint.ErrEventSize, body}
	}
	if err != nil {
		h.unavailable(c, v, err)
		return
	}
	m, err := wire.ParseReply(body)
	if errors.Is(err, wire.ErrDepth) {
		err = &withheldError{err, body}
	}
	failed := response.StatusCode/100 != 2
	switch {
	case err != nil:
	case failed && m.Error != nil:
		m.ID = requestID(v.Forward) // of this exchange, whatever the server could read of it
	default:
		err = answers(m, v.Forward)
	}
	switch {
	case err != nil && failed:
		h.statusError(c, v, response, "")
		return
	case err != nil:
		h.unavailable(c, v, err)
		return
	}
	if m = v.Finish(c.request.Context(), m); m != nil {
		_ = c.reply.Message(response.StatusCode, m)
	}
}

// requestID returns the id that an error about a message has: null, unless the
// message is a request.
func requestID(m *wire.Message) jsontext.Value {
	if m.IsRequest() {
		return m.ID
	}
	return jsontext.Value("null")
}

// answers reports a message that is no response to the request. An error may
// lack the id, where the server could not read it.
func answers(m, request *wire.Message) error {
	if !m.IsResponse() {
		return errResponse
	}
	if m.Error != nil && m.ID == nil {
		m.ID = request.ID
	}
	if !bytes.Equal(m.ID, request.ID) {
		return errWrongID
	}
	return nil
}

// stream passes on events up to the response to the request. The client may
// resume a stream whose events have ids, after it or the server has closed it.
func (h *Handler) stream(c *call, v *enforce.Disposition, body io.Reader) {
	defer c.reply.Collect()()
	c.reply.Start()
	kept := h.keepResumable(c, v)
	settled, err := h.passStream(c, v, body, kept)
	for try := 0; c.sent != nil && !settled && c.lastEvent != "" && errors.Is(err, endpoint.ErrBroken) && try < maxReconnects; try++ {
		response, failed := h.reconnect(c)
		if failed != nil {
			err = failed
			continue
		}
		settled, err = h.passStream(c, v, response.Body, kept)
		response.Body.Close()
	}
	gone := c.request.Context().Err() != nil
	switch {
	case settled:
	case kept && c.lastEvent != "" && (gone || err == nil):
		h.awaitResume(c.sent)
	case kept && h.broken.take(c.RequestID, v.Forward.ID) == nil: // the client has the response from another stream
	case gone, c.sent != nil && c.lastEvent != "" && err == nil:
		v.Finish(context.WithoutCancel(c.request.Context()), nil)
	default:
		h.unavailable(c, v, cmp.Or(err, errIncomplete))
	}
}

// passStream passes on events of the stream of a call until it ends, and reports
// whether the response was among them.
func (h *Handler) passStream(c *call, v *enforce.Disposition, body io.Reader, kept bool) (settled bool, err error) {
	err = h.events(c, body, func(m *wire.Message) (*wire.Message, error) {
		switch {
		case m.IsRequest() && c.Stateless:
			return nil, errServerRequest
		case !m.IsResponse():
			return h.onServerMessage(c, m), nil
		case settled:
			return nil, errResponse
		}
		if err := answers(m, v.Forward); err != nil {
			return nil, err
		}
		settled = true
		if kept {
			return h.settleSent(c, m)
		}
		return v.Finish(c.request.Context(), m), nil
	})
	return settled, err
}

// events passes on the events of a stream, each message as take returns it, if
// it does. An event without a message is passed on without data: its id counts.
func (h *Handler) events(c *call, body io.Reader, take func(*wire.Message) (*wire.Message, error)) error {
	stream := endpoint.NewEventReader(body, int(h.cfg.MaxReply))
	for {
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, endpoint.ErrEventSize) {
			return &withheldError{err, e.Data}
		}
		if err != nil {
			return err
		}
		send := c.reply.Event
		if e.HasNoMessage() {
			e.Data = []byte{}
		}
		if len(e.Data) > 0 {
			m, err := wire.ParseReply(e.Data)
			if errors.Is(err, wire.ErrDepth) {
				return &withheldError{err, e.Data}
			}
			if err != nil {
				return err
			}
			if m, err = take(m); err != nil {
				return err
			}
			if m == nil {
				continue
			}
			e.Data = m.Encode()
			if m.IsResponse() {
				send = c.reply.Last
			}
		}
		if err := h.sealEvent(c, e); err != nil {
			return err
		}
		if err := send(e); err != nil {
			return err
		}
	}
}

// onServerMessage returns what the client of a call gets of a request or
// notification that the server sent on the call's stream, or nil.
func (h *Handler) onServerMessage(c *call, m *wire.Message) *wire.Message {
	switch {
	case m.IsRequest() && h.cfg.FromServer != nil && !h.cfg.FromServer.AllowsRequest(c.request.Context(), c.course(), m):
		h.deny(c, m)
		return nil
	case !m.IsRequest() && h.cfg.FromServer != nil && !h.cfg.FromServer.AllowsNotification(c.Call, m):
		return nil
	}
	out := h.cfg.Gate.Interim(c.request.Context(), m, h.courses(c)...)
	if out == nil && m.IsRequest() {
		h.deny(c, m)
	}
	return out
}

// courses returns the calls with obligations on results in whose course a message of the
// server may come.
func (h *Handler) courses(c *call) []*enforce.Call {
	all := h.underWay.withObligations(c.conversation())
	if c.Message == nil && c.sent != nil && !slices.ContainsFunc(all, func(of *enforce.Call) bool { return of.RequestID == c.sent.Request }) {
		all = append(all, c.course())
	}
	return all
}

// course returns the client's call in whose course the server sends a message. On a
// resumed stream, it is the call whose response the stream carries.
func (c *call) course() *enforce.Call {
	if c.Message != nil || c.sent == nil {
		return c.Call
	}
	of := *c.Call
	of.Message, of.Params = &wire.Message{ID: c.sent.ID, Method: c.sent.Method}, &wire.Params{Name: c.sent.Object}
	of.Results = c.sent.Results
	return &of
}

// deny tells the server that it may not ask the client of a call what it asks.
func (h *Handler) deny(c *call, m *wire.Message) {
	h.cfg.Log.WarnContext(c.request.Context(), errRequestDenied.Error(), "server", h.cfg.Server, "method", m.Method)
	response, err := h.send(c.request.Context(), c, wire.Refuse(m.ID, wire.CodeMethod, errRequestDenied.Error(), nil))
	if err != nil {
		h.cfg.Log.WarnContext(c.request.Context(), "the server did not answer", "server", h.cfg.Server, "error", err)
		return
	}
	response.Body.Close()
}

// listen passes on the stream of a session, or ends the session.
func (h *Handler) listen(c *call) {
	r, err := http.NewRequestWithContext(c.request.Context(), c.request.Method, h.cfg.URL, nil)
	if err != nil {
		http.Error(c.reply.W, "the server cannot be asked", http.StatusBadGateway)
		return
	}
	h.prepare(r, c)
	response, err := h.do(c, r)
	if err != nil {
		h.cfg.Log.WarnContext(r.Context(), "the server did not answer", "server", h.cfg.Server, "error", err)
		if r.Method == http.MethodGet {
			panic(http.ErrAbortHandler) // a client tries a broken connection again, but the Go SDK ends the session after any status
		}
		http.Error(c.reply.W, "the server did not answer", http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || contentType(response) != endpoint.TypeEvents {
		status := response.StatusCode
		if isAboutGateway(status) {
			status = http.StatusBadGateway
		}
		c.reply.W.WriteHeader(status)
		return
	}
	c.reply.Start()
	settled := false
	err = h.events(c, response.Body, func(m *wire.Message) (*wire.Message, error) {
		switch {
		case !m.IsResponse():
			return h.onServerMessage(c, m), nil
		case settled:
			return nil, errResponse
		}
		settled = true
		return h.settleSent(c, m)
	})
	if c.sent != nil && !settled {
		if ended, answer := h.withheld(c.sent.ID, err); ended != nil {
			_, _ = h.settleSent(c, ended)
			_ = c.reply.Message(http.StatusOK, answer)
		}
	}
	if err != nil && c.request.Context().Err() == nil {
		h.cfg.Log.WarnContext(c.request.Context(), "the stream of a session ends", "server", h.cfg.Server, "error", err)
	}
}

// Execute carries out a request for nobody who waits, and returns the response.
// What the server says before is dropped. The tool is that which the request
// calls, or nil.
func (h *Handler) Execute(ctx context.Context, m *wire.Message, caller *enforce.Caller, tool *enforce.Tool) (*wire.Message, error) {
	response, err := h.execute(ctx, m, &call{Call: &enforce.Call{Caller: caller, Tool: tool}, request: new(http.Request)})
	var refused *enforce.Refusal
	if errors.As(err, &refused) { // the server did answer
		return wire.Refuse(m.ID, refused.Code, refused.Message, refused.Data), nil
	}
	return response, err
}

// execute carries out a request in the session and the version of a call.
func (h *Handler) execute(ctx context.Context, m *wire.Message, of *call) (*wire.Message, error) {
	params, err := m.Read()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "*/*")
	c := &call{Call: &enforce.Call{Server: h.cfg.Server, Caller: of.Caller, Message: m, Params: params, Stateless: params.Meta.ProtocolVersion != "", Tool: of.Tool}, request: request, session: of.session}
	if version := of.request.Header.Get(endpoint.HeaderVersion); version != "" {
		request.Header.Set(endpoint.HeaderVersion, version)
	}
	response, err := h.send(ctx, c, m)
	if err != nil {
		of.asks = c.asks
		return nil, err
	}
	defer response.Body.Close()
	if refusal := h.refusal(response); refusal != nil {
		return nil, refusal
	}
	var answer *wire.Message
	switch contentType(response) {
	case endpoint.TypeEvents:
		answer, err = h.lastOf(response.Body)
	case endpoint.TypeJSON:
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, h.cfg.MaxReply)); err == nil {
			answer, err = wire.ParseReply(body)
		}
	default:
		err = errResponse
	}
	if err != nil {
		return nil, err
	}
	return answer, answers(answer, m)
}

// lastOf returns the response at the end of a stream.
func (h *Handler) lastOf(body io.Reader) (*wire.Message, error) {
	for stream := endpoint.NewEventReader(body, int(h.cfg.MaxReply)); ; {
		e, err := stream.Next()
		if err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		if len(e.Data) == 0 {
			continue
		}
		m, err := wire.ParseReply(e.Data)
		if err != nil {
			return nil, err
		}
		if m.IsResponse() {
			return m, nil
		}
	}
}
