package approval_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// For every sequence of events, terminal statuses stay, only a quorum approves, an ended approval
// stays ended, and the old request is unmodified (AR-81, AR-90, AR-94 in
// conformance/testdata/rows.txt).
func TestStateMachine(t *testing.T) {
	const walks, steps = 3000, 30
	events := []string{"vote:approve", "vote:deny", "cancel", "expire", "escalate", "use", "revoke", "supersede", "notify", "notify_fail"}
	reached := make(map[authzen.TaskStatus]int)
	for seed := range uint64(walks) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := morning
		r := draft(1+random.IntN(3), 1+random.IntN(3), random.IntN(3))
		for range steps {
			now = now.Add(time.Duration(random.IntN(4)) * time.Minute)
			what, by := events[random.IntN(len(events))], fmt.Sprint(random.IntN(4))
			var items []int
			if random.IntN(2) == 0 {
				items = []int{random.IntN(len(r.Items))}
			}
			before := r
			before.Items = append([]approval.Item{}, r.Items...)
			after, err := approval.Next(r, what, by, items, now)
			if err != nil && !errors.Is(err, approval.ErrTaskState) {
				t.Fatalf("seed %d: %s: %v", seed, what, err)
			}
			if !reflect.DeepEqual(before, r) {
				t.Fatalf("seed %d: %s changes the request before", seed, what)
			}
			if err != nil {
				continue
			}
			for i := range after.Items {
				if fault := wrong(before.Items[i], after.Items[i], now); fault != "" {
					t.Fatalf("seed %d: %s by %s: %s\n%+v\n%+v", seed, what, by, fault, before.Items[i], after.Items[i])
				}
			}
			r = after
		}
		reached[r.Status()]++
	}
	for _, status := range []authzen.TaskStatus{authzen.TaskApproved, authzen.TaskDenied, authzen.TaskCancelled, authzen.TaskExpired, authzen.TaskPartial} {
		if reached[status] == 0 {
			t.Errorf("no walk ends %s: %v", status, reached)
		}
	}
}

// draft returns a request with that many items, and terms with that quorum and uses.
func draft(items, quorum, uses int) approval.Request {
	terms := plain
	terms.Quorum, terms.Uses = quorum, uses
	r := approval.Request{
		ID: "arq_1", Submitted: morning, DecideBy: morning.Add(20 * time.Minute), EscalateAt: morning.Add(5 * time.Minute),
		ExpiresAt: morning.Add(24 * time.Hour), Callback: &authzen.Callback{Endpoint: "https://pep.example.com"},
	}
	for range items {
		r.Items = append(r.Items, approval.Item{Status: authzen.TaskPending, Terms: terms})
	}
	return r
}

// wrong returns a violated invariant of an item, or "".
func wrong(before, after approval.Item, now time.Time) string {
	switch {
	case before.Status != authzen.TaskPending && after.Status != before.Status:
		return "a terminal status has changed"
	case (after.Approval != nil) != (after.Status == authzen.TaskApproved):
		return "an approval without approved, or the reverse"
	case after.Status == authzen.TaskApproved && len(after.Votes) < after.Terms.Quorum:
		return "approved without a quorum"
	case after.Approval != nil && after.Approval.Until.After(after.Approval.At.Add(after.Terms.TTL.Duration)):
		return "it stands for too long"
	case after.Terms.Uses > 0 && after.Approval != nil && len(after.Approval.Uses) > after.Terms.Uses:
		return "it is used too often"
	case before.Approval != nil && before.Approval.Ended != "" && !reflect.DeepEqual(before.Approval, after.Approval):
		return "an approval that has ended has changed"
	case before.Approval != nil && !now.Before(before.Approval.Until) && !reflect.DeepEqual(before.Approval, after.Approval):
		return "an approval that has expired has changed"
	}
	seen := make(map[string]bool)
	for _, v := range after.Votes {
		if seen[v.Approver.ID] {
			return "somebody has voted twice"
		}
		if seen[v.Approver.ID] = true; !v.Approve && after.Status != authzen.TaskDenied {
			return "a denial did not count"
		}
	}
	return ""
}
