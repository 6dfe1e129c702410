package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrDeadline is a decision that was not on disk in time. Its entry may be in
// the log nevertheless; nobody is told what it says.
var ErrDeadline = errors.New("there was no decision in time: ask again")

// A deadline is how long a decision may take, from when its request has been
// read until it is on disk.
type Deadline struct {
	After time.Duration

	mu     sync.Mutex
	shared context.Context // of the requests that were read last; nil before the first
	until  time.Time       // when it ends
}

// deadlineShare a deadline is by how much earlier than it a decision may have to be
// there. A context for each request, with a timer and a place among those that
// end with the connection, would take longer to begin and end than a request
// to read.
const deadlineShare = 64

// begin returns a context that ends at the deadline, or a little earlier.
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

// Run has act end by the deadline. What ends later is errDeadline, whatever act
// has come to. It goes on when its caller is gone: what was decided is recorded.
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

// An ending context has the end of one context and the values of another.
type deadlineContext struct {
	context.Context
	values context.Context
}

// Value asks the context that ends first, which has no values but its own end.
func (e deadlineContext) Value(key any) any {
	if v := e.Context.Value(key); v != nil {
		return v
	}
	return e.values.Value(key)
}
