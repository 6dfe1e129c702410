package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrDeadline means that a decision was not on disk in time. The log may still
// contain its entry, but no caller receives the decision.
var ErrDeadline = errors.New("the decision took too long: retry later")

// A Deadline limits the time of a decision, from the end of reading the request
// until the decision is on disk.
type Deadline struct {
	After time.Duration

	mu     sync.Mutex
	shared context.Context // shared by the most recent requests; nil before the first
	until  time.Time       // end of shared
}

// deadlineShare is the fraction of a deadline by which a decision may have to be
// earlier. Requests share a context, because a context of its own, with a timer
// and a connection to cancel, costs more than reading a request.
const deadlineShare = 64

// begin returns a context that ends at the deadline, or up to 1/deadlineShare
// earlier.
func (d *Deadline) begin() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.shared == nil || d.until.Sub(now) < d.After-d.After/deadlineShare {
		d.until = now.Add(d.After)
		shared, release := context.WithDeadlineCause(context.Background(), d.until, ErrDeadline)
		context.AfterFunc(shared, release)
		d.shared = shared
	}
	return d.shared
}

// Run runs act with the deadline. If act ends later, Run returns [ErrDeadline],
// whatever the result of act. A disconnected caller does not cancel act, so that
// every decision is recorded.
func (d *Deadline) Run(ctx context.Context, act func(context.Context) error) error {
	soon := d.begin()
	err := act(deadlineContext{soon, ctx})
	switch {
	case soon.Err() == nil || errors.Is(err, ErrDeadline):
		return err
	case err == nil:
		return ErrDeadline
	}
	return fmt.Errorf("%w: %w", ErrDeadline, err)
}

// A deadlineContext has the deadline of one context and the values of another.
type deadlineContext struct {
	context.Context
	values context.Context
}

// Value looks in the deadline's context first, which has no values except its own
// cancellation.
func (e deadlineContext) Value(key any) any {
	if v := e.Context.Value(key); v != nil {
		return v
	}
	return e.values.Value(key)
}
