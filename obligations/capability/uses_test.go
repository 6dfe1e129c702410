package capability_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Of 100 calls at once, as many take a use as there are.
func TestUses(t *testing.T) {
	for _, n := range []int{1, 7, 100} {
		s := open(t)
		s.issue(t, uses(n))
		var permits, ended atomic.Int64
		var found, answered sync.WaitGroup
		found.Add(100)
		for i := range 100 {
			answered.Go(func() {
				status, err := s.Find(t.Context(), requested(s.call("files:read_file", "", claim("", true)), fmt.Sprint(i)))
				found.Done()
				if err != nil || status.Consume == nil {
					t.Error(status, err)
					return
				}
				found.Wait() // then all take at once
				switch taken, err := status.Consume(); {
				case taken:
					permits.Add(1)
				case errors.Is(err, authzen.ErrCapabilityEnded):
					ended.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		answered.Wait()
		if permits.Load() != int64(n) || permits.Load()+ended.Load() != 100 {
			t.Errorf("%d uses: %d permits, %d refusals", n, permits.Load(), ended.Load())
		}
	}
}

func TestARepetitionTakesNoUse(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(2))
	take := func(id, tool, arguments string) (left int, taken bool) {
		t.Helper()
		status := s.find(t, requested(s.call(tool, arguments, claim("", true)), id))
		if status.Capability == nil {
			return 0, false
		}
		taken, err := status.Consume()
		if err != nil {
			t.Fatal(err)
		}
		return status.Capability.UsesLeft, taken
	}
	for _, step := range []struct {
		id, tool, arguments string
		pass                time.Duration
		left                int
		taken               bool
	}{
		{"r1", "files:read_file", `{"a":1,"b":2}`, 0, 2, true},
		{"r1", "files:read_file", `{"b":2, "a":1}`, 30 * time.Second, 2, false},
		{"r1", "files:read_file", `{"a":2}`, 0, 1, true},                  // another call under the same id
		{"r1", "files:read_file", `{"a":2}`, 0, 1, false},                 // the last use, repeated
		{"r2", "files:read_file", `{"a":2}`, 0, 0, false},                 // another id
		{"r1", "files:read_file", `{"a":1,"b":2}`, 0, 1, false},           // 30 s after it
		{"r1", "files:read_file", `{"a":1,"b":2}`, time.Minute, 0, false}, // and 90 s
	} {
		s.pass(step.pass)
		if left, taken := take(step.id, step.tool, step.arguments); left != step.left || taken != step.taken {
			t.Errorf("%+v: %d left, taken %v", step, left, taken)
		}
	}
	s.sweep(t)
	if got, want := s.events(t), "issue/active exhaust/exhausted"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	if got := s.find(t, s.call("files:read_file", "", claim(c.ID, true))); got.Denied != authzen.CapabilityExhausted {
		t.Errorf("after its end: %+v", got)
	}
}

// A call without a request id is never a repetition.
func TestCallsWithoutARequestIDTakeAUseEach(t *testing.T) {
	s := open(t)
	s.issue(t, uses(2))
	for i, want := range []bool{true, true, false} {
		if got := s.decide(t, s.call("files:read_file", "", claim("", true))); got != want {
			t.Errorf("call %d: %v", i+1, got)
		}
	}
}

// A repetition of the last call is answered after the capability has ended, too.
func TestTheLastCallCanBeRepeated(t *testing.T) {
	s := open(t)
	s.issue(t, uses(1))
	call := func() bool { return s.decide(t, requested(s.call("files:read_file", "", claim("", true)), "r1")) }
	if !call() {
		t.Fatal("the only use is refused")
	}
	s.sweep(t)
	if !call() {
		t.Error("its repetition is refused")
	}
	s.pass(2 * time.Minute)
	s.sweep(t)
	if call() {
		t.Error("it is answered after two minutes")
	}
}

func TestListsSpendNothing(t *testing.T) {
	s := open(t)
	s.issue(t, uses(1))
	for range 50 {
		status := s.find(t, s.call("files:read_file", "", claim("", false)))
		if status.Capability == nil || status.Consume != nil || status.Capability.UsesLeft != 1 {
			t.Fatalf("a question without a call: %+v", status)
		}
	}
	if s.found(t, s.call("files:read_file", "", nil)) != "" {
		t.Error("a limited capability is found without a claim")
	}
	if !s.decide(t, s.call("files:read_file", "", claim("", true))) {
		t.Error("the call is refused")
	}
}

// After a crash, what was answered is taken, and what was not answered was never used.
func TestUsesAfterACrash(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(5))
	for range 2 {
		s.decide(t, s.call("files:read_file", "", claim("", true)))
	}
	s.pass(2 * time.Minute)
	s.sweep(t) // stores the first two
	s.decide(t, s.call("files:read_file", "", claim("", true)))
	unanswered := s.find(t, s.call("files:read_file", "", claim("", true)))
	if taken, err := unanswered.Consume(); !taken || err != nil {
		t.Fatal(taken, err)
	}
	s.crash(t)
	if got, err := s.Get(t.Context(), c.ID); err != nil || got.Used != 3 {
		t.Errorf("after a crash %d uses are taken, want 3: %v", got.Used, err)
	}
	answered := 0
	for s.decide(t, s.call("files:read_file", "", claim("", true))) {
		answered++
	}
	if answered != 2 {
		t.Errorf("%d calls are answered after the crash, want 2", answered)
	}
}

// The control of the tests of crashes: a service that does not read the log gives uses again.
func TestUsesAreForgottenWithoutTheLog(t *testing.T) {
	s := openWith(t, func(c *capability.Config) { c.UsesSince = nil })
	s.issue(t, uses(1))
	if !s.decide(t, s.call("files:read_file", "", claim("", true))) {
		t.Fatal("the only use is refused")
	}
	s.crash(t)
	if !s.decide(t, s.call("files:read_file", "", claim("", true))) {
		t.Error("the use is taken without the log: the tests of crashes prove nothing")
	}
}

// At whatever point the process ends, n uses are answered n times at most, and repetitions cost none.
func TestNeverOneUseMore(t *testing.T) {
	const n = 20
	for _, every := range []int{1, 3, 7} {
		s := open(t)
		s.issue(t, uses(n))
		answered := map[string]bool{}
		for i := range 3 * n {
			id := fmt.Sprint("r", i)
			for range 1 + i%2 { // every other call is repeated
				if s.decide(t, requested(s.call("files:read_file", `{"n":1}`, claim("", true)), id)) {
					answered[id] = true
				}
			}
			s.pass(time.Second)
			switch {
			case i%every == 0 && i%2 == 0:
				s.crash(t)
			case i%every == 0:
				s.reopen(t)
			case i%5 == 0:
				s.pass(time.Minute)
				s.sweep(t)
			}
		}
		if len(answered) != n {
			t.Errorf("restart after every %d calls: %d of %d uses are answered", every, len(answered), n)
		}
	}
}

// A repetition is recognized after a restart, although the log before the snapshot is not read again.
func TestARepetitionAfterARestartTakesNoUse(t *testing.T) {
	s := open(t)
	s.issue(t, uses(1))
	call := func() bool { return s.decide(t, requested(s.call("files:read_file", "", claim("", true)), "r1")) }
	for _, restart := range []func(testing.TB){s.reopen, s.crash} {
		if !call() {
			t.Error("the call, or its repetition, is refused")
		}
		restart(t)
	}
	if from := s.reads[len(s.reads)-1]; from == 0 {
		t.Error("the log is read from its beginning")
	}
}

// While no use is taken, the log is not read.
func TestTheLogIsReadOnlyForUses(t *testing.T) {
	s := open(t)
	s.issue(t, uses(5))
	before := len(s.reads)
	for range 10 {
		s.pass(2 * time.Minute)
		s.append(capability.Use{}) // some entry
		s.sweep(t)
	}
	if len(s.reads) != before {
		t.Errorf("it was read %d times", len(s.reads)-before)
	}
	s.reopen(t)
	if from := s.reads[len(s.reads)-1]; from != s.size {
		t.Errorf("at the start it is read from %d of %d", from, s.size)
	}
}

// An entry that is appended late is counted, although a snapshot came between its use and it.
func TestAnEntryAfterTheSnapshotCounts(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(1))
	status := s.find(t, s.call("files:read_file", "", claim("", true)))
	if taken, err := status.Consume(); !taken || err != nil {
		t.Fatal(taken, err)
	}
	s.pass(2 * time.Minute)
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.append(capability.Use{Tenant: gateway.Tenant, ID: c.ID, Time: s.time()})
	s.pass(2 * time.Minute)
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.crash(t)
	if s.decide(t, s.call("files:read_file", "", claim("", true))) {
		t.Error("the use is given twice")
	}
}

// The first answer to a call fails because the log does, and its repetition is answered. The entry of
// the repetition is the record of the use.
func TestARepetitionOfAnUnansweredCallCounts(t *testing.T) {
	s := open(t)
	s.issue(t, uses(1))
	call := func() *authzen.CapabilityQuestion {
		return requested(s.call("files:read_file", "", claim("", true)), "r1")
	}
	if taken, err := s.find(t, call()).Consume(); !taken || err != nil { // and no entry follows
		t.Fatal(taken, err)
	}
	if !s.decide(t, call()) {
		t.Fatal("the repetition is refused")
	}
	s.crash(t)
	if s.decide(t, requested(call(), "r2")) {
		t.Error("the use is given twice")
	}
}

// A log that lost its end, of entries that nobody waited for, is read from its new end on.
func TestALogThatLostItsEnd(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(2))
	s.decide(t, s.call("files:read_file", "", claim("", true)))
	for range 10 {
		s.append(capability.Use{})
	}
	s.reopen(t)
	s.size, s.uses = s.size-10, s.uses[:1]
	s.crash(t)
	if from := s.reads[len(s.reads)-1]; from > s.size {
		t.Errorf("it is read from %d of %d", from, s.size)
	}
	s.decide(t, s.call("files:read_file", "", claim("", true)))
	s.crash(t)
	if got, err := s.Get(t.Context(), c.ID); err != nil || got.Used != 2 {
		t.Errorf("%d uses, want 2: %v", got.Used, err)
	}
}

// An entry that is appended while the log is read counts once.
func TestAnEntryDuringTheSnapshotCountsOnce(t *testing.T) {
	s := open(t)
	var late []capability.Use
	s.config.LogSize = func() uint64 {
		size := s.logSize()
		for _, u := range late {
			s.append(u)
		}
		late = nil
		return size
	}
	s.reopen(t)
	c := s.issue(t, uses(3))
	if taken, err := s.find(t, s.call("files:read_file", "", claim("", true))).Consume(); !taken || err != nil {
		t.Fatal(taken, err)
	}
	late = []capability.Use{{Tenant: gateway.Tenant, ID: c.ID, Time: s.time()}}
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.crash(t)
	if got, err := s.Get(t.Context(), c.ID); err != nil || got.Used != 1 {
		t.Errorf("%d uses, want 1: %v", got.Used, err)
	}
}

// A request id that was not valid Unicode may be any other such id.
func TestAnInvalidRequestIDRepeatsNothing(t *testing.T) {
	s := open(t)
	s.issue(t, uses(2))
	for i, want := range []bool{true, true, false} {
		if got := s.decide(t, requested(s.call("files:read_file", "", claim("", true)), "r\uFFFD")); got != want {
			t.Errorf("call %d: %v", i+1, got)
		}
	}
}

// A service without capabilities reads nothing of a long log.
func TestTheFirstStartReadsNoLog(t *testing.T) {
	s := open(t)
	for range 10 {
		s.append(capability.Use{})
	}
	s.crash(t)
	if len(s.reads) != 0 {
		t.Errorf("it is read from %d", s.reads)
	}
	s.issue(t, uses(1))
	s.decide(t, s.call("files:read_file", "", claim("", true)))
	s.crash(t)
	if s.decide(t, s.call("files:read_file", "", claim("", true))) {
		t.Error("the use is given twice")
	}
}

// A clock that is set back does not revive a capability, not even over a restart.
func TestClockBack(t *testing.T) {
	s := open(t)
	c := s.issue(t, terms(nil, "files:read_file"))
	q := s.call("files:read_file", "", claim(c.ID, true))
	q.Time = morning.Add(time.Hour)
	if got := s.find(t, q); got.Denied != authzen.CapabilityExpired {
		t.Errorf("an hour later: %+v", got)
	}
	q.Time = morning
	if got := s.find(t, q); got.Denied != authzen.CapabilityExpired {
		t.Errorf("the clock is set back: %+v", got)
	}
	s.reopen(t)
	if got := s.find(t, q); got.Denied != authzen.CapabilityExpired {
		t.Errorf("the clock is set back, and the service restarted: %+v", got)
	}
	s.config.NotBefore = morning.Add(2 * time.Hour)
	s.crash(t)
	if made := s.issue(t, terms(nil, "files:read_file")); made.Constraints.ValidFrom.Before(s.config.NotBefore) {
		t.Errorf("issued at %s, before the last log entry", made.Constraints.ValidFrom)
	}
}
