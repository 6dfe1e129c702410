package union

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// An Endpoint is that of one server.
type Endpoint interface {
	// Serve answers a request whose sender is identified.
	Serve(http.ResponseWriter, *http.Request, *enforce.Caller)
}

// A Server is one of a union.
type Server struct {
	Name     string
	Endpoint Endpoint
}

// A response is what the endpoint of a server answers. Its reader must close it.
type response struct {
	session string // at the server, in which the request was sent, or ""

	status int
	header http.Header
	body   io.Reader
	close  func()
}

// A responseWriter hands a response over while it is being written.
type responseWriter struct {
	header http.Header
	begun  chan *response // of one
	once   sync.Once
	out    *io.PipeWriter
	answer *response
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.answer.status, w.answer.header = status, w.header.Clone()
		w.begun <- w.answer
	})
}

func (w *responseWriter) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(text)
}

// Flush does nothing: what is written has been read.
func (w *responseWriter) Flush() {}

// exchange sends a request to the endpoint of the server, in the name of a caller.
// The response ends with ctx.
func (s *Server) exchange(ctx context.Context, caller *enforce.Caller, method string, header http.Header, body []byte) (*response, error) {
	of, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(of, method, "/", bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header = header
	in, out := io.Pipe()
	w := &responseWriter{header: make(http.Header), begun: make(chan *response, 1), out: out}
	w.answer = &response{body: in, close: func() {
		cancel()
		_ = in.Close()
	}}
	go func() {
		defer cancel()
		out.CloseWithError(s.serve(w, r, caller))
	}()
	select {
	case answer := <-w.begun:
		return answer, nil
	case <-ctx.Done():
		w.answer.close()
		return nil, context.Cause(ctx)
	}
}

// serve has the endpoint answer, and returns a panic as an error.
func (s *Server) serve(w *responseWriter, r *http.Request, caller *enforce.Caller) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // the server has not answered
			w.WriteHeader(http.StatusBadGateway)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		w.WriteHeader(http.StatusInternalServerError) // if it has written nothing
	}()
	s.Endpoint.Serve(w, r, caller)
	w.WriteHeader(http.StatusOK)
	return nil
}

// isEvents reports whether a response is a stream of events.
func (r *response) isEvents() bool { return r.kind() == endpoint.TypeEvents }

func (r *response) kind() string {
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	return kind
}

var (
	errNoMessage = errors.New("the answer of the endpoint is not MCP")
	errEnded     = errors.New("the stream ended before the response")
)

// message reads a response that is one message.
func (r *response) message(limit int64) (*wire.Message, error) {
	if r.kind() != endpoint.TypeJSON {
		return nil, fmt.Errorf("%w: status %d", errNoMessage, r.status)
	}
	body, err := io.ReadAll(io.LimitReader(r.body, limit))
	if err != nil {
		return nil, err
	}
	return wire.ParseReply(body)
}

// events reads a stream, and gives each event to take, with its message if it has
// one. It returns nil at the end of the stream.
func (r *response) events(limit int64, take func(*endpoint.Event, *wire.Message) error) error {
	stream := endpoint.NewEventReader(r.body, int(limit))
	for {
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m *wire.Message
		if len(e.Data) > 0 && !e.HasNoMessage() {
			if m, err = wire.ParseReply(e.Data); err != nil {
				return err
			}
		}
		if err := take(e, m); err != nil {
			return err
		}
	}
}

// answer reads the response to a request, and drops what comes before it.
func (r *response) answer(limit int64) (found *wire.Message, err error) {
	defer r.close()
	if !r.isEvents() {
		return r.message(limit)
	}
	err = r.events(limit, func(_ *endpoint.Event, m *wire.Message) error {
		if m != nil && m.IsResponse() {
			found = m
			return io.EOF
		}
		return nil
	})
	if found != nil {
		return found, nil
	}
	return nil, errors.Join(err, errEnded)
}
