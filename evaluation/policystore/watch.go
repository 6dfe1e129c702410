package policystore

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"
)

const (
	// granularity is the longest interval in which two changes can have the same file times, on the coarsest
	// file systems.
	granularity = 2 * time.Second
	// rereads is the number of polls between reads that ignore the file times.
	rereads = 20
)

// Watch calls apply with every new content of the store until ctx ends. Call it at most once.
//
// applied is the initially active state, which [Store.Read] returned, or nil for none. Content is new if
// it differs from the content of the last call of apply, whatever apply returned. So apply must report
// what it refuses, because it does not receive the same content again until the store has had another.
// The exception is [ErrRetry]. After a call of Config.Failed any content is new, even the active one, so
// that apply sees the recovery.
//
// Calls of apply and Config.Failed never overlap.
func (s *Store) Watch(ctx context.Context, applied *State, apply func(context.Context, *State) error) {
	defer close(s.ended)
	w := newWatch(s, applied, apply)
	defer w.notices.close()
	w.run(ctx)
}

// Reload makes [Store.Watch] read the store now and apply the content, new or not. It returns the error of
// either. Concurrent Reloads share one read. Before Watch is called, Reload blocks until it is. After
// Watch has returned, Reload returns [ErrStopped].
func (s *Store) Reload(ctx context.Context) error {
	outcome := make(chan error, 1)
	select {
	case s.reloads <- outcome:
	case <-s.ended:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A watch is the state of the goroutine that watches a store.
type watch struct {
	store   *Store
	apply   func(context.Context, *State) error
	notices *notices
	delay   *delay
	polls   int

	last  outcome  // last outcome passed to apply or Config.Failed
	floor int64    // the version last applied
	seen  *listing // listing of the last read; nil to force a read
}

// An outcome is the result of reading a store: a content or an error.
type outcome struct {
	digest  [sha256.Size]byte
	failure string
}

func newWatch(s *Store, applied *State, apply func(context.Context, *State) error) *watch {
	w := &watch{
		store:   s,
		apply:   apply,
		notices: newNotices(s.notify, s.config.Log),
		delay:   newDelay(),
		floor:   s.config.MinVersion,
	}
	if applied != nil {
		w.seen, w.last = applied.listing, outcome{digest: applied.digest}
		w.accepted(applied)
	}
	return w
}

// accepted records a state that is active.
func (w *watch) accepted(s *State) {
	if s.Manifest != nil {
		w.floor = s.Manifest.Version
	}
}

func (w *watch) run(ctx context.Context) {
	poll := time.NewTicker(w.store.config.Poll)
	defer poll.Stop()
	w.look(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.notices.hints:
			w.delay.hint()
		case <-poll.C:
			w.poll()
		case <-w.delay.C:
			w.look(ctx)
		case outcome := <-w.store.reloads:
			w.reload(ctx, outcome)
		}
	}
}

func (w *watch) poll() {
	if w.polls++; w.polls%rereads == 0 {
		w.seen = nil
	}
	w.delay.hint()
}

// look reads the store if it seems to have changed and to be quiet.
func (w *watch) look(ctx context.Context) {
	w.store.unread.CompareAndSwap(0, time.Now().UnixNano())
	now := w.list()
	switch {
	case w.knows(now):
		w.delay.done()
		w.store.unread.Store(0)
	case now.young(quiet) && !w.delay.over():
		w.delay.hint()
	default:
		w.delay.done()
		_ = w.check(ctx, false) // apply or Config.Failed has it
		w.store.unread.Store(0)
	}
}

// knows reports whether the last read certainly covers what is listed.
func (w *watch) knows(now *listing) bool {
	return w.seen != nil && !w.seen.young(granularity) && w.seen.same(now)
}

// list lists the store and watches its directories for events. If some are newly watched, it lists again,
// because their content, including new directories, may have changed in between.
func (w *watch) list() *listing {
	now := w.listOnce()
	for range maxDepth {
		if !w.notices.follow(w.store.dir, now.dirs()) {
			break
		}
		now = w.listOnce()
	}
	return now
}

func (w *watch) listOnce() *listing {
	root, err := openRoot(w.store.dir)
	if err != nil {
		return &listing{parts: map[string]*part{"": {unread: []unread{{w.store.dir, err}}}}}
	}
	defer root.Close()
	return list(root)
}

// reload serves a call of [Store.Reload] and all others that wait.
func (w *watch) reload(ctx context.Context, first chan<- error) {
	outcomes := []chan<- error{first}
	for waiting := true; waiting; {
		select {
		case outcome := <-w.store.reloads:
			outcomes = append(outcomes, outcome)
		default:
			waiting = false
		}
	}
	w.store.unread.CompareAndSwap(0, time.Now().UnixNano())
	err := w.check(ctx, true)
	w.store.unread.Store(0)
	for _, outcome := range outcomes {
		outcome <- err
	}
}

// check reads the store and passes on new content, or any content if always is set.
func (w *watch) check(ctx context.Context, always bool) error {
	state, err := w.store.read()
	w.seen = nil
	if state != nil {
		w.seen = state.listing
	}
	if err == nil {
		err = state.Manifest.atLeast(w.floor)
	}
	if err != nil {
		w.fail(err)
		return err
	}
	now := outcome{digest: state.digest}
	if now == w.last && !always {
		return nil
	}
	w.last = now
	return w.pass(ctx, state)
}

func (w *watch) pass(ctx context.Context, state *State) error {
	err := w.apply(ctx, state)
	switch {
	case err == nil, errors.Is(err, ErrInPart):
		w.accepted(state)
	case errors.Is(err, ErrRetry):
		w.last, w.seen = outcome{}, nil
	}
	return err
}

func (w *watch) fail(err error) {
	now := outcome{failure: err.Error()}
	if now != w.last {
		w.last = now
		w.store.config.Failed(err)
	}
}
