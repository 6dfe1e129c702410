package conformance_test

import (
	"flag"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

var overloadDuration = flag.Duration("overload.duration", time.Second, "how long TestOverload is asked too much")

const (
	// overloadPart is how long a round of overload takes. Rounds of the other kinds
	// are before and after it, so that what else the machine does meets all alike.
	// At the end of an overload those who still wait are answered: a round is so
	// long that they are no hundredth of all.
	overloadPart = time.Minute
	// overloadPEPs are more than are worked on at once, and fewer than the service
	// has connections for.
	overloadPEPs = 3000
	// overloadFactor is how many times as much is asked as can be answered.
	overloadFactor = 3
	// enoughOverload is from how long on the figures have to be those promised.
	enoughOverload = 30 * time.Second
)

// Promised for overload: of what can be decided in a second, against what takes
// how long when half as much is asked.
const (
	minGoodput  = 0.9
	maxSlower   = 3.0
	maxNoise    = 1.5
	maxRecovery = 2 * time.Second
)

// An overloaded service is what was measured of it.
type overloaded struct {
	full, half, over flow
	recovery         time.Duration // the longest until it was as fast as at half load
}

// overload asks a service as much as it can answer, half of that, and then
// three times as much, in turns.
func overload(t *testing.T, s *server, duration time.Duration) *overloaded {
	t.Helper()
	var o overloaded
	for left := duration; left > 0; left -= overloadPart {
		part := min(left, overloadPart)
		other := part / 4 // a round of another kind
		full := newStream(s, "", 0).saturate(64, other)
		o.full.add(full)
		half := newStream(s, "", full.goodput()/2)
		normal := half.run(other)
		o.half.add(normal)
		over := newStream(s, "", overloadFactor*full.goodput())
		over.peps = overloadPEPs
		o.over.add(over.run(part))
		o.recovery = max(o.recovery, settled(half.run(other), maxSlower*float64(normal.p(99))))
		o.full.add(newStream(s, "", 0).saturate(64, other))
	}
	for _, f := range []*flow{&o.full, &o.half, &o.over} {
		f.clean(t)
	}
	t.Logf("as much as can be: %v", &o.full)
	t.Logf("half of that:      %v", &o.half)
	t.Logf("%d times that:      %v", overloadFactor, &o.over)
	t.Logf("decided %.2f of what can be, p99 %.1f times that at half load, as fast again after %v",
		o.goodput(), o.slower(), o.recovery.Round(time.Millisecond))
	return &o
}

// all reports whether everything was decided.
func (o *overloaded) all() bool { return len(o.over.answers) == o.over.due }

// goodput is how much of what could be decided was.
func (o *overloaded) goodput() float64 { return o.over.goodput() / o.full.goodput() }

// slower is how many times as long the slowest hundredth took.
func (o *overloaded) slower() float64 { return float64(o.over.p(99)) / float64(o.half.p(99)) }

// settled is how long it took until, for a second, no more than a hundredth of
// the answers of any quarter of it took longer than normal. What a disk that
// stalls does later is no part of that.
func settled(f *flow, normal float64) time.Duration {
	const window, calm = 250 * time.Millisecond, 4
	if len(f.answers) == 0 {
		return f.took
	}
	start := slices.MinFunc(f.answers, func(a, b decided) int { return a.due.Compare(b.due) }).due
	slow, all := make([]int, f.took/window+1), make([]int, f.took/window+1)
	for _, a := range f.answers {
		w := min(a.due.Sub(start)/window, f.took/window)
		all[w]++
		if float64(a.took) > normal {
			slow[w]++
		}
	}
	after := 0
	for w := range all {
		if all[w] == 0 || slow[w]*100 > all[w] {
			after = w + 1
		}
		if w+1-after == calm {
			return time.Duration(after) * window
		}
	}
	return f.took
}

// L2: asked three times as much as it can answer, the service answers as much as
// ever, soon, and says to the others when to ask again. The control has no
// limit: everything is begun, and takes long.
func TestOverload(t *testing.T) {
	underLoad(t)
	s := serve(t, "certification")
	limited := overload(t, s, *overloadDuration)
	for try := 0; try < 4 && limited.all() && *overloadDuration < enoughOverload; try++ {
		limited = overload(t, s, *overloadDuration) // other programs kept it from what it can answer at first
	}
	if limited.all() {
		t.Error("everything was decided: that was no overload")
	}
	lifted := overload(t, serve(t, "certification", "--max-in-flight", "1000000"), min(*overloadDuration, overloadPart/3))
	if *overloadDuration < enoughOverload {
		return
	}
	if limited.over.p(50) >= lifted.over.p(50) {
		t.Errorf("half of the answers took up to %v, and %v without a limit", limited.over.p(50), lifted.over.p(50))
	}
	if limited.goodput() < minGoodput || limited.slower() > maxSlower || limited.recovery > maxRecovery {
		t.Errorf("promised are %.2f, %.1f times and %v", minGoodput, maxSlower, maxRecovery)
	}
}

// L2: a tenant that asks three times as much as can be answered makes others
// wait no longer than if it kept to its rate. The control has one line and one
// rate for both.
func TestNoisyTenant(t *testing.T) {
	underLoad(t)
	capacity := newStream(serve(t, "certification"), "", 0).saturate(64, min(*overloadDuration, overloadPart)/4).goodput()
	s := serve(t, "certification", "--tenant-rate", strconv.Itoa(int(capacity/2)))
	apart, shed := noise(t, s, "quiet", capacity)
	together, noisy := noise(t, s, "noisy", capacity)
	t.Logf("p99 beside noise is %.2f of that beside another tenant; %.2f as a part of the noise; %d and %d turned away", apart, together, shed, noisy)
	if shed > noisy {
		t.Errorf("of the quiet tenant %d were turned away, and of as many of the noisy one %d", shed, noisy)
	}
	if apart > maxNoise && *overloadDuration >= enoughOverload {
		t.Errorf("p99 beside noise is more than %.1f of the usual", maxNoise)
	}
}

// noise asks as a tenant, beside one that keeps to its rate and beside one that
// does not, and returns how much longer the slowest hundredth took, and how many
// were turned away.
func noise(t *testing.T, s *server, tenant string, capacity float64) (slower float64, shed int) {
	t.Helper()
	var usual, noisy flow
	for left := *overloadDuration; left > 0; left -= overloadPart {
		part := min(left, overloadPart)
		usual.add(beside(s, tenant, capacity/20, capacity/2, part))
		noisy.add(beside(s, tenant, capacity/20, overloadFactor*capacity, part))
	}
	usual.clean(t)
	noisy.clean(t)
	t.Logf("%s, usual: %v", tenant, &usual)
	t.Logf("%s, noise: %v", tenant, &noisy)
	return float64(noisy.p(99)) / float64(usual.p(99)), noisy.shed
}

// beside asks as a tenant and as the noisy one, and returns what became of the
// first.
func beside(s *server, tenant string, rate, noise float64, duration time.Duration) (f *flow) {
	var streams sync.WaitGroup
	streams.Go(func() { newStream(s, "noisy", noise).run(duration) })
	streams.Go(func() { f = newStream(s, tenant, rate).run(duration) })
	streams.Wait()
	return f
}
