package evaluation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// shared is a store of two tenants who permit everything.
const shared = `
@id("guard") forbid (principal, action == Action::"erase", resource);
-- tenants/evil/own.cedar --
@id("own") permit (principal, action, resource);
-- tenants/good/own.cedar --
@id("own") permit (principal, action, resource);
`

const (
	goodForbids = "-- tenants/good/more.cedar --\n@id(\"more\") forbid (principal, action, resource);\n"
	rootForbids = "-- more.cedar --\n@id(\"more\") forbid (principal, action, resource);\n"
	evilAtFault = "-- tenants/evil/more.cedar --\npermit (\n"
)

// neighbourhood is an engine on a store of tenants.
type neighbourhood struct {
	*testing.T
	*evaluation.Engine
	log *decisionlog.Log
}

func inNeighbourhood(t *testing.T, c evaluation.Config) neighbourhood {
	t.Helper()
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	e := evaluation.NewEngine(l, c)
	load(t, e, shared)
	return neighbourhood{t, e, l}
}

// change puts a store into force and returns why not all of it is.
func (n neighbourhood) change(text string) error {
	n.Helper()
	_, err := n.Reload(n.Context(), evaluation.Change{Archive: archive(text), Cause: "change"})
	return err
}

// decides checks what a tenant's request is answered; nil for no answer.
func (n neighbourhood) decides(tenant string, want any) {
	n.Helper()
	call := evaluation.Call{Tenant: tenant}
	d, err := n.Evaluate(n.Context(), call, askedIn(n.T).single)
	switch {
	case want == nil && !errors.Is(err, snapshot.ErrNoSnapshot):
		n.Errorf("%s: %v, %v", tenant, d, err)
	case want != nil && (err != nil || d.Decision != want):
		n.Errorf("%s: %v, %v", tenant, d, err)
	}
}

// A tenant at fault keeps its last good files, and keeps nothing from another
// tenant or from the root. What the root forbids counts for it.
func TestTenantAtFault(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	err := n.change(shared + evilAtFault + goodForbids)
	var found faults.List
	if !errors.Is(err, snapshot.ErrInPart) || !errors.As(err, &found) || found[0].File != "tenants/evil/more.cedar" {
		t.Errorf("the change: %v", err)
	}
	n.decides("good", false)
	n.decides("evil", true)
	if s := n.Status(); !s.Stale || !strings.HasPrefix(s.Problem, "tenants/evil/more.cedar:") || s.Revision != revisionOf(t, shared+goodForbids) {
		t.Errorf("status %+v", s)
	}
	n.change(shared + evilAtFault + rootForbids)
	n.decides("good", false)
	n.decides("evil", false)
	n.change(shared + evilAtFault)
	n.decides("good", true)
	n.decides("evil", true)
	if err := n.change(shared); err != nil || n.Status().Stale {
		t.Errorf("mended: %v, %+v", err, n.Status())
	}

	// Each entry has the revision of the files that decided, and can be replayed.
	again := replay.New(n.Snapshots(), n.log.ReadArchive)
	inPart := 0
	for line, err := range n.log.Select(t.Context(), decisionlog.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := replay.ReadEntry(line)
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == decisionlog.KindReload && e.Result.Decision && len(e.Result.Errors) > 0 {
			inPart++
		}
		if err := again.Add(line); err != nil {
			t.Error(err)
		}
	}
	if r := again.Report(); inPart != 3 || len(r.Unfaithful) != 0 || r.Decisions != 6 {
		t.Errorf("%d reloads in part, again %+v", inPart, r)
	}
}

// A tenant with a file that is not read although it looks so keeps its last good
// files, and keeps nothing from another.
func TestTenantMisplaces(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	misplaced := faults.List{{File: "tenants/evil/config.yml", Message: "is not read"}}
	for _, text := range []string{shared + goodForbids + "-- tenants/evil/own.cedar --\n", strings.Split(shared, "-- tenants/evil")[0] + goodForbids + "-- tenants/good/own.cedar --\n"} {
		_, err := n.Reload(t.Context(), evaluation.Change{Archive: archive(text), Cause: "change", TenantFaults: misplaced})
		if !errors.Is(err, snapshot.ErrInPart) || !strings.Contains(err.Error(), "tenants/evil/config.yml: is not read") {
			t.Errorf("the change: %v", err)
		}
		n.decides("good", false)
		n.decides("evil", true)
	}
	if err := n.change(shared); err != nil {
		t.Errorf("mended: %v", err)
	}
	n.decides("good", true)
}

// A tenant whose last good files do not load with the root's new ones is not
// answered: what it had could be what the root forbids now.
func TestTenantAgainstTheRoot(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	if err := n.change(shared + "-- tenants/evil/more.cedar --\n@id(\"more\") permit (principal, action, resource);\n"); err != nil {
		t.Fatal(err)
	}
	err := n.change(shared + "-- tenants/evil/more.cedar --\n@id(\"more\") permit (principal, action, resource);\n" + rootForbids)
	if !errors.Is(err, snapshot.ErrInPart) || !strings.Contains(err.Error(), `tenants/evil/more.cedar:1:1: @id("more") is taken by more.cedar:1`) {
		t.Errorf("the change: %v", err)
	}
	n.decides("good", false)
	n.decides("evil", nil)
	if !n.HasTenant("evil") || n.HasTenant("nobody") {
		t.Error("a tenant that is not answered is one")
	}
}

// A root at fault changes nothing for anybody.
func TestRootAtFault(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	before := inForce(t, n.Engine)
	if err := n.change(shared + goodForbids + "-- more.cedar --\npermit (\n"); err == nil || errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the change: %v", err)
	}
	n.decides("good", true)
	if inForce(t, n.Engine) != before {
		t.Error("another revision is in force")
	}
}

// A tenant that is at fault from the start keeps nothing from another.
func TestTenantAtFaultAtStart(t *testing.T) {
	e := evaluation.NewEngine(openLog(t, t.TempDir(), decisionlog.Config{}), evaluation.Config{})
	n := neighbourhood{t, e, nil}
	if err := n.change(shared + evilAtFault); !errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the start: %v", err)
	}
	n.decides("good", true)
	n.decides("evil", nil)
}

// held has the compilation of stores that contain a text wait until it is
// released.
func held(n neighbourhood, file string) (release func()) {
	released := make(chan struct{})
	n.OnCompile(func(a snapshot.Archive) {
		if a[file] != nil {
			<-released
		}
	})
	return func() { close(released) }
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(what)
		}
	}
}

// A tenant that takes long keeps another from nothing, and comes into force when
// it is compiled. Meanwhile it is told that a change is not in force.
func TestTenantThatTakesLong(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	release := held(n, "tenants/evil/more.cedar")
	const evilForbids = "-- tenants/evil/more.cedar --\n@id(\"more\") forbid (principal, action, resource);\n"
	if err := n.change(shared + evilForbids); !errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the change: %v", err)
	}
	n.decides("evil", true)
	if err := n.change(shared + evilForbids + goodForbids); !errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the other's change: %v", err)
	}
	n.decides("good", false)
	if n.Pending().IsZero() || !n.Status().Stale {
		t.Errorf("pending since %v, status %+v", n.Pending(), n.Status())
	}
	release()
	eventually(t, "it does not come into force", func() bool { return !n.Status().Stale })
	n.decides("evil", false)
	n.decides("good", false)
	if !n.Pending().IsZero() {
		t.Errorf("pending since %v", n.Pending())
	}
}

// A tenant that takes too long is refused, and nobody waits for it any more.
func TestTenantThatTakesTooLong(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{CompileDeadline: 20 * time.Millisecond})
	defer held(n, "tenants/evil/more.cedar")()
	_ = n.change(shared + "-- tenants/evil/more.cedar --\n@id(\"more\") forbid (principal, action, resource);\n")
	eventually(t, "it is not refused", func() bool { return n.Pending().IsZero() })
	if s := n.Status(); !s.Stale || !strings.Contains(s.Problem, snapshot.ErrSlow.Error()) {
		t.Errorf("status %+v", s)
	}
	n.decides("evil", true)
	n.decides("good", true)
}

// A store that takes too long to compile is refused. While it compiles, it is
// told that there is a change that is not in force.
func TestStoreThatTakesTooLong(t *testing.T) {
	e := evaluation.NewEngine(openLog(t, t.TempDir(), decisionlog.Config{}), evaluation.Config{CompileDeadline: 50 * time.Millisecond})
	n := neighbourhood{t, e, nil}
	load(t, e, `@id("a") permit (principal, action, resource);`)
	seen := make(chan time.Time, 1)
	released := make(chan struct{})
	e.OnCompile(func(snapshot.Archive) { seen <- e.Pending(); <-released })
	err := n.change(`@id("a") forbid (principal, action, resource);`)
	close(released)
	if !errors.Is(err, snapshot.ErrSlow) || !e.Status().Stale {
		t.Errorf("%v, status %+v", err, e.Status())
	}
	if since := <-seen; since.IsZero() {
		t.Error("nothing is told while it compiles")
	}
	if !e.Pending().IsZero() {
		t.Error("what is refused is no longer pending")
	}
	n.decides("", true)
}

// Compiling ends at its deadline by itself.
func TestCompileEnds(t *testing.T) {
	e := evaluation.NewEngine(openLog(t, t.TempDir(), decisionlog.Config{}), evaluation.Config{CompileDeadline: time.Nanosecond})
	n := neighbourhood{t, e, nil}
	if err := n.change(shared); !errors.Is(err, snapshot.ErrSlow) {
		t.Error(err)
	}
}

// A store that makes the compiler panic does not load, and the service goes on.
func TestCompilePanics(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	n.OnCompile(func(a snapshot.Archive) {
		if a["tenants/evil/more.cedar"] != nil {
			panic("planted")
		}
	})
	if err := n.change(shared + goodForbids + "-- tenants/evil/more.cedar --\n\n"); !errors.Is(err, snapshot.ErrInPart) || !strings.Contains(err.Error(), "planted") {
		t.Errorf("the change: %v", err)
	}
	n.decides("good", false)
	n.decides("evil", true)
}
