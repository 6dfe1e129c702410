package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/child"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/lines"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A process is a running server.
type process struct {
	pool    *Pool
	command *exec.Cmd
	begun   time.Time
	stdin   io.WriteCloser
	in      lines.Writer
	ended   chan struct{} // closed when the process has ended

	mu       sync.Mutex
	uses     int       // requests and streams
	used     time.Time // end of the last use
	idle     *time.Timer
	stopping bool
	over     *EndedError // why the gateway has ended the process at once, or nil
	last     int64       // id of a request
	calls    map[string]*call
	// deserted are the calls of which nobody awaits the response, the oldest first. The
	// server may never answer them, which it need not once a call is cancelled.
	deserted []*call
	asked    map[string]*session // requests of the server that await an answer, by id
	order    []string            // the ids of asked, the oldest first
	waiting  int                 // requests of the server that await the stream of a session

	initializing sync.Mutex
	initialized  jsontext.Value // the result of initialize
	announced    bool           // the server has been told that it is initialized
}

// A call is a request that was sent to a process.
type call struct {
	own       string         // its id at the process
	id, token jsontext.Value // as the client sent them; token is nil without one
	session   *session       // nil in the stateless era
	before    chan *wire.Message
	response  chan *wire.Message
	deserted  bool // its client has gone
}

// streamSize bounds the messages that wait for a client to read them. Notifications
// over it are dropped, and requests are refused.
const streamSize = 256

// Bounds of what a process remembers: of calls whose clients have gone, in case they
// cancel them, and of requests of the server, in case their clients answer them.
const (
	maxDeserted = 256
	maxAsked    = 1000
)

// start starts a process. It is run by a thread of its own, because the system kills a
// process with the thread that started it.
func (p *Pool) start(k key) (*process, error) {
	of := &process{pool: p, ended: make(chan struct{}), calls: make(map[string]*call), asked: make(map[string]*session), begun: time.Now()}
	of.command = exec.Command(p.cfg.Command[0], p.cfg.Command[1:]...)
	of.command.Dir, of.command.Env = p.cfg.Dir, p.cfg.Env()
	of.command.WaitDelay = exitTimeout
	child.OwnGroup(of.command)
	var err error
	if of.stdin, err = of.command.StdinPipe(); err != nil {
		return nil, err
	}
	of.in.W = of.stdin
	out, err := of.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	of.command.Stderr = &stderr{pool: p}
	started := make(chan error, 1)
	p.work.Go(func() {
		runtime.LockOSThread()
		err := of.command.Start()
		if started <- err; err != nil {
			return
		}
		of.read(out)
		child.Kill(of.command) // also what it has started
		err = of.command.Wait()
		of.mu.Lock()
		if of.idle != nil {
			of.idle.Stop()
		}
		of.mu.Unlock()
		p.ended(k, of, err)
		close(of.ended)
	})
	if err := <-started; err != nil {
		return nil, err
	}
	p.cfg.Log.Info("a process of a server runs", "server", p.cfg.Server, "pid", of.command.Process.Pid, "tenant", k.owner.Tenant, "caller", plain.Text(k.owner.ID))
	return of, nil
}

// acquire keeps the process from ending. It returns false if it ends.
func (of *process) acquire() bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.stopping {
		return false
	}
	select {
	case <-of.ended:
		return false
	default:
	}
	of.uses++
	if of.idle != nil {
		of.idle.Stop()
		of.idle = nil
	}
	return true
}

// release ends a use. After the last one the process ends in a while.
func (of *process) release() {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.used = time.Now()
	if of.uses--; of.uses == 0 && !of.stopping {
		of.idle = time.AfterFunc(of.pool.idle(), of.stopIdle)
	}
}

func (of *process) stopIdle() {
	of.mu.Lock()
	idle := of.uses == 0
	of.mu.Unlock()
	if idle {
		of.stop()
	}
}

// isUnused reports whether nothing uses the process, and since when.
func (of *process) isUnused() (unused bool, since time.Time) {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.uses == 0, of.used
}

func (of *process) stopped() bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.stopping
}

// exitTimeout is how long a process may take to end after each request to do so.
const exitTimeout = 2 * time.Second

// stop ends the process: by the end of its input, then by signals.
func (of *process) stop() {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.stopping {
		return
	}
	of.stopping = true
	_ = of.stdin.Close()
	of.pool.work.Go(func() {
		for _, end := range []func(*exec.Cmd){func(*exec.Cmd) {}, child.Terminate, child.Kill} {
			end(of.command)
			select {
			case <-of.ended:
				return
			case <-time.After(exitTimeout):
			}
		}
	})
}

// read handles the output of the process until it ends.
func (of *process) read(out io.Reader) {
	for in := bufio.NewReader(out); ; {
		line, err := lines.Read(in, of.pool.cfg.MaxReply)
		if err != nil && !errors.Is(err, lines.ErrSize) {
			return
		}
		var m *wire.Message
		if err == nil && len(line) == 0 {
			continue
		}
		if err == nil {
			m, err = wire.ParseReply(line)
		}
		if err == nil {
			of.receive(m)
			continue
		}
		of.pool.cfg.Log.Warn("the gateway withholds a message of the server", "server", of.pool.cfg.Server, "error", err)
		of.withhold(lines.Glimpse(line, err), err)
	}
}

// withhold answers a message that cannot be read.
func (of *process) withhold(seen wire.Glimpse, err error) {
	switch {
	case seen.ID == nil:
	case seen.IsResponse():
		if c := of.take(seen.ID); c != nil {
			c.response <- wire.Refuse(c.id, wire.CodeInternal, "the server carried out the request, but the gateway cannot read its answer: "+err.Error(), map[string]string{"reason_code": "answer_withheld"})
		}
	case seen.Method:
		_ = of.in.Write(wire.Refuse(seen.ID, wire.CodeRequest, err.Error(), nil))
	}
}

// receive handles a message of the process.
func (of *process) receive(m *wire.Message) {
	switch {
	case m.IsResponse():
		c := of.take(m.ID)
		if c == nil {
			of.pool.cfg.Log.Warn("the server sent a response to no request", "server", of.pool.cfg.Server)
			return
		}
		m.ID = c.id
		c.response <- m
	case m.IsRequest():
		of.ask(m)
	case m.Method == "notifications/progress":
		of.progress(m)
	default:
		of.notify(m)
	}
}

// take returns the call that a response answers, or nil.
func (of *process) take(id jsontext.Value) *call {
	of.mu.Lock()
	defer of.mu.Unlock()
	c := of.calls[string(id)]
	delete(of.calls, string(id))
	return c
}

// ask passes a request of the server on to a session with a call in the process, else to
// the stream of the latest session. In the stateless era, and at a shared server, nobody
// can be asked.
func (of *process) ask(m *wire.Message) {
	of.mu.Lock()
	var to *call
	newest := int64(0)
	for id, c := range of.calls {
		if n, _ := strconv.ParseInt(id, 10, 64); c.session != nil && !c.deserted && n > newest {
			to, newest = c, n
		}
	}
	sent := false
	if to != nil && !of.pool.cfg.Shared {
		select {
		case to.before <- m:
			of.remember(string(m.ID), to.session)
			sent = true
		default:
		}
	}
	of.mu.Unlock()
	if !sent && (of.pool.cfg.Shared || to != nil || !of.askSession(m)) {
		of.refuse(m)
	}
}

func (of *process) refuse(m *wire.Message) {
	_ = of.in.Write(wire.Refuse(m.ID, wire.CodeMethod, "no client can be asked now", nil))
}

// A request of a server outside of any call waits for askTimeout until the client opens
// the stream of its session: servers ask for roots as soon as they are initialized. At
// most maxWaiting requests wait.
const (
	askTimeout = 5 * time.Second
	maxWaiting = 16
)

// askSession passes a request of the server on to the stream of the latest session. It
// returns false if there is none, or too many requests wait.
func (of *process) askSession(m *wire.Message) bool {
	s := of.pool.latestSession(of)
	of.mu.Lock()
	defer of.mu.Unlock()
	if s == nil || of.waiting >= maxWaiting {
		return false
	}
	of.waiting++
	of.remember(string(m.ID), s)
	of.pool.work.Go(func() {
		sent := s.request(m)
		of.mu.Lock()
		if of.waiting--; !sent && of.asked[string(m.ID)] == s {
			of.forgetAsked(string(m.ID))
		}
		of.mu.Unlock()
		if !sent {
			of.refuse(m)
		}
	})
	return true
}

// request hands a request of the server to the stream of the session, once there is one.
func (s *session) request(m *wire.Message) (sent bool) {
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	select {
	case s.requests <- m:
		return true
	case <-timer.C:
	case <-s.over:
	case <-s.process.ended:
	}
	return false
}

// remember notes which session is asked by a request of the server. Beyond
// [maxAsked], the oldest request is forgotten.
func (of *process) remember(id string, asked *session) {
	of.forgetAsked(id)
	if len(of.order) >= maxAsked {
		of.forgetAsked(of.order[0])
	}
	of.asked[id] = asked
	of.order = append(of.order, id)
}

func (of *process) forgetAsked(id string) {
	if n := slices.Index(of.order, id); n >= 0 {
		of.order = slices.Delete(of.order, n, n+1)
	}
	delete(of.asked, id)
}

// left notes that nobody awaits the response to a call any more. Beyond
// [maxDeserted], the oldest such call is forgotten.
func (of *process) left(c *call) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.calls[c.own] != c {
		return // it has its response
	}
	of.deserted = slices.DeleteFunc(of.deserted, func(other *call) bool { return of.calls[other.own] != other })
	if len(of.deserted) >= maxDeserted {
		delete(of.calls, of.deserted[0].own)
		of.deserted = slices.Delete(of.deserted, 0, 1)
	}
	c.deserted = true
	of.deserted = append(of.deserted, c)
}

// progress passes a notification on to the call with its token.
func (of *process) progress(m *wire.Message) {
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return
	}
	of.mu.Lock()
	c := of.calls[string(params["progressToken"])]
	of.mu.Unlock()
	if c == nil || c.token == nil {
		return
	}
	params.Put("progressToken", c.token)
	if m.Params, err = params.Encode(); err != nil {
		return
	}
	select {
	case c.before <- m:
	default: // the client does not read
	}
}

// notify passes on another notification: to every session, or to the calls of the
// stateless era.
func (of *process) notify(m *wire.Message) {
	if of.pool.cfg.Shared && !strings.HasSuffix(m.Method, "/list_changed") {
		return
	}
	for _, s := range of.pool.sessionsOf(of) {
		select {
		case s.stream <- m:
		default: // nobody reads the stream
		}
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	for _, c := range of.calls {
		if c.session != nil {
			continue
		}
		select {
		case c.before <- m:
		default:
		}
	}
}

// send sends a request, with an id and a progress token of the process.
func (of *process) send(m *wire.Message, s *session) (*call, error) {
	c := &call{id: m.ID, session: s, before: make(chan *wire.Message, streamSize), response: make(chan *wire.Message, 1)}
	of.mu.Lock()
	of.last++
	own := *m
	c.own = strconv.FormatInt(of.last, 10)
	own.ID = jsontext.Value(c.own)
	of.mu.Unlock()
	var err error
	if own.Params, c.token, err = withToken(m.Params, own.ID); err != nil {
		return nil, err
	}
	of.mu.Lock()
	of.calls[c.own] = c
	of.mu.Unlock()
	if err := of.in.Write(&own); err != nil {
		of.pool.cfg.Log.Warn("a request cannot be written to the server", "server", of.pool.cfg.Server, "error", err)
	}
	return c, nil
}

// withToken replaces the progress token in params, if there is one, and returns the
// token that was there.
func withToken(params, token jsontext.Value) (changed, was jsontext.Value, err error) {
	if params == nil {
		return nil, nil, nil
	}
	all, err := jsonobject.Parse(params)
	if err != nil || all["_meta"] == nil {
		return params, nil, err
	}
	meta, err := jsonobject.Parse(all["_meta"])
	if err != nil || meta["progressToken"] == nil {
		return params, nil, err
	}
	was = meta["progressToken"]
	meta.Put("progressToken", token)
	text, err := meta.Encode()
	if err != nil {
		return nil, nil, err
	}
	all.Put("_meta", text)
	changed, err = all.Encode()
	return changed, was, err
}

// tell sends a notification or a response of a client.
func (of *process) tell(m *wire.Message, s *session) error {
	switch {
	case m.IsResponse():
		of.mu.Lock()
		allowed := s != nil && of.asked[string(m.ID)] == s
		of.forgetAsked(string(m.ID))
		of.mu.Unlock()
		if !allowed {
			return nil
		}
	case m.Method == wire.MethodInitialized:
		of.mu.Lock()
		before := of.announced
		of.announced = true
		of.mu.Unlock()
		if before {
			return nil
		}
	case m.Method == wire.MethodCancelled:
		var err error
		if m, err = of.cancellation(m, s); m == nil {
			return err
		}
	}
	return of.in.Write(m)
}

// cancellation returns a cancellation with the id that the process knows, or nil.
func (of *process) cancellation(m *wire.Message, s *session) (*wire.Message, error) {
	params, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, err
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	for id, c := range of.calls {
		if c.session == s && s != nil && string(c.id) == string(params["requestId"]) {
			params.Put("requestId", jsontext.Value(id))
			text, err := params.Encode()
			return &wire.Message{Method: m.Method, Params: text}, err
		}
	}
	return nil, nil
}

// abandon tells the process that nobody waits for a call any more.
func (of *process) abandon(c *call) {
	of.mu.Lock()
	pending := of.calls[c.own] == c
	of.mu.Unlock()
	if pending {
		_ = of.in.Write(&wire.Message{Method: wire.MethodCancelled, Params: fmt.Appendf(nil, `{"requestId":%s}`, c.own)})
	}
}

// initializeTimeout bounds the start of a server.
const initializeTimeout = time.Minute

// initialize returns the server's answer to initialize. The first client's request
// goes to the server, and later clients get the same result.
func (of *process) initialize(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	of.initializing.Lock()
	defer of.initializing.Unlock()
	if of.initialized != nil {
		return &wire.Message{ID: m.ID, Result: of.initialized}, nil
	}
	c, err := of.send(m, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), initializeTimeout)
	defer cancel()
	select {
	case response := <-c.response:
		if response.Error != nil {
			of.stop() // the next client gets another process
		}
		of.initialized = response.Result
		return response, nil
	case <-of.ended:
		return nil, unavailable("%v", of.endError())
	case <-ctx.Done():
		of.stop()
		return nil, unavailable("the server does not answer initialize")
	}
}
