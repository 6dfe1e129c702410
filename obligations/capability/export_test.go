package capability

import (
	"context"
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
