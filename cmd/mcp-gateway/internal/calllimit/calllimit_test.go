package calllimit_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/calllimit"
)

var (
	alice = calllimit.Caller{Type: "user", ID: "alice"}
	other = calllimit.Caller{Tenant: "acme", Type: "user", ID: "alice"}
)

func call(tool string) calllimit.Call {
	return calllimit.Call{Server: "crm", Tool: tool, Caller: alice}
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := calllimit.New([]calllimit.Limit{
			{Calls: 5, Per: time.Hour},
			{Calls: 2, Per: time.Minute, Servers: []string{"crm"}, Tools: []string{"delete_*"}},
		}, nil)
		take := func(c calllimit.Call, want time.Duration) func() {
			t.Helper()
			release, err := l.Take(c)
			var exceeded *calllimit.ExceededError
			if errors.As(err, &exceeded); (exceeded == nil) != (want == 0) || exceeded != nil && exceeded.After != want {
				t.Errorf("%v: %v, want to wait %s", c, err, want)
			}
			return release
		}
		take(call("delete_a"), 0)
		time.Sleep(20 * time.Second)
		take(call("delete_b"), 0)
		take(call("delete_a"), 40*time.Second)
		take(call("read"), 0)
		theirs := call("delete_a")
		theirs.Caller = other
		take(theirs, 0)
		elsewhere := call("delete_a")
		elsewhere.Server = "files"
		take(elsewhere, 0)
		take(call("read"), 0)()
		take(call("read"), 0)
		take(call("read"), time.Hour-20*time.Second)
		time.Sleep(time.Hour - 20*time.Second)
		take(call("delete_c"), 0)
		take(call("delete_c"), 20*time.Second)
	})
}

// A pattern matches names with any characters, as a server may give them.
func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, tool string
		limited       bool
	}{
		{"*", "admin/delete", true}, {"delete_*", "delete_a/b", true}, {"delete_*", "delete_a\nb", true}, {"admin/*", "admin/a/b", true}, {"a?b", "a/b", true},
		{"a[^x]b", "a/b", true}, {"admin/delete", "admin/delete", true}, {"admin/delete", "admin-delete", false}, {"delete_*", "Delete_a", false}, {"a[.-0]b", "a/b", true},
	} {
		l := calllimit.New([]calllimit.Limit{{Calls: 1, Per: time.Hour, Tools: []string{test.pattern}}}, nil)
		_, first := l.Take(call(test.tool))
		_, second := l.Take(call(test.tool))
		if first != nil || (second != nil) != test.limited {
			t.Errorf("%q %q: %v, %v", test.pattern, test.tool, first, second)
		}
	}
}

// In any period there are at most as many calls as the limit allows, whenever they
// come and are released, also around a restart.
func TestNeverExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []calllimit.Limit{{Calls: 7, Per: 10 * time.Second}}
		random := rand.New(rand.NewPCG(1, 2))
		l := calllimit.New(limits, nil)
		var made []time.Time
		for range 5000 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			release, err := l.Take(call("a"))
			switch {
			case err != nil:
			case random.IntN(4) == 0:
				release()
			default:
				made = append(made, time.Now())
			}
			if random.IntN(100) == 0 {
				l = calllimit.New(limits, nil)
				for _, at := range made {
					l.Count(call("a"), at)
				}
			}
		}
		for i := 7; i < len(made); i++ {
			if within := made[i].Sub(made[i-7]); within < 10*time.Second {
				t.Fatalf("8 calls within %s", within)
			}
		}
		if len(made) < 2500 {
			t.Errorf("only %d calls are made", len(made))
		}
	})
}

// Calls at the same time take no more than there is.
func TestTakeIsExact(t *testing.T) {
	l := calllimit.New([]calllimit.Limit{{Calls: 100, Per: time.Hour}}, nil)
	var group sync.WaitGroup
	taken := make(chan bool, 1000)
	for range 1000 {
		group.Go(func() {
			if _, err := l.Take(call("a")); err == nil {
				taken <- true
			}
		})
	}
	group.Wait()
	if len(taken) != 100 {
		t.Errorf("%d calls are made, want 100", len(taken))
	}
}
