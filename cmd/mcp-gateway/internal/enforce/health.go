package enforce

import (
	"context"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A Health says whether the PDP can be asked.
type Health struct {
	Breaker  string    // the most open state of a tenant: closed, half-open or open
	Answered time.Time // when the PDP last answered, or zero
	Err      error     // why calls fail, or nil
}

// probeInterval is the shortest time between two probes, and probeTimeout limits
// one.
const (
	probeInterval = time.Second
	probeTimeout  = time.Second
)

// A probe is what is known of the PDP's answers.
type probe struct {
	mu   sync.Mutex // held during a probe: others wait for its result
	next time.Time  // before which there is no other
	err  error      // of the latest

	answers  sync.Mutex
	answered time.Time
}

func (p *probe) recordAnswer() {
	p.answers.Lock()
	defer p.answers.Unlock()
	p.answered = time.Now()
}

func (p *probe) lastAnswer() time.Time {
	p.answers.Lock()
	defer p.answers.Unlock()
	return p.answered
}

// Health reports whether the PDP answers. It sends a probe at most once a second,
// and none while the breaker of calls without a tenant is open.
func (p *PDP) Health() Health {
	h := Health{Err: ErrPaused}
	if p.refreshBreakers(); p.tenant("").breaker.State() != gobreaker.StateOpen {
		h.Err = p.probe()
	}
	p.mu.Lock()
	h.Breaker = p.mostOpen().String()
	p.mu.Unlock()
	h.Answered = p.health.lastAnswer()
	return h
}

// refreshBreakers looks at the breakers that are not closed: whether a pause is over is
// seen only then.
func (p *PDP) refreshBreakers() {
	p.mu.Lock()
	var open []*gobreaker.CircuitBreaker[struct{}]
	for tenant, state := range p.states {
		if state == gobreaker.StateOpen {
			open = append(open, p.tenants[tenant].breaker)
		}
	}
	p.mu.Unlock()
	for _, of := range open {
		of.State()
	}
}

// probe returns the result of a probe of the last second. A refused key is an
// error, because every call fails. The probe is the question of [PDP.Refusal],
// and does not count for the breaker. It has its own timeout, so that a client
// that leaves does not decide the result for others.
func (p *PDP) probe() error {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	if time.Now().Before(p.health.next) {
		return p.health.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(p.cfg.Client.Timeout, probeTimeout))
	defer cancel()
	err := p.askNothing(ctx)
	switch {
	case !isAlive(err):
	case refusesKey(err), RefusesLabels(err):
		p.health.recordAnswer()
	default:
		p.health.recordAnswer()
		err = nil
	}
	p.health.err, p.health.next = err, time.Now().Add(probeInterval)
	return err
}
