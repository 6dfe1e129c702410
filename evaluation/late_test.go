package evaluation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// bounded fails the test unless something takes no longer than a time.
func bounded(t *testing.T, limit time.Duration, do func()) {
	t.Helper()
	start := time.Now()
	do()
	if took := time.Since(start); took > limit {
		t.Errorf("it took %v, more than %v", took, limit)
	}
}

// inForceSoon is how long after a reload a new root counts for every tenant.
const inForceSoon = 2 * time.Second

// A new forbid of the root counts for all tenants at once. One that is not
// compiled by then is not answered until it is.
func TestNewRootCountsForLateTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inNeighbourhood(t, evaluation.Config{GuardShrink: true})
		large := shared
		for i := range 20 {
			large += fmt.Sprintf("-- tenants/evil/more%d.cedar --\n@id(\"more%d\") permit (principal, action, resource);\n", i, i)
		}
		if err := n.change(large); err != nil {
			t.Fatal(err)
		}
		n.OnCompile(func(a snapshot.Archive) {
			if a["more.cedar"] != nil && a["tenants/evil/own.cedar"] != nil {
				time.Sleep(10 * time.Second)
			}
		})
		bounded(t, inForceSoon, func() {
			if err := n.change(large + rootForbids); !errors.Is(err, snapshot.ErrInPart) {
				t.Errorf("the change: %v", err)
			}
		})
		n.decides("good", false)
		n.decides("evil", nil)
		if n.Pending().IsZero() || !strings.Contains(n.Status().Problem, "tenant evil: its policies are being compiled") {
			t.Errorf("pending since %v, status %+v", n.Pending(), n.Status())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		n.decides("evil", false)
		if n.Status().Stale || !n.Pending().IsZero() {
			t.Errorf("pending since %v, status %+v", n.Pending(), n.Status())
		}
	})
}

// A tenant that is late with what it changed itself is answered by its last good
// files with the new root.
func TestNewRootFallsBackForLateTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inNeighbourhood(t, evaluation.Config{})
		defer held(n, "tenants/evil/more.cedar")()
		bounded(t, inForceSoon, func() {
			_ = n.change(shared + "-- tenants/evil/more.cedar --\n@id(\"late\") permit (principal, action, resource);\n" + rootForbids)
		})
		n.decides("good", false)
		n.decides("evil", false)
	})
}

// Tenants that fall back to their last good files do so at once, however many.
func TestFallBackTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inNeighbourhood(t, evaluation.Config{})
		sound, faulty := shared, shared
		for i := range 20 {
			own := fmt.Sprintf("-- tenants/t%d/own.cedar --\n@id(\"own\") permit (principal, action, resource);\n", i)
			sound, faulty = sound+own, faulty+own+fmt.Sprintf("-- tenants/t%d/more.cedar --\npermit (\n", i)
		}
		if err := n.change(sound); err != nil {
			t.Fatal(err)
		}
		n.OnCompile(func(a snapshot.Archive) {
			for file := range a {
				if strings.HasPrefix(file, "tenants/t") && len(a) == 3 { // its last good files with the new root
					time.Sleep(900 * time.Millisecond)
				}
			}
		})
		bounded(t, inForceSoon, func() { _ = n.change(faulty + rootForbids) })
		for i := range 20 {
			n.decides(fmt.Sprintf("t%d", i), false)
		}
	})
}

// A late tenant is answered when it is compiled, whoever comes later still.
func TestLateTenantsComeOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inNeighbourhood(t, evaluation.Config{})
		const slower = "-- tenants/slower/own.cedar --\n@id(\"own\") permit (principal, action, resource);\n"
		if err := n.change(shared + slower); err != nil {
			t.Fatal(err)
		}
		n.OnCompile(func(a snapshot.Archive) {
			switch {
			case a["tenants/evil/own.cedar"] != nil:
				time.Sleep(3 * time.Second)
			case a["tenants/slower/own.cedar"] != nil:
				time.Sleep(20 * time.Second)
			}
		})
		_ = n.change(shared + slower + rootForbids)
		n.decides("evil", nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		n.decides("evil", false)
		n.decides("slower", nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		n.decides("slower", false)
		if n.Status().Stale {
			t.Errorf("status %+v", n.Status())
		}
	})
}

// While no tenant is compiled with a new root, the store stays as it is; the new
// root counts once the first is. One that takes too long is not answered then.
func TestNewRootThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inNeighbourhood(t, evaluation.Config{})
		n.OnCompile(func(a snapshot.Archive) {
			if a["tenants/evil/own.cedar"] != nil {
				time.Sleep(time.Minute)
			}
			time.Sleep(5 * time.Second)
		})
		if err := n.change(shared + rootForbids); err == nil || errors.Is(err, snapshot.ErrInPart) {
			t.Errorf("the change: %v", err)
		}
		n.decides("good", true)
		n.decides("evil", true)
		if n.Pending().IsZero() {
			t.Error("nothing is pending")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		n.decides("good", false)
		n.decides("evil", nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		n.decides("evil", nil)
		if s := n.Status(); !n.Pending().IsZero() || !strings.Contains(s.Problem, snapshot.ErrSlow.Error()) {
			t.Errorf("pending since %v, status %+v", n.Pending(), s)
		}
	})
}
