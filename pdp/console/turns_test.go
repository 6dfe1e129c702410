package console_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/pdp/console"
)

// enterer returns a function that enters for a person.
func enterer(t *testing.T, turns *console.Turns) func(person string) (leave func()) {
	return func(person string) func() {
		leave, err := turns.Enter(t.Context(), person)
		if err != nil {
			t.Fatalf("%s: %v", person, err)
		}
		return leave
	}
}

// The pages of one person are made on half of the processors, two at most. A further page waits ten seconds
// at most, and nobody else waits for that person.
func TestPagesOfOnePersonWait(t *testing.T) {
	for processors, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 2} {
		synctest.Test(t, func(t *testing.T) {
			turns := console.NewTurns(processors, func() int64 { return 0 })
			enter := enterer(t, turns)
			var leave []func()
			for range most {
				leave = append(leave, enter("carol"))
			}
			if _, err := turns.Enter(t.Context(), "carol"); !errors.Is(err, console.ErrTurn) {
				t.Errorf("a page too many on %d processors: %v", processors, err)
			}
			enter("dave")()
			waited := make(chan func())
			go func() { waited <- enter("carol") }()
			synctest.Wait()
			for _, leave := range leave {
				leave()
			}
			(<-waited)()
			time.Sleep(time.Second)
			synctest.Wait()
			if turns.Len() != 0 {
				t.Errorf("%d people are remembered", turns.Len())
			}
		})
	}
}

// After a page during which PEPs got answers, the next page of the person waits three times as long, at
// most a second. Without them, pages follow each other at once.
func TestPagesRestWhilePEPsAsk(t *testing.T) {
	for _, c := range []struct {
		took, rest time.Duration
		answers    int64
	}{
		{took: time.Millisecond}, {took: 5 * time.Second},
		{took: 10 * time.Millisecond, rest: 30 * time.Millisecond, answers: 1}, {took: 5 * time.Second, rest: time.Second, answers: 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			var answers int64
			enter := enterer(t, console.NewTurns(2, func() int64 { return answers }))
			leave := enter("carol")
			time.Sleep(c.took)
			answers += c.answers
			leave()
			began := time.Now()
			enter("dave")()
			if waited := time.Since(began); waited != 0 {
				t.Errorf("somebody else waits %v", waited)
			}
			enter("carol")()
			if waited := time.Since(began); waited != c.rest {
				t.Errorf("after a page of %v and %d answers, the next one waits %v, want %v", c.took, c.answers, waited, c.rest)
			}
		})
	}
}
