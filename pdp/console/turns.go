package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pages of one person are made on half of the processors, by at most mostTurns of them; others wait for
// turnTime. After a page during which PEPs got answers, its slot rests restShare times as long, at most
// restTime. So a person who asks for many large pages delays no decision by much, and takes little memory.
const (
	mostTurns = 2
	turnTime  = 10 * time.Second
	restShare = 3
	restTime  = time.Second
)

// errTurn means that a person asks for more pages than are made.
var errTurn = errors.New("too many pages at the same time")

// turns limit the pages that are made for one person at the same time. It is safe for concurrent use.
type turns struct {
	slots   int          // of each person
	answers func() int64 // number of answers to PEPs so far

	mu sync.Mutex
	of map[string]*turn
}

// newTurns returns the turns for a number of processors.
func newTurns(processors int, answers func() int64) *turns {
	return &turns{slots: min(max(1, processors/2), mostTurns), answers: answers, of: make(map[string]*turn)}
}

// A turn is a person's share.
type turn struct {
	slots chan struct{}
	users int // requests that have a slot or wait for one
}

// enter waits for a slot of a person, and returns what gives it back. The error is errTurn if none
// becomes free in time.
func (t *turns) enter(ctx context.Context, person string) (leave func(), err error) {
	one := t.join(person)
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	select {
	case one.slots <- struct{}{}:
		began, seen := time.Now(), t.answers()
		return func() {
			rest := time.Duration(0)
			if t.answers() != seen {
				rest = min(restShare*time.Since(began), restTime)
			}
			t.free(person, one, rest)
		}, nil
	case <-ctx.Done():
		t.leave(person, one)
		return nil, errTurn
	}
}

// free gives a slot back, after a rest.
func (t *turns) free(person string, one *turn, rest time.Duration) {
	free := func() { <-one.slots; t.leave(person, one) }
	if rest == 0 {
		free()
		return
	}
	time.AfterFunc(rest, free)
}

func (t *turns) join(person string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[person]
	if one == nil {
		one = &turn{slots: make(chan struct{}, t.slots)}
		t.of[person] = one
	}
	one.users++
	return one
}

func (t *turns) leave(person string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.of, person)
	}
}
