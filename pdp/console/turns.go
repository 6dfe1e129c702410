package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// mostTurns is how many pages of one person are made at the same time; others wait for turnTime. So a
// person who asks for many large pages delays no decision by much, and takes little memory.
const (
	mostTurns = 2
	turnTime  = 10 * time.Second
)

// errTurn means that a person asks for more pages than are made.
var errTurn = errors.New("too many pages at the same time")

// turns limit the pages that are made for one person at the same time. The zero value is ready, and
// safe for concurrent use.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
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
		return func() { <-one.slots; t.leave(person, one) }, nil
	case <-ctx.Done():
		t.leave(person, one)
		return nil, errTurn
	}
}

func (t *turns) join(person string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = make(map[string]*turn)
	}
	one := t.of[person]
	if one == nil {
		one = &turn{slots: make(chan struct{}, mostTurns)}
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
