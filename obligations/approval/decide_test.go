package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Policies decide who approves, and nobody decides on their own request (AR-95 in
// conformance/testdata/rows.txt).
func TestRequesterAndActorsCannotDecide(t *testing.T) {
	text := edit(t, `"roles"`, `"act": {"sub": "planner", "act": {"sub": "root-agent"}}, "roles"`)
	for _, test := range []struct {
		kind, id string
		want     error
	}{
		{"approver", "carol", nil},
		{"user", "carol", approval.ErrIneligible},
		{"approver", "agent-7", approval.ErrIneligible},    // the requester, of any type
		{"approver", "planner", approval.ErrIneligible},    // an actor
		{"approver", "root-agent", approval.ErrIneligible}, // the actor's principal
		{"approver", "gateway-1", approval.ErrIneligible},  // the submitter
	} {
		for _, decision := range []string{"approve", "deny"} {
			d := open(t, plain)
			id := d.submit(t, text).Task.ID
			_, err := d.Decide(t.Context(), id, entity(test.kind, test.id), approval.Decision{Decision: decision})
			if !errors.Is(err, test.want) {
				t.Errorf("%s by %s %s: %v", decision, test.kind, test.id, err)
			}
		}
	}
}

// The question to policies has the approver, the request and the resource.
func TestQuestion(t *testing.T) {
	d := open(t, plain)
	var asked authzen.EvaluationRequest
	d.config.CanApprove = func(_ context.Context, check approval.Check) (bool, error) {
		asked = *check.Request
		return true, nil
	}
	d.reopen(t)
	id := d.submit(t, push).Task.ID
	if _, err := d.Decide(t.Context(), id, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	const want = `{"action":"tool.invoke","actor":"","context":{"workflow_id":"wf-1"},"requester":{"type":"agent","id":"agent-7"},"resource":{"type":"tool","id":"github.push_code"},"resource_id":"github.push_code","resource_type":"tool","template":"sre"}`
	if asked.Action.Name != "approval.approve" || asked.Resource.Type != "access_request" || asked.Resource.ID != id || string(asked.Resource.Properties) != want {
		t.Errorf("asked %+v", asked)
	}
}

// A quorum needs different people, and one denial is enough.
func TestQuorum(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 3 }))
	id := d.submit(t, push).Task.ID
	for i, step := range []struct {
		by     string
		want   error
		status authzen.TaskStatus
	}{
		{"ann", nil, authzen.TaskPending},
		{"ann", approval.ErrTaskState, authzen.TaskPending},
		{"also ann", approval.ErrTaskState, authzen.TaskPending},
		{"ben", nil, authzen.TaskPending},
		{"cid", nil, authzen.TaskApproved},
		{"dan", approval.ErrTaskState, authzen.TaskApproved},
	} {
		by := approver(step.by)
		if step.by == "also ann" { // same person under an alias of the type
			by = entity("approver_alias", "ann")
		}
		if _, err := d.Decide(t.Context(), id, by, approves); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v", i, err)
		}
		if task, err := d.Status(t.Context(), gateway, id); err != nil || task.Task.Status != step.status {
			t.Errorf("step %d: %+v, %v", i, task, err)
		}
	}
	id = d.submit(t, push).Task.ID
	for by, choice := range map[string]approval.Decision{"ann": approves, "ben": denies} {
		if _, err := d.Decide(t.Context(), id, approver(by), choice); err != nil && !errors.Is(err, approval.ErrTaskState) {
			t.Fatal(err)
		}
	}
	if task, err := d.Status(t.Context(), gateway, id); err != nil || task.Task.Status != authzen.TaskDenied || task.Result != nil {
		t.Errorf("after a denial: %+v, %v", task, err)
	}
}

// An approval ends at the earliest of the times of template, requester and approver.
func TestApprovedUntil(t *testing.T) {
	for _, test := range []struct{ requested, approver, want time.Duration }{
		{0, 0, 15 * time.Minute},
		{5 * time.Minute, 0, 5 * time.Minute},
		{time.Hour, 0, 15 * time.Minute},
		{0, time.Minute, time.Minute},
		{5 * time.Minute, 7 * time.Minute, 5 * time.Minute},
	} {
		d := open(t, plain)
		s := d.submission(t, push)
		if test.requested > 0 {
			s.RequestedAccess = jsontext.Value(fmt.Sprintf(`{"requested_until":%q}`, morning.Add(test.requested).Format(time.RFC3339)))
		}
		task, err := d.Submit(t.Context(), gateway, "", s)
		if err != nil {
			t.Fatal(err)
		}
		choice := approves
		if test.approver > 0 {
			choice.Until = morning.Add(test.approver)
		}
		r, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), choice)
		if err != nil || !r.Items[0].Approval.Until.Equal(morning.Add(test.want)) {
			t.Errorf("%+v: %+v, %v", test, r, err)
		}
	}
}

// An approver cannot set an end in the past.
func TestApprovedUntilThePast(t *testing.T) {
	d := open(t, plain)
	choice := approves
	choice.Until = morning
	var invalid *authzen.ValidationError
	if _, err := d.Decide(t.Context(), d.submit(t, push).Task.ID, approver("carol"), choice); !errors.As(err, &invalid) || invalid.Path != "/approved_until" {
		t.Errorf("approved until now: %v", err)
	}
}

// Exactly one of a hundred concurrent votes decides a task.
func TestConcurrentDecisions(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	var won, lost atomic.Int32
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			choice := []approval.Decision{approves, denies}[i%2]
			switch _, err := d.Decide(t.Context(), id, approver(fmt.Sprintf("approver-%d", i)), choice); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, approval.ErrTaskState):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || lost.Load() != 99 {
		t.Errorf("%d decided it, %d came too late", won.Load(), lost.Load())
	}
}

// Exactly one of a hundred concurrent uses consumes an approval for one use.
func TestConcurrentUses(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push)
	var won atomic.Int32
	var all sync.WaitGroup
	var standings []authzen.ApprovalStatus
	for range 100 {
		standings = append(standings, d.again(t, push, approved))
	}
	for _, standing := range standings {
		all.Go(func() {
			if standing.Consume(t.Context()) == nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d used it", won.Load())
	}
}

// A request without a decision escalates, expires, remains readable, and is then deleted (AR-90,
// AR-93, AR-96, AR-142 in conformance/testdata/rows.txt).
func TestUndecidedRequestsExpire(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Escalation = lasting(10 * time.Minute) }))
	id := d.submit(t, push).Task.ID
	for _, step := range []struct {
		pass   time.Duration
		status authzen.TaskStatus
		err    error
		events string
	}{
		{9 * time.Minute, authzen.TaskPending, nil, "request/submit"},
		{time.Minute, authzen.TaskPending, nil, "request/submit request/escalate"},
		{49 * time.Minute, authzen.TaskPending, nil, "request/submit request/escalate"},
		{time.Minute, authzen.TaskExpired, nil, "request/submit request/escalate request/expire"},
		{24*time.Hour + 14*time.Minute, authzen.TaskExpired, nil, "request/submit request/escalate request/expire"},
		{time.Minute, "", approval.ErrUnknownTask, "request/submit request/escalate request/expire"},
	} {
		d.pass(step.pass)
		if step.status == authzen.TaskExpired { // with and without a sweep
			if _, err := d.Decide(t.Context(), id, approver("carol"), approves); !errors.Is(err, approval.ErrTaskState) {
				t.Errorf("decided when it had expired: %v", err)
			}
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		task, err := d.Status(t.Context(), gateway, id)
		if !errors.Is(err, step.err) || err == nil && task.Task.Status != step.status {
			t.Errorf("after %s: %+v, %v", step.pass, task, err)
		}
		if got := d.events(t); got != step.events {
			t.Errorf("after %s the log has %s, want %s", step.pass, got, step.events)
		}
	}
}

// Wait returns when the task is decided, and not before.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, plain)
		id := d.submit(t, push).Task.ID
		start := time.Now()
		task, err := d.Wait(t.Context(), gateway, id, time.Minute)
		if err != nil || task.Task.Status != authzen.TaskPending || time.Since(start) != time.Minute {
			t.Errorf("after %s: %+v, %v", time.Since(start), task, err)
		}
		go func() {
			time.Sleep(10 * time.Second)
			d.submit(t, push) // wakes the waiter without a decision
			time.Sleep(10 * time.Second)
			if _, err := d.Decide(t.Context(), id, approver("carol"), approves); err != nil {
				t.Error(err)
			}
		}()
		start = time.Now()
		task, err = d.Wait(t.Context(), gateway, id, time.Minute)
		if err != nil || task.Task.Status != authzen.TaskApproved || time.Since(start) != 20*time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(start), task, err)
		}
	})
}

// A waiting call does not delay shutdown.
func TestWaitEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, plain)
		id := d.submit(t, push).Task.ID
		ctx, cancel := context.WithCancel(t.Context())
		go d.Run(ctx)
		start := time.Now()
		time.AfterFunc(10*time.Second, cancel)
		task, err := d.Wait(t.Context(), gateway, id, time.Minute)
		if err != nil || task.Task.Status != authzen.TaskPending || time.Since(start) != 10*time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(start), task, err)
		}
	})
}

// Another caller gets ErrUnknownTask (AR-83, AR-87, AR-103 in conformance/testdata/rows.txt).
func TestTasksOfOthers(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	for _, other := range []approval.Caller{{Tenant: "globex", ID: "gateway-1"}, {Tenant: "acme", ID: "gateway-2"}, {}} {
		if _, err := d.Status(t.Context(), other, id); !errors.Is(err, approval.ErrUnknownTask) {
			t.Errorf("%+v sees it: %v", other, err)
		}
		if _, err := d.Cancel(t.Context(), other, id, authzen.Cancellation{}); !errors.Is(err, approval.ErrUnknownTask) {
			t.Errorf("%+v cancels it: %v", other, err)
		}
	}
}

// The auto approver of a template votes at once, under the same policies (AR-75 in
// conformance/testdata/rows.txt).
func TestAutoApproval(t *testing.T) {
	for kind, want := range map[string]authzen.TaskStatus{"approver": authzen.TaskApproved, "user": authzen.TaskPending} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) {
			terms.AutoApprover = &authzen.Subject{Type: kind, ID: "policy"}
		}))
		if task := d.submit(t, push); task.Task.Status != want || (task.Result != nil) != (want == authzen.TaskApproved) {
			t.Errorf("%s: %+v", kind, task)
		}
	}
}

// Nobody learns of a transition whose record is not in the log. It remains, and is recorded as soon
// as the log accepts it.
func TestTransitionsAreRecordedFirst(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	d.broken = errors.New("disk full")
	if _, err := d.Decide(t.Context(), id, approver("carol"), approves); !errors.Is(err, d.broken) {
		t.Errorf("decided without a record: %v", err)
	}
	if _, err := d.Status(t.Context(), gateway, id); !errors.Is(err, d.broken) {
		t.Errorf("told without a record: %v", err)
	}
	d.broken = nil
	d.reopen(t)
	if task, err := d.Status(t.Context(), gateway, id); err != nil || task.Task.Status != authzen.TaskApproved {
		t.Errorf("afterwards: %+v, %v", task, err)
	}
	if got := d.events(t); got != "request/submit approval/approve" {
		t.Errorf("the log has %s", got)
	}
}

// Records connect the evaluation, the task, the approval and the evaluation that used it (AR-141,
// AR-124 in conformance/testdata/rows.txt).
func TestRecords(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push)
	if err := d.again(t, push, approved).Consume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := d.events(t), "request/submit approval/approve approval/use"; got != want {
		t.Fatalf("the log has %s, want %s", got, want)
	}
	var bodies [3]struct {
		Task   string `json:"task"`
		UsedBy string `json:"used_by"`
		Items  []struct {
			EvaluationID string `json:"evaluation_id"`
			Approval     string `json:"approval"`
		} `json:"items"`
	}
	for i, r := range d.records {
		if err := authzen.Unmarshal(r.Body, &bodies[i]); err != nil {
			t.Fatal(err)
		}
	}
	if bodies[0].Items[0].EvaluationID == "" || bodies[0].Items[0].EvaluationID != bodies[2].Items[0].EvaluationID ||
		bodies[0].Task == "" || bodies[0].Task != bodies[2].Task ||
		bodies[1].Items[0].Approval != approved.ID || bodies[2].Items[0].Approval != approved.ID || bodies[2].UsedBy != "again" {
		t.Errorf("the records are %+v", bodies)
	}
}

// Each record has task, template, people, the request and the time. All votes have the same kind,
// including the first of two and a denial.
func TestRecordsNameThePeople(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 2 }))
	d.pass(123456789 * time.Nanosecond)
	id := d.submit(t, push).Task.ID
	for _, by := range []string{"ann", "ben"} {
		d.pass(time.Millisecond)
		if _, err := d.Decide(t.Context(), id, approver(by), approval.Decision{Decision: "approve", Comment: "go, says " + by}); err != nil {
			t.Fatal(err)
		}
	}
	refused := d.submit(t, push).Task.ID
	if _, err := d.Decide(t.Context(), refused, approver("cid"), denies); err != nil {
		t.Fatal(err)
	}
	if got, want := d.events(t), "request/submit approval/approve approval/approve request/submit approval/deny"; got != want {
		t.Fatalf("the log has %s, want %s", got, want)
	}
	task, err := d.Status(t.Context(), gateway, id)
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Task, Template, Approval, Comment string
		Approver, Subject                 authzen.Entity
		Items                             []struct {
			Resource authzen.Entity
			Action   authzen.Action
		}
	}
	last := d.records[2]
	if err := json.Unmarshal(last.Body, &said, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if said.Task != id || said.Template != "sre" || said.Approval != task.Result.Approval.ID || said.Comment != "go, says ben" || said.Approver.ID != "ben" ||
		said.Subject.ID != "agent-7" || said.Items[0].Resource.ID != "github.push_code" || said.Items[0].Action.Name != "tool.invoke" {
		t.Errorf("the last vote is recorded as %s", last.Body)
	}
	if want := morning.Add(123456789*time.Nanosecond + 2*time.Millisecond); !last.Time.Equal(want) {
		t.Errorf("the last vote has the time %s, want %s", last.Time, want)
	}
	if got := d.again(t, push, task.Result.Approval); got.Approval == nil || got.Approval.Task != id {
		t.Errorf("the approval does not name its task: %+v", got.Approval)
	}
}

// A vote that cannot count causes no question to policies: the log would have a permit for it.
func TestUncountableVoteAsksNoPolicy(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 2 }))
	asked := 0
	d.config.CanApprove = func(context.Context, approval.Check) (bool, error) {
		asked++
		return true, nil
	}
	d.reopen(t)
	id := d.submit(t, push).Task.ID
	for range 2 {
		_, _ = d.Decide(t.Context(), id, approver("ann"), approves)
	}
	if asked != 1 {
		t.Errorf("policies were asked %d times about one vote and its repetition", asked)
	}
}

// A new key signs, and the old one verifies its signatures (AR-4, AR-5 in
// conformance/testdata/rows.txt).
func TestRotation(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.TTL = lasting(40 * 24 * time.Hour) }))
	approved := d.approve(t, push)
	d.pass(31 * 24 * time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := d.JWKS().Keys
	if len(keys) != 2 || keys[0].Use != "sig" || keys[0].KeyID == keys[1].KeyID || !keys[0].IsPublic() {
		t.Errorf("keys: %+v", keys)
	}
	if got := d.again(t, push, approved); got.Approval == nil {
		t.Errorf("after a rotation it does not stand: %s", got.Reason)
	}
	d.reopen(t)
	if got := d.JWKS().Keys; len(got) != 2 || got[0].KeyID != keys[0].KeyID {
		t.Errorf("reopened, the keys are %+v", got)
	}
	d.pass(100 * 24 * time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.JWKS().Keys; len(got) != 2 || got[1].KeyID != keys[0].KeyID {
		t.Errorf("AR-5: the oldest key is kept: %+v", got)
	}
}

// The caller of a record is the one whose credential acted; none for the service itself.
func TestRecordsHaveTheCaller(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Uses = 2 }))
	carol := approver("carol")
	carol.Caller = "carol-key"
	lifted := d.submit(t, push).Task.ID
	if _, err := d.Decide(t.Context(), lifted, carol, approves); err != nil {
		t.Fatal(err)
	}
	task, err := d.Status(t.Context(), gateway, lifted)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.again(t, push, task.Result.Approval).Consume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Revoke(t.Context(), task.Result.Approval.ID, carol, "a mistake"); err != nil {
		t.Fatal(err)
	}
	cancelled := d.submit(t, push).Task.ID
	if _, err := d.Cancel(t.Context(), gateway, cancelled, authzen.Cancellation{}); err != nil {
		t.Fatal(err)
	}
	d.submit(t, push)
	d.pass(2 * time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range d.records {
		got = append(got, r.Caller)
	}
	want := []string{gateway.ID, "carol-key", gateway.ID, "carol-key", gateway.ID, gateway.ID, gateway.ID, ""}
	if !slices.Equal(got, want) {
		t.Errorf("the callers of %s are %q, want %q", d.events(t), got, want)
	}
}
