package union

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// absences know which servers do not answer, so that not every list waits for them,
// and what servers can do that do not say so now.
type absences struct {
	mu      sync.Mutex
	absent  map[string]absence        // by server
	learned map[string]jsontext.Value // capabilities, by server
	// leaving has channels that are closed when a server that has answered answers
	// no more.
	leaving map[string]chan struct{}
}

// An absence is that of a server. After the pause one request finds out whether
// the server is back.
type absence struct {
	until time.Time
	pause time.Duration
	tried bool          // a request is finding out
	slow  bool          // it was waited for in vain
	back  chan struct{} // closed when the server has answered
}

// The pause before a server that does not answer is asked again doubles from the
// shortest to the longest.
const (
	minPause = 500 * time.Millisecond
	maxPause = 15 * time.Second
)

var errAbsent = errors.New("the server did not answer lately")

func newAbsences() *absences {
	return &absences{absent: make(map[string]absence), learned: make(map[string]jsontext.Value), leaving: make(map[string]chan struct{})}
}

// skips returns an error for a server that a list is not to wait for now. Otherwise
// the caller asks it, and notes the outcome. Servers that fail at once are asked.
func (a *absences) skips(server string) error {
	a.mu.Lock()
	slow := a.absent[server].slow
	a.mu.Unlock()
	if !slow {
		return nil
	}
	if _, _, free := a.claim(server); !free {
		return errAbsent
	}
	return nil
}

// claim reports whether the caller may ask a server. Otherwise it returns what to
// wait for.
func (a *absences) claim(server string) (back chan struct{}, wait time.Duration, free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	is, absent := a.absent[server]
	if !absent {
		return nil, 0, true
	}
	if wait := time.Until(is.until); wait > 0 {
		return is.back, wait, false
	}
	is.until, is.tried = time.Now().Add(is.pause), true // others wait for the outcome
	a.absent[server] = is
	return nil, 0, true
}

// wait waits until a server is back, or the caller may find out. It returns false
// at the end of ctx.
func (a *absences) wait(ctx context.Context, server string) bool {
	for {
		back, wait, free := a.claim(server)
		if free {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-back:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// note notes that a server has answered.
func (a *absences) note(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if is, known := a.absent[server]; known {
		close(is.back)
		delete(a.absent, server)
	}
}

// miss notes that a server has not answered, or not in time.
func (a *absences) miss(server string, slow bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	is, known := a.absent[server]
	switch {
	case !known:
		is = absence{pause: minPause, until: time.Now().Add(minPause), back: make(chan struct{})}
		if left := a.leaving[server]; left != nil {
			close(left)
			delete(a.leaving, server)
		}
	case is.tried:
		is.pause = min(2*is.pause, maxPause)
		is.until, is.tried = time.Now().Add(is.pause), false
	}
	is.slow = is.slow || slow
	a.absent[server] = is
}

// left returns a channel that is closed when the server does not answer.
func (a *absences) left(server string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, absent := a.absent[server]; absent {
		already := make(chan struct{})
		close(already)
		return already
	}
	if a.leaving[server] == nil {
		a.leaving[server] = make(chan struct{})
	}
	return a.leaving[server]
}

// learn keeps the capabilities of a server.
func (a *absences) learn(server string, capabilities jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.learned[server] = capabilities
}

// capabilities returns the last capabilities of a server. One that has never said
// them may have anything that lists have.
func (a *absences) capabilities(server string) jsontext.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.learned[server]; known != nil {
		return known
	}
	return jsontext.Value(`{"tools":{},"prompts":{},"resources":{}}`)
}
