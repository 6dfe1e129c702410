package approval_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// list reads a complete list.
func (d *desk) list(t testing.TB, q approval.Query) (all []approval.Listed) {
	t.Helper()
	for r, err := range d.List(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// submitIn submits a request for a gateway of a tenant.
func (d *desk) submitIn(t testing.TB, tenant, text string) string {
	t.Helper()
	was := gateway
	defer func() { gateway = was }()
	gateway.Tenant = tenant
	return d.submit(t, text).Task.ID
}

func tasks(all []approval.Listed) (ids []string) {
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}

// Requests of other tenants take no place in a list. A page continues where the previous one ended,
// whatever changed in between.
func TestListsArePaged(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Escalation = lasting(10 * time.Minute) }))
	const many = 250
	var acme, globex []string
	for i := range many {
		acme = append(acme, d.submitIn(t, "acme", push))
		if i%100 == 0 {
			globex = append(globex, d.submitIn(t, "globex", push))
		}
		d.pass(time.Second)
	}
	globex = append(globex, d.submitIn(t, "globex", push))
	pending := func(tenants ...string) approval.Query {
		return approval.Query{Tenants: tenants, Status: authzen.TaskPending}
	}
	if diff := cmp.Diff(globex, tasks(d.list(t, pending("globex")))); diff != "" {
		t.Errorf("a tenant beside one of many requests (-want +got):\n%s", diff)
	}
	if all := d.list(t, approval.Query{}); len(all) != len(acme)+len(globex) {
		t.Errorf("all are %d", len(all))
	}
	if got := d.list(t, pending("globex", "globex", "initech")); len(got) != len(globex) {
		t.Errorf("a tenant that is named twice has %d", len(got))
	}
	if got := d.list(t, approval.Query{Tenants: []string{}}); len(got) > 0 {
		t.Errorf("no tenant has %d", len(got))
	}
	var paged []string
	after := ""
	for page := 0; ; page++ {
		q := pending("acme")
		q.After = after
		var ids []string
		for r, err := range d.List(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			if ids, after = append(ids, r.ID), r.Token; len(ids) == 30 {
				break
			}
		}
		if paged = append(paged, ids...); len(ids) < 30 {
			break
		}
		if _, err := d.Decide(t.Context(), ids[0], approver("carol"), denies); err != nil { // before the page token
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(acme, paged); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	denied := d.list(t, approval.Query{Tenants: []string{"acme"}, Status: authzen.TaskDenied})
	if len(denied) != many/30 {
		t.Errorf("%d are denied", len(denied))
	}
	for _, token := range []string{"!", "AA", "ÿ", after[:4]} {
		for _, err := range d.List(t.Context(), approval.Query{After: token}) {
			if !errors.Is(err, approval.ErrPage) {
				t.Errorf("after %q: %v", token, err)
			}
		}
	}

	d.pass(10*time.Minute + time.Second - many*time.Second)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := d.submitIn(t, "acme", push)
	all := d.list(t, pending("acme"))
	if !all[0].Escalated || all[0].ID != acme[1] || all[len(all)-1].ID != late {
		t.Errorf("the first is %s, the last %s", all[0].ID, all[len(all)-1].ID)
	}
}

// A reader of a list blocks nobody. It waits only for a record of the next request.
func TestListsBlockNobody(t *testing.T) {
	d := open(t, plain)
	first, second := d.submitIn(t, "acme", push), d.submitIn(t, "acme", push)
	reading := 0
	for r, err := range d.List(t.Context(), approval.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if reading++; r.ID == first { // and the reader pauses
			d.submitIn(t, "acme", push)
			if _, err := d.Decide(t.Context(), second, approver("carol"), approves); err != nil {
				t.Fatal(err)
			}
		}
	}
	if reading != 2 {
		t.Errorf("%d are in the list", reading)
	}

	recording, goOn := make(chan bool), make(chan bool)
	d.config.Record = func(ctx context.Context, r approval.Record) error {
		if strings.Contains(string(r.Body), `"event":"deny"`) {
			recording <- true
			<-goOn
		}
		return d.record(ctx, r)
	}
	d.reopen(t)
	decided := make(chan error)
	third := d.submitIn(t, "globex", push)
	go func() {
		_, err := d.Decide(t.Context(), third, approver("carol"), denies)
		decided <- err
	}()
	<-recording // on disk and not in the log
	if got := d.list(t, approval.Query{Tenants: []string{"acme"}, Status: authzen.TaskPending}); len(got) != 2 {
		t.Errorf("beside a transition that waits for the log %d are in the list", len(got))
	}
	for tenant, want := range map[string]int{"acme": 2, "globex": 0} {
		if n, err := d.Pending(t.Context(), tenant); err != nil || n != want {
			t.Errorf("%d of %s are pending, %v", n, tenant, err)
		}
	}
	if n, err := d.Pending(t.Context()); err != nil || n != 2 {
		t.Errorf("%d are pending, %v", n, err)
	}
	told := make(chan []approval.Listed)
	go func() { told <- d.list(t, approval.Query{Tenants: []string{"globex"}}) }()
	select {
	case got := <-told:
		t.Errorf("what is not in the log is told: %v", tasks(got))
	case goOn <- true:
		if err := <-decided; err != nil {
			t.Fatal(err)
		}
		if got := <-told; len(got) != 1 || got[0].Status() != authzen.TaskDenied {
			t.Errorf("then %v", tasks(got))
		}
	}
}

// Opening a file from an earlier version builds the index of lists.
func TestListsOfAnEarlierVersion(t *testing.T) {
	d := open(t, plain)
	var ids []string
	for range 3 {
		ids = append(ids, d.submitIn(t, "acme", push))
		d.pass(time.Second)
	}
	d.rewriteFile(t, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("listed")) })
	if diff := cmp.Diff(ids, tasks(d.list(t, approval.Query{Tenants: []string{"acme"}, Status: authzen.TaskPending}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The index is rebuilt after a version without the index has used the file.
func TestListsAfterAnotherVersion(t *testing.T) {
	d := open(t, plain)
	id := d.submitIn(t, "acme", push)
	const next = "arq_of_the_other_version"
	d.rewriteFile(t, func(tx *bolt.Tx) error {
		tasks := tx.Bucket([]byte("tasks"))
		return tasks.Put([]byte(next), []byte(strings.ReplaceAll(string(tasks.Get([]byte(id))), id, next)))
	})
	pending, err := d.Pending(t.Context())
	if err != nil || pending != 2 {
		t.Errorf("%d are pending, %v", pending, err)
	}
	if got := tasks(d.list(t, approval.Query{Status: authzen.TaskPending})); len(got) != 2 {
		t.Errorf("listed are %v", got)
	}
}

// Each transaction stores its number, so an interrupted service does not rebuild the index.
func TestTransactionsLeaveTheirNumber(t *testing.T) {
	d := open(t, plain)
	for _, do := range []func() error{
		func() error {
			_, err := d.Decide(t.Context(), d.submit(t, push).Task.ID, approver("carol"), approves)
			return err
		},
		func() error { d.pass(31 * 24 * time.Hour); return d.Sweep(t.Context()) }, // rotates keys
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), approval.FileName)
		text, err := os.ReadFile(filepath.Join(d.dir, approval.FileName))
		if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bolt.Tx) error {
			if left := tx.Bucket([]byte("last")).Get([]byte("transaction.4")); binary.BigEndian.Uint64(left) != uint64(tx.ID()) {
				t.Errorf("transaction %d left %x", tx.ID(), left)
			}
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// The index has each request once for its tenant and once for all, under its current status.
func TestListsFollowTheState(t *testing.T) {
	d := open(t, plain)
	a, b, c := d.submitIn(t, "acme", push), d.submitIn(t, "acme", push), d.submitIn(t, "globex", push)
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"submitted", func() error { return nil }, "pending pending pending"},
		{"approved", func() error { _, err := d.Decide(t.Context(), a, approver("carol"), approves); return err }, "approved pending pending"},
		{"cancelled", func() error {
			_, err := d.Cancel(t.Context(), approval.Caller{Tenant: "acme", ID: gateway.ID}, b, authzen.Cancellation{})
			return err
		}, "approved cancelled pending"},
		{"expired", func() error { d.pass(2 * time.Hour); return d.Sweep(t.Context()) }, "approved cancelled expired"},
		{"forgotten", func() error { d.pass(48 * time.Hour); return d.Sweep(t.Context()) }, "- - -"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		got := []string{"-", "-", "-"}
		for _, status := range approval.TaskStatuses {
			for _, r := range d.list(t, approval.Query{Status: status}) {
				if i := slices.Index([]string{a, b, c}, r.ID); got[i] == "-" {
					got[i] = string(status)
				} else {
					got[i] = fmt.Sprint("twice: ", got[i], status)
				}
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: %v, want %s", step.name, got, step.want)
		}
		if n := len(d.list(t, approval.Query{Tenants: []string{"acme", "globex"}})); n != 3-strings.Count(step.want, "-") {
			t.Errorf("%s: %d of the tenants", step.name, n)
		}
	}
}
