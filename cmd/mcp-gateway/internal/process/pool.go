package process

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Config says how a server is run.
type Config struct {
	Server  string   // its name
	Command []string // the program and its arguments
	Dir     string   // "" is that of the gateway
	// Env returns the environment of a process that is about to start.
	Env      func() []string
	Shared   bool          // one process serves all callers
	Idle     time.Duration // after which an unused process ends
	Max      int           // processes at a time
	MaxReply int64         // of a message of the server, in bytes
	Log      *slog.Logger
}

// An Owner is the caller that a process is for.
type Owner struct{ Tenant, Type, ID string }

// An UnavailableError means that a request has not reached a process. Clients may get
// its text.
type UnavailableError struct{ reason string }

func (e *UnavailableError) Error() string { return e.reason }

func unavailable(format string, args ...any) error {
	return &UnavailableError{fmt.Sprintf(format, args...)}
}

// Bounds of the pause before a server is started again that has just failed. Each
// failure doubles it; a process that ran for stableTime ends the count.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	stableTime = time.Minute
)

// A Pool has the processes of a server. It is safe for concurrent use.
type Pool struct {
	cfg Config

	mu        sync.Mutex
	processes map[key]*process
	sessions  map[string]*session // by id
	failures  int                 // in a row
	next      time.Time           // before which no process is started
	closed    bool
	running   sync.WaitGroup
}

// A key tells processes apart: by owner, and by what their clients said of themselves.
type key struct {
	owner  Owner
	client [sha256.Size]byte // of version and capabilities; zero in the stateless era
}

// A session is one of a client of the older era.
type session struct {
	id      string
	owner   Owner
	process *process
	stream  chan *wire.Message // what no call of the session carries
}

// New returns a Pool without a process.
func New(cfg Config) *Pool {
	return &Pool{cfg: cfg, processes: make(map[key]*process), sessions: make(map[string]*session)}
}

// Transport returns the server as one of streamable HTTP, for one caller.
func (p *Pool) Transport(owner Owner) http.RoundTripper { return transport{p, owner} }

// Close ends all processes, and returns when they have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, of := range p.processes {
		of.stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// owned returns the owner of a caller's processes.
func (p *Pool) owned(owner Owner) Owner {
	if p.cfg.Shared {
		return Owner{}
	}
	return owner
}

// acquire returns the process of a key, which it starts if there is none, for one
// request. The caller must release it.
func (p *Pool) acquire(k key) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.processes[k]; of != nil && of.acquire() {
		return of, nil
	}
	switch wait := time.Until(p.next); {
	case p.closed:
		return nil, unavailable("the gateway is about to end")
	case wait > 0:
		return nil, unavailable("the server has failed: it is started again in %s at the earliest", wait.Round(time.Second)+time.Second)
	case len(p.processes) >= p.cfg.Max:
		return nil, unavailable("all %d processes of the server are in use", p.cfg.Max)
	}
	of, err := p.start(k)
	if err != nil {
		p.cfg.Log.Error("a server cannot be run", "server", p.cfg.Server, "error", err)
		p.failed()
		return nil, unavailable("the server cannot be run")
	}
	p.processes[k] = of
	of.acquire()
	return of, nil
}

// failed puts off the next start.
func (p *Pool) failed() {
	p.next = time.Now().Add(min(firstPause<<min(p.failures, 10), lastPause))
	p.failures++
}

// ended forgets a process that has ended, and its sessions: their clients get 404 and
// begin new ones.
func (p *Pool) ended(k key, of *process, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.processes, k)
	for id, s := range p.sessions {
		if s.process == of {
			delete(p.sessions, id)
		}
	}
	lived := time.Since(of.begun)
	if lived >= stableTime {
		p.failures = 0
	}
	if of.stopped() {
		p.cfg.Log.Info("a process of a server has ended", "server", p.cfg.Server, "pid", of.command.Process.Pid, "after", lived.Round(time.Second))
		return
	}
	p.failed()
	p.cfg.Log.Warn("a process of a server has ended by itself", "server", p.cfg.Server, "pid", of.command.Process.Pid, "after", lived.Round(time.Millisecond), "error", err)
}

// addSession begins a session of a process.
func (p *Pool) addSession(owner Owner, of *process) *session {
	s := &session{id: rand.Text(), owner: p.owned(owner), process: of, stream: make(chan *wire.Message, streamSize)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[s.id] = s
	return s
}

var errNoSession = errors.New("there is no such session")

// session returns a session of an owner, whose process is acquired.
func (p *Pool) session(owner Owner, id string) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[id]
	if s == nil || s.owner != p.owned(owner) || !s.process.acquire() {
		return nil, errNoSession
	}
	return s, nil
}

// endSession ends a session.
func (p *Pool) endSession(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s.id)
}

// sessionsOf returns the sessions of a process.
func (p *Pool) sessionsOf(of *process) (all []*session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		if s.process == of {
			all = append(all, s)
		}
	}
	return all
}
