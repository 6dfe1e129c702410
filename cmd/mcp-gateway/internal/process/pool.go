package process

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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
	Max      int           // processes at a time; see also [Config.perOwner]
	MaxReply int64         // of a message of the server, in bytes
	// Memory bounds the memory of a process with all that it has started, in bytes: see
	// [child.Memory]. 0 is no bound.
	Memory int64
	Log    *slog.Logger
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

// perOwner returns the maximum number of processes of one owner: the rest is for
// others. A client chooses its capabilities, and so how many processes it has.
func (c *Config) perOwner() int {
	if c.Shared {
		return c.Max
	}
	return min(c.Max, max(c.Max/4, 2))
}

// Bounds of the pause before a process of an owner is started whose last one has
// failed. Each failure doubles it; a process that ran for stableTime ends the count.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	stableTime = time.Minute
)

// Bounds of the sessions of a caller in a process, and of all sessions of a pool. The
// one that was unused for longest makes place for another.
const (
	maxSessions    = 1000
	maxAllSessions = 10_000
)

// A Pool has the processes of a server. It is safe for concurrent use.
type Pool struct {
	cfg   Config
	limit int // of all sessions

	mu        sync.Mutex
	processes map[key]*process    // that take requests, or are about to end
	running   map[*process]key    // that have not ended
	sessions  map[string]*session // by id
	pauses    map[Owner]pause
	closed    bool
	done      chan struct{} // closed with the pool
	draining  atomic.Bool   // no process starts, and those that run end once they are unused
	work      sync.WaitGroup
}

// A pause is the time in which no process of an owner is started.
type pause struct {
	failures int // in a row
	until    time.Time
}

// A key tells processes apart: by owner, and by what their clients said of themselves.
type key struct {
	owner  Owner
	client [sha256.Size]byte // of version and capabilities; zero in the stateless era
}

// A session is one of a client of the older era.
type session struct {
	id      string
	owner   Owner // of the process
	caller  Owner
	process *process
	stream  chan *wire.Message // what no call of the session carries
	// requests of the server that come in no call; only a stream takes them
	requests chan *wire.Message
	over     chan struct{} // closed when the session has ended
	used     time.Time     // guarded by the pool
}

// New returns a Pool without a process.
func New(cfg Config) *Pool {
	p := &Pool{
		done: make(chan struct{}), cfg: cfg, limit: maxAllSessions, processes: make(map[key]*process), running: make(map[*process]key), sessions: make(map[string]*session), pauses: make(map[Owner]pause),
	}
	if cfg.Memory > 0 {
		p.work.Go(p.watchMemory)
	}
	return p
}

// Transport returns the server as one of streamable HTTP, for one caller.
func (p *Pool) Transport(owner Owner) http.RoundTripper { return transport{p, owner} }

// Close ends all processes, and returns when they have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		close(p.done)
	}
	p.closed = true
	for of := range p.running {
		of.stop()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Drain ends each process once nothing uses it, and starts no others.
func (p *Pool) Drain() {
	p.draining.Store(true)
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.running))
	p.mu.Unlock()
	for _, of := range all {
		of.stopIdle()
	}
}

// idle returns how long a process runs that nothing uses.
func (p *Pool) idle() time.Duration {
	if p.draining.Load() {
		return 0
	}
	return p.cfg.Idle
}

// owned returns the owner of a caller's processes.
func (p *Pool) owned(owner Owner) Owner {
	if p.cfg.Shared {
		return Owner{}
	}
	return owner
}

// acquire returns the process of a key, which it starts if there is none, for one
// request. The caller must release it. An owner with all the processes that it may
// have loses the one that was unused for longest.
func (p *Pool) acquire(ctx context.Context, k key) (*process, error) {
	for {
		of, ending, err := p.tryAcquire(k)
		if ending == nil {
			return of, err
		}
		select {
		case <-ending.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryAcquire returns the process of a key, or the process that has to end before there
// is a place for another of its owner.
func (p *Pool) tryAcquire(k key) (of, ending *process, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.processes[k]; of != nil && of.acquire() {
		return of, nil, nil
	}
	switch wait := time.Until(p.pauses[k.owner].until); {
	case p.closed:
		return nil, nil, unavailable("the gateway is about to end")
	case p.draining.Load():
		return nil, nil, unavailable("the server is not served any more")
	case wait > 0:
		return nil, nil, unavailable("the server has failed: it is started again in %s at the earliest", wait.Round(time.Second)+time.Second)
	}
	own := p.processesOf(k.owner)
	switch most := p.cfg.perOwner(); {
	case len(own) >= most:
		if ending = makePlace(own); ending == nil {
			err = unavailable("all %d processes of the server that one caller may have are in use", most)
		}
		return nil, ending, err
	case len(p.running) >= p.cfg.Max:
		return nil, nil, unavailable("all %d processes of the server are in use", p.cfg.Max)
	}
	if of, err = p.start(k); err != nil {
		p.cfg.Log.Error("a server cannot be run", "server", p.cfg.Server, "error", err)
		p.failed(k.owner)
		return nil, nil, unavailable("the server cannot be run")
	}
	p.processes[k], p.running[of] = of, k
	of.acquire()
	return of, nil, nil
}

// processesOf returns the processes of an owner that have not ended.
func (p *Pool) processesOf(owner Owner) (own []*process) {
	for of, k := range p.running {
		if k.owner == owner {
			own = append(own, of)
		}
	}
	return own
}

// makePlace returns a process that ends, if need be because it is the one that was
// unused for longest. It returns nil if all are in use.
func makePlace(own []*process) *process {
	var longest *process
	var since time.Time
	for _, of := range own {
		switch unused, at := of.isUnused(); {
		case of.stopped():
			return of
		case unused && (longest == nil || at.Before(since)):
			longest, since = of, at
		}
	}
	if longest != nil {
		longest.stop()
	}
	return longest
}

// failed puts off the next start of a process of an owner.
func (p *Pool) failed(owner Owner) {
	now := time.Now()
	for of, last := range p.pauses {
		if now.Sub(last.until) > stableTime {
			delete(p.pauses, of)
		}
	}
	last := p.pauses[owner]
	p.pauses[owner] = pause{last.failures + 1, now.Add(min(firstPause<<min(last.failures, 10), lastPause))}
}

// ended forgets a process that has ended, and its sessions: their clients get 404 and
// begin new ones.
func (p *Pool) ended(k key, of *process, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.running, of); p.processes[k] == of {
		delete(p.processes, k)
	}
	for id, s := range p.sessions {
		if s.process == of {
			p.drop(id)
		}
	}
	lived := time.Since(of.begun)
	if lived >= stableTime {
		delete(p.pauses, k.owner)
	}
	if of.stopped() {
		p.cfg.Log.Info("a process of a server has ended", "server", p.cfg.Server, "pid", of.command.Process.Pid, "after", lived.Round(time.Second))
		return
	}
	p.failed(k.owner)
	p.cfg.Log.Warn("a process of a server has ended by itself", "server", p.cfg.Server, "pid", of.command.Process.Pid, "after", lived.Round(time.Millisecond), "error", err)
}

// addSession begins a session of a process.
func (p *Pool) addSession(owner Owner, of *process) *session {
	s := &session{id: rand.Text(), owner: p.owned(owner), caller: owner, process: of, stream: make(chan *wire.Message, streamSize), requests: make(chan *wire.Message), over: make(chan struct{}), used: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	own := slices.DeleteFunc(p.sessionsIn(of), func(s *session) bool { return s.caller != owner })
	switch {
	case len(own) >= maxSessions:
		p.dropOldest(slices.Values(own))
	case len(p.sessions) >= p.limit:
		p.dropOldest(maps.Values(p.sessions))
	}
	p.sessions[s.id] = s
	return s
}

// dropOldest ends the session that was unused for longest.
func (p *Pool) dropOldest(of iter.Seq[*session]) {
	var oldest *session
	for s := range of {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	p.drop(oldest.id)
}

// drop ends a session, if there is one of that id.
func (p *Pool) drop(id string) {
	if s := p.sessions[id]; s != nil {
		delete(p.sessions, id)
		close(s.over)
	}
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
	s.used = time.Now()
	return s, nil
}

// endSession ends a session.
func (p *Pool) endSession(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(s.id)
}

// sessionsOf returns the sessions of a process.
func (p *Pool) sessionsOf(of *process) []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessionsIn(of)
}

// latestSession returns the session of a process that was used last, or nil.
func (p *Pool) latestSession(of *process) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.sessionsIn(of)
	if len(own) == 0 {
		return nil
	}
	return slices.MaxFunc(own, func(a, b *session) int { return a.used.Compare(b.used) })
}

func (p *Pool) sessionsIn(of *process) (all []*session) {
	for _, s := range p.sessions {
		if s.process == of {
			all = append(all, s)
		}
	}
	return all
}
