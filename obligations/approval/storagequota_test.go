package approval_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// submitAs submits push for a caller.
func (d *desk) submitAs(t testing.TB, c approval.Caller) (string, error) {
	t.Helper()
	denials++
	r := evaluation(t, push)
	offer, err := d.Offer(&authzen.RequestableDenial{
		EvaluationID: fmt.Sprintf("evaluation-%d", denials), Tenant: c.Tenant, Caller: c.ID, Time: d.time(), Revision: d.revision, Template: "sre", Request: r,
	})
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Submit(t.Context(), c, "", &authzen.Submission{
		Subject: r.Subject, Resource: &r.Resource, Action: &r.Action, Context: r.Context,
		Denial: &authzen.Denial{ExpiresAt: offer.ExpiresAt.Format(time.RFC3339), BindingToken: offer.BindingToken},
	})
	if err != nil {
		return "", err
	}
	return task.Task.ID, nil
}

// untilFull submits and cancels until the quota is reached.
func (d *desk) untilFull(t testing.TB, c approval.Caller) (n int) {
	t.Helper()
	for ; n < 1000; n++ {
		id, err := d.submitAs(t, c)
		if errors.Is(err, approval.ErrTooManyKept) {
			return n
		}
		if err == nil {
			_, err = d.Cancel(t.Context(), c, id, authzen.Cancellation{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("%d requests were submitted and cancelled, and all are kept", n)
	return n
}

// Ended requests count against the quotas of tenant and service, also after a restart. After a day
// they are deleted.
func TestStorageQuota(t *testing.T) {
	d := open(t, plain)
	d.config.MaxKept, d.config.MaxKeptAll = 50<<10, 80<<10
	d.reopen(t)
	acme, globex := approval.Caller{Tenant: "acme", ID: "a"}, approval.Caller{Tenant: "globex", ID: "b"}
	first := d.untilFull(t, acme)
	d.reopen(t)
	if _, err := d.submitAs(t, acme); !errors.Is(err, approval.ErrTooManyKept) {
		t.Errorf("reopened, another is kept: %v", err)
	}
	second := d.untilFull(t, globex)
	if first < 10 || second < 5 || second >= first {
		t.Errorf("one tenant has %d, another %d", first, second)
	}
	d.pass(26 * time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := d.untilFull(t, acme); again != first {
		t.Errorf("a day later there is room for %d, not %d", again, first)
	}
}

// The quota of a file from an earlier version is computed when it is opened.
func TestStorageQuotaIsRebuilt(t *testing.T) {
	d := open(t, plain)
	c := approval.Caller{Tenant: "acme", ID: "a"}
	var pending string
	for range 3 {
		id, err := d.submitAs(t, c)
		if err != nil {
			t.Fatal(err)
		}
		pending = id
	}
	d.config.MaxPendingCaller, d.config.MaxKept = 3, 1<<20
	d.rewriteFile(t, func(tx *bolt.Tx) error {
		old := tx.Bucket([]byte("pending"))
		for key, _ := old.Cursor().First(); key != nil; key, _ = old.Cursor().First() {
			if err := old.Delete(bytes.Clone(key)); err != nil {
				return err
			}
		}
		return errors.Join(tx.DeleteBucket([]byte("kept")), old.Put([]byte("acme\x00a\x00"+pending), nil))
	})
	if n, err := d.Pending(t.Context()); n != 3 || err != nil {
		t.Errorf("%d are pending, %v", n, err)
	}
	if _, err := d.submitAs(t, c); !errors.Is(err, approval.ErrTooMany) {
		t.Errorf("a fourth: %v", err)
	}
	if _, err := d.Cancel(t.Context(), c, pending, authzen.Cancellation{}); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Pending(t.Context()); n != 2 || err != nil {
		t.Errorf("%d are pending, %v", n, err)
	}
}

// Callers with different names are different callers.
func TestCallersAreDistinguished(t *testing.T) {
	d := open(t, plain)
	d.config.MaxPendingCaller = 2
	d.reopen(t)
	for range 2 {
		if _, err := d.submitAs(t, approval.Caller{Tenant: "acme", ID: "a\x00b"}); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []error{nil, nil, approval.ErrTooMany} {
		if _, err := d.submitAs(t, approval.Caller{Tenant: "acme", ID: "a"}); !errors.Is(err, want) {
			t.Errorf("request %d of a: %v, want %v", n, err, want)
		}
	}
}
