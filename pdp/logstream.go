package pdp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp/admission"
)

const (
	// logTurn is how long a query of the log runs before it gives its slot to the next one.
	logTurn = 10 * time.Millisecond
	// blockedWrite is how long a write may take before the query gives up its slot.
	blockedWrite = 2 * time.Millisecond
)

// A logStream writes the answer to a query of the log. The query holds a slot while it reads the log,
// encodes entries and writes them. It gives the slot up while the client does not read.
type logStream struct {
	ctx   context.Context
	to    io.Writer
	slots *admission.FairQueue
	owner string
	held  bool
	since time.Time // when the query got its slot
}

// stream runs a query of the log that may have a long answer. The memory of its pages counts as the
// caller's for as long as the client takes to read.
func (l *limiter) stream(c echo.Context, query func(to io.Writer) error) error {
	if err := http.NewResponseController(c.Response()).SetWriteDeadline(noDeadline); err != nil {
		return fmt.Errorf("lift write deadline: %w", err)
	}
	ctx := c.Request().Context()
	pages := admission.Reservation{Budget: l.memory, Owner: "log " + callerFrom(ctx).ID}
	if err := pages.Reserve(min(decisionlog.QueryBytes, l.memory.Limit()/8)); err != nil {
		return err
	}
	defer func() { pages.Release(pages.Bytes) }()
	s := &logStream{ctx: ctx, to: c.Response(), slots: &l.logQueries, owner: pages.Owner}
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	return query(s)
}

// Write writes to the client. On a later write the query may wait for its slot again.
func (s *logStream) Write(b []byte) (int, error) {
	blocked := time.AfterFunc(blockedWrite, s.slots.Release)
	n, err := s.to.Write(b)
	if !blocked.Stop() {
		s.held = false
	} else if time.Since(s.since) > logTurn {
		s.release()
	}
	if err == nil && !s.held {
		err = s.acquire()
	}
	return n, err
}

func (s *logStream) acquire() error {
	if !s.slots.Acquire(s.ctx, s.owner) {
		return fmt.Errorf("wait for other queries of the log: %w", context.Cause(s.ctx))
	}
	s.held, s.since = true, time.Now()
	return nil
}

func (s *logStream) release() {
	if s.held {
		s.slots.Release()
		s.held = false
	}
}
