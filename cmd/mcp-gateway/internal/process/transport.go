package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A transport is a server of streamable HTTP for one caller, without a network.
type transport struct {
	pool  *Pool
	owner Owner
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		return t.post(r)
	}
	s, err := t.pool.session(t.owner, r.Header.Get(endpoint.HeaderSession))
	if err != nil {
		return textReply(r, http.StatusNotFound, err.Error()), nil
	}
	if r.Method == http.MethodDelete {
		defer s.process.release()
		t.pool.endSession(s)
		return textReply(r, http.StatusOK, ""), nil
	}
	s.process.release() // a stream alone does not keep a process
	return stream(r, func(ctx context.Context, out io.Writer) error { return s.listen(ctx, out) }), nil
}

// listen writes what no call of the session carries.
func (s *session) listen(ctx context.Context, out io.Writer) error {
	for {
		var m *wire.Message
		select {
		case m = <-s.stream:
		case m = <-s.requests:
		case <-s.process.ended:
			return nil
		case <-s.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := event(out, m); err != nil {
			return err
		}
	}
}

func (t transport) post(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	m, err := wire.Parse(body)
	if err != nil {
		return nil, err
	}
	id := r.Header.Get(endpoint.HeaderSession)
	switch stateless := r.Header.Get(endpoint.HeaderVersion) >= wire.Stateless; {
	case m.Method == wire.MethodInitialize && id == "":
		return t.initialize(r, m)
	case id != "":
		s, err := t.pool.session(t.owner, id)
		if err != nil {
			return textReply(r, http.StatusNotFound, err.Error()), nil
		}
		return t.exchange(r, m, s.process, s)
	case stateless:
		of, err := t.pool.acquire(r.Context(), key{owner: t.pool.owned(t.owner)})
		if err != nil {
			return nil, err
		}
		return t.exchange(r, m, of, nil)
	}
	return textReply(r, http.StatusBadRequest, "the request is in no session"), nil
}

// exchange passes a message on, and returns what comes back. It releases the process.
func (t transport) exchange(r *http.Request, m *wire.Message, of *process, s *session) (*http.Response, error) {
	if !m.IsRequest() {
		defer of.release()
		if err := of.tell(m, s); err != nil {
			return nil, err
		}
		return textReply(r, http.StatusAccepted, ""), nil
	}
	c, err := of.send(m, s)
	if err != nil {
		of.release()
		return nil, err
	}
	if !endpoint.Accepts(r, endpoint.TypeEvents) {
		defer of.release()
		return of.alone(r, c)
	}
	return stream(r, func(ctx context.Context, out io.Writer) error {
		defer of.release()
		return of.answer(ctx, c, out)
	}), nil
}

var errEnded = errors.New("the server has ended")

// alone returns the response of a call alone, for a client that takes no stream.
func (of *process) alone(r *http.Request, c *call) (*http.Response, error) {
	for {
		select {
		case m := <-c.response:
			return reply(r, http.StatusOK, endpoint.TypeJSON, io.NopCloser(bytes.NewReader(m.Encode()))), nil
		case m := <-c.before:
			if m.IsRequest() {
				_ = of.in.Write(wire.Refuse(m.ID, wire.CodeMethod, "the client cannot be asked", nil))
			}
		case <-of.ended:
			return nil, of.endError()
		case <-r.Context().Done():
			of.leave(c)
			return nil, r.Context().Err()
		}
	}
}

// answer writes what comes before the response of a call, and the response.
func (of *process) answer(ctx context.Context, c *call, out io.Writer) error {
	for {
		select {
		case m := <-c.before:
			if err := event(out, m); err != nil {
				of.leave(c)
				return err
			}
		case m := <-c.response:
			for len(c.before) > 0 {
				if err := event(out, <-c.before); err != nil {
					return err
				}
			}
			return event(out, m)
		case <-of.ended:
			return of.endError()
		case <-ctx.Done():
			of.leave(c)
			return ctx.Err()
		}
	}
}

// leave ends the wait for a call. In the stateless era, a client that closes the
// stream cancels the call.
func (of *process) leave(c *call) {
	if c.session == nil {
		of.abandon(c)
	}
	of.left(c)
}

// initialize begins a session.
func (t transport) initialize(r *http.Request, m *wire.Message) (*http.Response, error) {
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, err
	}
	own := *m
	if t.pool.cfg.Shared {
		if own.Params, err = sharedParams(params); err != nil {
			return nil, err
		}
	}
	client := sha256.Sum256([]byte(string(params["protocolVersion"]) + "\n" + string(params["capabilities"])))
	of, err := t.pool.acquire(r.Context(), key{t.pool.owned(t.owner), client})
	if err != nil {
		return nil, err
	}
	defer of.release()
	response, err := of.initialize(r.Context(), &own)
	if err != nil {
		return nil, err
	}
	answer := reply(r, http.StatusOK, endpoint.TypeJSON, io.NopCloser(bytes.NewReader(response.Encode())))
	if response.Error == nil {
		answer.Header.Set(endpoint.HeaderSession, t.pool.addSession(t.owner, of).id)
	}
	return answer, nil
}

// sessionVersions are the versions of the protocol with sessions, oldest first.
var sessionVersions = []string{`"2024-11-05"`, `"2025-03-26"`, `"2025-06-18"`, `"2025-11-25"`}

// sharedParams returns the params of initialize for a process of all callers, which they
// change: the client has no capabilities. A version that nobody knows is negotiated as
// the latest, because each version has a process.
func sharedParams(params jsonobject.Object) (jsontext.Value, error) {
	if err := params.Set("capabilities", struct{}{}); err != nil {
		return nil, err
	}
	if !slices.Contains(sessionVersions, string(params["protocolVersion"])) {
		params.Put("protocolVersion", jsontext.Value(sessionVersions[len(sessionVersions)-1]))
	}
	return params.Encode()
}

func reply(r *http.Request, status int, kind string, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: body, ContentLength: -1, Request: r,
	}
}

func textReply(r *http.Request, status int, text string) *http.Response {
	return reply(r, status, "text/plain", io.NopCloser(strings.NewReader(text)))
}

// stream returns a response whose events write writes.
func stream(r *http.Request, write func(context.Context, io.Writer) error) *http.Response {
	ctx, cancel := context.WithCancel(r.Context())
	out, in := io.Pipe()
	go func() {
		err := write(ctx, in)
		if errors.Is(err, errEnded) {
			err = io.EOF // as a server ends a stream that ends
		}
		_ = in.CloseWithError(err)
	}()
	return reply(r, http.StatusOK, endpoint.TypeEvents, &body{out, cancel})
}

// A body ends what writes it when it is closed.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

func event(out io.Writer, m *wire.Message) error {
	e := endpoint.Event{Kind: "message", Data: m.Encode()}
	_, err := out.Write(e.Encode())
	return err
}
