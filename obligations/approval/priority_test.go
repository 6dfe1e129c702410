package approval_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// prioritized submits a request with a priority, or without one for "".
func (d *desk) prioritized(t testing.TB, priority string) string {
	t.Helper()
	sub := d.submission(t, push)
	if priority != "" {
		sub.RequestedAccess = jsontext.Value(`{"priority":"` + priority + `"}`)
	}
	task, err := d.Submit(t.Context(), gateway, "", sub)
	if err != nil {
		t.Fatal(err)
	}
	d.pass(time.Second)
	return task.Task.ID
}

// Escalated requests come first, then those of a higher priority, then the oldest.
func TestListsFollowPriorities(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Escalation = lasting(10 * time.Minute) }))
	names := map[string]string{}
	add := func(name, priority string) { names[d.prioritized(t, priority)] = name }
	add("early low", "low")
	add("early", "")
	d.pass(9 * time.Minute)
	add("low", "low")
	add("first normal", "normal")
	add("second normal", "")
	add("high", "high")
	order := func() string {
		var all []string
		for _, r := range d.list(t, approval.Query{Status: authzen.TaskPending}) {
			all = append(all, names[r.ID])
		}
		return strings.Join(all, ", ")
	}
	if got, want := order(), "high, early, first normal, second normal, early low, low"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	d.pass(time.Minute)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	const escalated = "early, early low, high, first normal, second normal, low"
	if got := order(); got != escalated {
		t.Errorf("with escalated ones: %s, want %s", got, escalated)
	}
	d.listAsBefore(t)
	if got := order(); got != escalated {
		t.Errorf("in a file of a version without priorities: %s, want %s", got, escalated)
	}
}

// listAsBefore leaves the file as a version without priorities would, which lists by age, and opens it
// again.
func (d *desk) listAsBefore(t *testing.T) {
	t.Helper()
	d.rewriteFile(t, func(tx *bolt.Tx) error {
		listed, last := tx.Bucket([]byte("listed")), tx.Bucket([]byte("last"))
		var keys [][]byte
		err := listed.ForEach(func(key, _ []byte) error {
			keys = append(keys, append([]byte(nil), key...))
			return nil
		})
		for _, key := range keys {
			place := len(key) - len("arq_") - 26 - 9
			old := append([]byte(nil), key...)
			old[place] = 1
			err = errors.Join(err, listed.Delete(key), listed.Put(old, nil))
		}
		return errors.Join(err, last.Delete([]byte("transaction.4")), last.Put([]byte("transaction"), binary.BigEndian.AppendUint64(nil, uint64(tx.ID()))))
	})
}

// A priority that is none of the three is refused, and a request with several items has the highest
// of theirs.
func TestPriorityOfARequest(t *testing.T) {
	d := open(t, plain)
	for _, access := range []string{`{"priority":"urgent"}`, `{"priority":"High"}`, `{"priority":1}`, `{"priority":["high"]}`} {
		sub := d.submission(t, push)
		sub.RequestedAccess = jsontext.Value(access)
		_, err := d.Submit(t.Context(), gateway, "", sub)
		if want := authzen.Invalid("/requested_access/priority", "must be low, normal or high"); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v", access, err)
		}
	}
	sub := d.submission(t, push)
	sub.RequestedAccess = jsontext.Value(`{"priority":"low"}`)
	for _, own := range []string{"", `{"priority":"high"}`} {
		item := authzen.SubmissionItem{Resource: *sub.Resource, Action: *sub.Action, Denial: d.submission(t, push).Denial}
		if own != "" {
			item.RequestedAccess = jsontext.Value(own)
		}
		sub.Items = append(sub.Items, item)
	}
	sub.Resource, sub.Action = nil, nil
	task, err := d.Submit(t.Context(), gateway, "", sub)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Request(t.Context(), task.Task.ID)
	if diff := cmp.Diff(approval.PriorityHigh, r.Priority); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}
