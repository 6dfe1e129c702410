package union

import (
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
}

// An absence is that of a server. It is asked again after the pause.
type absence struct {
	until time.Time
	pause time.Duration
}

// The pause before a server that does not answer is asked again by a list doubles
// from the shortest to the longest.
const (
	minPause = 500 * time.Millisecond
	maxPause = 15 * time.Second
)

var errAbsent = errors.New("the server did not answer lately")

func newAbsences() *absences {
	return &absences{absent: make(map[string]absence), learned: make(map[string]jsontext.Value)}
}

// skips returns an error for a server that is not to be asked now.
func (a *absences) skips(server string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.absent[server].until) {
		return errAbsent
	}
	return nil
}

// note notes whether a server has answered.
func (a *absences) note(server string, absent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !absent {
		delete(a.absent, server)
		return
	}
	pause := max(minPause, min(2*a.absent[server].pause, maxPause))
	a.absent[server] = absence{time.Now().Add(pause), pause}
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
