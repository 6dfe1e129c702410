package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/child"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/lines"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A PipeConfig says between whom a Pipe stands.
type PipeConfig struct {
	Server  string    // name of the upstream
	Command *exec.Cmd // that runs it; its input and output are the Pipe's
	Gate    *enforce.Gate
	// Identify says who calls, before each message: a token may be good no longer.
	Identify func(context.Context) (*enforce.Caller, error)
	// FromServer filters what the server sends of its own accord. Nil passes all.
	FromServer ServerMessages
	In         io.Reader // from the client, a message a line
	Out        io.Writer // to the client
	// MaxBody bounds a message of the client, MaxReply one of the server, in bytes.
	// 0 is 4 MiB and 16 MiB.
	MaxBody, MaxReply int64
	Log               *slog.Logger
}

// A Pipe stands between a client on standard input and output and a server that
// it runs.
type Pipe struct {
	cfg      PipeConfig
	toClient lines.Writer
	toServer lines.Writer
	requests *pendingRequests
	deciding *deciding
	sent     *unanswered
	running  *underWay

	mu    sync.Mutex     // held to begin a call, so that none begins at the end
	calls sync.WaitGroup // that are being decided

	// What the client said of itself at initialize, in the older era.
	capabilities atomic.Pointer[wire.Capabilities]
	last         atomic.Pointer[enforce.Call] // of the client
}

// conversation is the only one of a Pipe.
const conversation = ""

// NewPipe returns a Pipe.
func NewPipe(cfg PipeConfig) *Pipe {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = endpoint.MaxBody
	}
	if cfg.MaxReply == 0 {
		cfg.MaxReply = endpoint.MaxReply
	}
	return &Pipe{
		cfg: cfg, toClient: lines.Writer{W: cfg.Out}, requests: newPendingRequests(), deciding: newDeciding(), running: newUnderWay(),
		sent: newUnanswered(),
	}
}

// exitTimeout is how long a server may take to exit once its client has gone, and
// signalTimeout how long after each signal. A client that wants no more of that sends
// the gateway a signal, and kills it two seconds later.
const (
	exitTimeout   = 5 * time.Second
	signalTimeout = time.Second
)

// Run runs the server until the client or the server ends. The error is that of
// the server ([exec.Cmd.Wait]).
func (p *Pipe) Run(ctx context.Context) error {
	in, err := p.cfg.Command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cfg.Command.StdoutPipe()
	if err != nil {
		return err
	}
	p.toServer.W = in
	child.OwnGroup(p.cfg.Command)
	if err := p.cfg.Command.Start(); err != nil {
		return fmt.Errorf("run the server: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clientDone := make(chan struct{})
	go func() {
		defer close(clientDone)
		p.client(ctx)
		_ = in.Close() // the server may have ended
	}()
	serverDone := make(chan struct{})
	go func() {
		defer close(serverDone)
		p.server(ctx, out)
	}()
	p.supervise(ctx, clientDone, serverDone)
	p.requests.close()
	p.mu.Lock()
	cancel()
	p.mu.Unlock()
	p.calls.Wait()
	for k, settle := range p.sent.all() {
		settle(context.WithoutCancel(ctx), nil)
		_ = p.toClient.Write(wire.Refuse([]byte(k.id), wire.CodeInternal, "the server has ended", enforce.Data{Reason: enforce.ReasonUnavailable}))
	}
	return p.cfg.Command.Wait()
}

// supervise waits until the output of the server ends. Once the client has gone, it
// waits [exitTimeout] for the server to exit, or until ctx ends, and then terminates
// and at last kills it with all that it has started.
func (p *Pipe) supervise(ctx context.Context, clientDone, serverDone <-chan struct{}) {
	select {
	case <-serverDone:
		return
	case <-clientDone:
	case <-ctx.Done():
	}
	select {
	case <-serverDone:
		return
	case <-time.After(exitTimeout):
	case <-ctx.Done():
	}
	for _, end := range []func(*exec.Cmd){child.Terminate, child.Kill} {
		end(p.cfg.Command)
		select {
		case <-serverDone:
			return
		case <-time.After(signalTimeout):
		}
	}
	<-serverDone
}

// client takes the client's messages until it ends, and until they are decided.
func (p *Pipe) client(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for in := bufio.NewReader(p.cfg.In); ; {
		line, err := lines.Read(in, p.cfg.MaxBody)
		if err != nil && !errors.Is(err, lines.ErrSize) {
			break
		}
		if len(line) == 0 && err == nil {
			continue
		}
		c, fault := p.read(line, err)
		if fault != nil {
			p.refuse(fault, line, err)
			continue
		}
		if c.Caller, err = p.cfg.Identify(ctx); err != nil {
			p.unidentified(ctx, c, err)
			continue
		}
		if !c.Message.IsRequest() {
			p.judge(ctx, c) // in the order in which they came
			continue
		}
		p.last.Store(c)
		if !p.begin(ctx, c) {
			return
		}
	}
	grace := time.AfterFunc(exitTimeout, cancel)
	defer grace.Stop()
	p.calls.Wait()
}

// unidentified refuses a message of whom nobody knows.
func (p *Pipe) unidentified(ctx context.Context, c *enforce.Call, err error) {
	p.cfg.Log.WarnContext(ctx, "the caller is not known", "server", p.cfg.Server, "error", err)
	if c.Message.IsRequest() {
		_ = p.toClient.Write(p.cfg.Gate.Unidentified(c.Message).Answer)
	}
}

// begin decides on a request, beside others, unless the end has come.
func (p *Pipe) begin(ctx context.Context, c *enforce.Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	p.calls.Go(func() { p.judge(ctx, c) })
	return true
}

// read reads a message of the client.
func (p *Pipe) read(line []byte, err error) (*enforce.Call, *wire.Fault) {
	if err != nil {
		return nil, &wire.Fault{Code: wire.CodeRequest, Reason: err.Error()}
	}
	m, err := wire.Parse(line)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	params, err := m.Read()
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	c := &enforce.Call{
		Server: p.cfg.Server, Message: m, Params: params, RequestID: uuid.NewString(),
		TraceParent: enforce.TraceParent(params.Meta.TraceParent),
		Stateless:   params.Meta.ProtocolVersion != "", Capabilities: params.Meta.Capabilities, Upstream: p.Execute,
	}
	if !c.Stateless {
		if m.Method == wire.MethodInitialize {
			p.capabilities.Store(&params.Capabilities)
		}
		c.Capabilities = p.capabilities.Load()
		c.Client = p
	}
	return c, nil
}

// judge decides on a message, and sends it where it goes.
func (p *Pipe) judge(ctx context.Context, c *enforce.Call) {
	if c.Message.IsResponse() {
		if !isOurs(c.Message.ID) {
			_ = p.toServer.Write(c.Message) // its end is seen elsewhere
		} else {
			p.requests.deliver(conversation, c.Message)
		}
		return
	}
	if c.Message.Method == wire.MethodCancelled {
		p.deciding.cancel(conversation, c.Params)
	}
	ctx, done := p.deciding.begin(ctx, conversation, c.Message)
	defer done()
	disposition := p.cfg.Gate.Judge(ctx, c)
	switch {
	case disposition.Forward != nil:
		p.forward(ctx, c, disposition)
	case disposition.Answer != nil:
		_ = p.toClient.Write(disposition.Answer)
	}
}

func (p *Pipe) forward(ctx context.Context, c *enforce.Call, v *enforce.Disposition) {
	if !v.Forward.IsRequest() {
		_ = p.toServer.Write(v.Forward)
		v.Finish(ctx, nil)
		return
	}
	if isOurs(v.Forward.ID) || !p.sent.keep(conversation, v.Forward.ID, p.running.begin(conversation, c, v.Finish)) {
		p.running.end(conversation, c)
		v.Finish(ctx, nil)
		_ = p.toClient.Write(wire.Refuse(v.Forward.ID, wire.CodeRequest, "the id is in use, or too many calls are unanswered", enforce.Data{Reason: enforce.ReasonInvalidMessage}))
		return
	}
	_ = p.toServer.Write(v.Forward) // where it cannot be written, the end of the server answers it
}

// server passes on what the server says until it ends. What cannot be read, or
// nobody waits for, goes no further.
func (p *Pipe) server(ctx context.Context, out io.Reader) {
	for in := bufio.NewReader(out); ; {
		line, err := lines.Read(in, p.cfg.MaxReply)
		if err != nil && !errors.Is(err, lines.ErrSize) {
			return
		}
		if err == nil {
			err = p.onServerLine(ctx, line)
		}
		if errors.Is(err, lines.ErrSize) || errors.Is(err, wire.ErrDepth) {
			p.withhold(ctx, lines.Glimpse(line, err), err)
		}
		if err != nil {
			p.cfg.Log.WarnContext(ctx, "the gateway withholds a message of the server", "server", p.cfg.Server, "error", err)
		}
	}
}

// onServerLine handles one line of the server's output.
func (p *Pipe) onServerLine(ctx context.Context, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	m, err := wire.ParseReply(line)
	if err != nil {
		return err
	}
	switch {
	case !m.IsResponse() && !m.IsRequest():
		if last := p.last.Load(); last != nil && p.cfg.FromServer != nil && !p.cfg.FromServer.AllowsNotification(last, m) {
			return nil
		}
		if m = p.interim(ctx, m); m == nil {
			return nil
		}
		return p.toClient.Write(m)
	case m.IsRequest() && (p.capabilities.Load() == nil || isOurs(m.ID)):
		return errors.Join(errServerRequest, p.toServer.Write(wire.Refuse(m.ID, wire.CodeMethod, errServerRequest.Error(), nil)))
	case m.IsRequest() && (p.cfg.FromServer != nil && !p.allowsRequest(ctx, m) || p.interim(ctx, m) == nil):
		return errors.Join(errRequestDenied, p.toServer.Write(wire.Refuse(m.ID, wire.CodeMethod, errRequestDenied.Error(), nil)))
	case m.IsRequest():
		return p.toClient.Write(m)
	case p.requests.deliver(conversation, m):
		return nil
	}
	settle := p.sent.take(conversation, m.ID)
	if settle == nil {
		return errWrongID
	}
	if m = settle(ctx, m); m != nil {
		return p.toClient.Write(m)
	}
	return nil
}

// allowsRequest reports whether the client gets a request of the server.
func (p *Pipe) allowsRequest(ctx context.Context, m *wire.Message) bool {
	of := p.running.only(conversation)
	if of == nil {
		caller, err := p.cfg.Identify(ctx)
		if err != nil {
			return false
		}
		of = &enforce.Call{Server: p.cfg.Server, Caller: caller, RequestID: uuid.NewString()}
	}
	return p.cfg.FromServer.AllowsRequest(ctx, of, m)
}

// interim returns what the client gets of a message before the responses to its calls.
func (p *Pipe) interim(ctx context.Context, m *wire.Message) *wire.Message {
	return p.cfg.Gate.Interim(ctx, m, p.running.withObligations(conversation)...)
}

// Notify sends the client a notification.
func (p *Pipe) Notify(_ context.Context, m *wire.Message) error { return p.toClient.Write(m) }

// Ask asks the client, and waits for the response.
func (p *Pipe) Ask(ctx context.Context, method string, params any) (*wire.Message, error) {
	return p.requests.elicit(ctx, conversation, method, params, p.toClient.Write)
}

// Execute carries out a request of the gateway at the server, and returns the
// response.
func (p *Pipe) Execute(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	own := *m
	own.ID = newID()
	response, err := p.requests.roundTrip(ctx, conversation, &own, p.toServer.Write)
	if err != nil {
		return nil, err
	}
	response.ID = m.ID
	return response, nil
}
