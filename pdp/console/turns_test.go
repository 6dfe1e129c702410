package console_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/policy-service/policy-service/pdp/console"
)

// Two pages of a person are made at the same time. A third waits ten seconds at most, and nobody else
// waits for that person.
func TestPagesOfOnePersonWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns console.Turns
		enter := func(person string) func() {
			leave, err := turns.Enter(t.Context(), person)
			if err != nil {
				t.Fatalf("%s: %v", person, err)
			}
			return leave
		}
		first, second := enter("carol"), enter("carol")
		if _, err := turns.Enter(t.Context(), "carol"); !errors.Is(err, console.ErrTurn) {
			t.Errorf("a third page: %v", err)
		}
		enter("dave")()
		waited := make(chan func())
		go func() { waited <- enter("carol") }()
		synctest.Wait()
		first()
		(<-waited)()
		second()
		if turns.Len() != 0 {
			t.Errorf("%d people are remembered", turns.Len())
		}
	})
}
