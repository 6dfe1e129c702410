package capability

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Next calls the state machine with an event by its kind. An exhaustion has taken that many uses.
func Next(c Capability, kind string, g Grant, used int, now time.Time) (Capability, error) {
	return next(c, event{kind: eventKind(kind), grant: g, used: used}, now)
}

// Matches reports whether a pattern has a tool.
func Matches(pattern, tool string) bool { return matches(pattern, tool) }

// Snapshot stores the uses in the log.
func (s *Service) Snapshot(ctx context.Context) error { return s.snapshot(ctx) }

// Abandon closes the file as the end of the process does: nothing else is written.
func (s *Service) Abandon() error { return s.db.Close() }

// TakenProofs are the proofs that can no longer be taken.
type TakenProofs struct{ takenProofs }

// Len returns their number.
func (t *TakenProofs) Len() int { return t.current.size + t.previous.size }

// Has reports whether the nth proof of TakeMany was taken.
func (t *TakenProofs) Has(n int) bool {
	id := proofIDOf("jkt", strconv.Itoa(n))
	return t.current.has(id) || t.previous.has(id)
}

// TakeMany takes n proofs of some holders, over two generations.
func TakeMany(n, holders int, at time.Time) *TakenProofs {
	taken := &TakenProofs{takenProofs{maxAll: n, maxHolder: n}}
	for i := range n {
		if i == n/2 {
			at = at.Add(generation + 1)
		}
		id := proofIDOf("jkt", strconv.Itoa(i))
		if reason, err := taken.take(id, holder{id: strconv.Itoa(i % holders)}, at, func() time.Time { return at }); reason != "" || err != nil {
			panic(fmt.Sprint(reason, err))
		}
	}
	return taken
}
