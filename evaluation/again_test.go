package evaluation_test

import (
	"errors"
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// What a change waits for does not bring that change back once a later one is
// in force, also if it is ready while the later one is on its way.
func TestLateTenantAfterLaterChange(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	const evilForbids = "-- tenants/evil/more.cedar --\n@id(\"more\") forbid (principal, action, resource);\n"
	evil, good, begun, later := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error)
	n.OnCompile(func(a snapshot.Archive) {
		switch {
		case a["tenants/evil/more.cedar"] != nil:
			<-evil
		case a["tenants/good/more.cedar"] != nil:
			close(begun)
			<-good
		}
	})
	if err := n.change(shared + evilForbids); !errors.Is(err, snapshot.ErrInPart) {
		t.Fatalf("the change: %v", err)
	}
	go func() { later <- n.change(shared + evilForbids + goodForbids) }()
	<-begun
	close(evil) // the first change is ready, and the later one waits
	if err := <-later; !errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the later change: %v", err)
	}
	close(good)
	eventually(t, "it does not come into force", func() bool { return !n.Status().Stale })
	n.decides("good", false)
	n.decides("evil", false)
}

// A tenant whose last good files take long to compile with a new root is not
// answered meanwhile, and is when they are compiled.
func TestLastGoodFilesThatTakeLong(t *testing.T) {
	n := inNeighbourhood(t, evaluation.Config{})
	released := make(chan struct{})
	n.OnCompile(func(a snapshot.Archive) {
		if a["more.cedar"] != nil && a["tenants/evil/own.cedar"] != nil && a["tenants/evil/more.cedar"] == nil {
			<-released
		}
	})
	if err := n.change(shared + evilAtFault + rootForbids); !errors.Is(err, snapshot.ErrInPart) {
		t.Errorf("the change: %v", err)
	}
	n.decides("good", false)
	n.decides("evil", nil)
	close(released)
	eventually(t, "it is not answered", func() bool { _, err := n.Snapshots().For("evil"); return err == nil })
	n.decides("evil", false)
	if !n.Pending().IsZero() || !n.Status().Stale {
		t.Errorf("pending since %v, status %+v", n.Pending(), n.Status())
	}
}
