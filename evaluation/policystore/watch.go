package policystore

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"
)

const (
	// granularity is how far apart two changes may be that no file's times show,
	// on the coarsest file systems.
	granularity = 2 * time.Second
	// rereads is how many polls pass between readings regardless of the times.
	rereads = 20
)

// Watch calls apply with every new content of the store until ctx ends. It may
// be called once.
//
// What is in force at first is applied, a state that [Store.Read] returned, or
// nothing if it is nil. Content is new if it is not what apply was last called
// with, whatever apply returned: what it refuses it has to report, because it
// does not see it again until something else was there. Only [ErrRetry] leaves
// the question open. Once Config.Failed has been called, any content is new,
// also what is in force: that is how recovery shows.
//
// One call of apply or Config.Failed ends before the next begins.
func (s *Store) Watch(ctx context.Context, applied *State, apply func(context.Context, *State) error) {
	defer close(s.ended)
	w := newWatch(s, applied, apply)
	defer w.notices.close()
	w.run(ctx)
}

// Reload makes [Store.Watch] read the store now and apply the content, new or
// not. It returns the error of either. Reloads that wait for each other share
// one reading. Before Watch is called, Reload waits for it; after it has
// returned, the error is [ErrStopped].
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

// A watch is what one goroutine knows of a store that it follows.
type watch struct {
	store   *Store
	apply   func(context.Context, *State) error
	notices *notices
	delay   *delay
	polls   int

	last  outcome  // what apply or Config.Failed was last told
	floor int64    // the version last applied
	seen  *listing // of what was last read; nil when it is to be read again
}

// An outcome is what came of reading a store: a content or a failure.
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

// accepted takes note of a state that is in force.
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
		_ = w.check(ctx, false) // it has been told
		w.store.unread.Store(0)
	}
}

// knows reports whether what is listed has been read for certain.
func (w *watch) knows(now *listing) bool {
	return w.seen != nil && !w.seen.young(granularity) && w.seen.same(now)
}

// list lists the store, and sees to it that the file system says when its
// directories change. If some were not watched before, it lists again what may
// have changed in them meanwhile, among it directories that are new.
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

// check reads the store and passes on what is new in it, or, if always is set,
// whatever is in it.
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
