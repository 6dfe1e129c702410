package approval_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A submission needs a denial that covers it (AR-44, AR-46 to AR-49, AR-64, AR-66, AR-67, AR-70 in
// conformance/testdata/rows.txt).
func TestSubmitProof(t *testing.T) {
	tests := []struct {
		name   string
		want   error
		change func(d *desk, s *authzen.Submission)
	}{
		{"as it was denied", nil, func(*desk, *authzen.Submission) {}},
		{"without the id", nil, func(_ *desk, s *authzen.Submission) { s.Denial.EvaluationID = "" }},
		{"with more context", nil, func(_ *desk, s *authzen.Submission) {
			s.Context = jsontext.Value(`{"workflow_id":"wf-1","business_justification":"renewal"}`)
		}},
		{"another template named", nil, func(_ *desk, s *authzen.Submission) { s.Denial.Template = "root" }}, // AR-71
		{"no denial", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial = nil }},
		{"no token", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial.BindingToken = "" }},
		{"a token that is none", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial.BindingToken = "x" }},
		{"a token without signature", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial.BindingToken = unsigned(s.Denial.BindingToken) }},
		{"another evaluation", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial.EvaluationID = "evaluation-0" }},
		{"another expiry", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Denial.ExpiresAt = "2999-01-01T00:00:00Z" }},
		{"another subject", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Subject.ID = "root" }},
		{"another resource", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Resource.ID = "root" }},
		{"another action", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Action.Name = "root" }},
		{"other arguments", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Action.Properties = jsontext.Value(`{}`) }},
		{"another context", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Context = jsontext.Value(`{"workflow_id":"wf-2"}`) }},
		{"no context", approval.ErrBinding, func(_ *desk, s *authzen.Submission) { s.Context = nil }},
		{"another actor", approval.ErrActor, func(_ *desk, s *authzen.Submission) { s.Client = jsontext.Value(`{"actor":{"id":"x"}}`) }}, // AR-54, AR-55
		{"at the last moment", nil, func(d *desk, _ *authzen.Submission) { d.pass(10*time.Minute - time.Second) }},
		{"too late", approval.ErrExpiredDenial, func(d *desk, _ *authzen.Submission) { d.pass(10 * time.Minute) }},
		{"too late and for another", approval.ErrBinding, func(d *desk, s *authzen.Submission) { // too late as well
			d.pass(time.Hour)
			s.Subject.ID = "root"
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, plain)
			s := d.submission(t, push)
			test.change(d, s)
			_, err := d.Submit(t.Context(), gateway, "", s)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// A denial is valid only for its tenant and caller.
func TestSubmitByAnother(t *testing.T) {
	d := open(t, plain)
	for _, other := range []approval.Caller{{Tenant: "globex", ID: "gateway-1"}, {Tenant: "acme", ID: "gateway-2"}, {}} {
		if _, err := d.Submit(t.Context(), other, "", d.submission(t, push)); !errors.Is(err, approval.ErrBinding) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

// Malformed submissions are refused (AR-42, AR-51 in conformance/testdata/rows.txt).
func TestSubmitShape(t *testing.T) {
	tests := map[string]func(*authzen.Submission){
		"no resource":          func(s *authzen.Submission) { s.Resource = nil },
		"no action":            func(s *authzen.Submission) { s.Action = nil },
		"items and a resource": func(s *authzen.Submission) { s.Items = []authzen.SubmissionItem{{}} },
		"a time that is none":  func(s *authzen.Submission) { s.RequestedAccess = jsontext.Value(`{"requested_until":"soon"}`) },
		"a time that has passed": func(s *authzen.Submission) {
			s.RequestedAccess = jsontext.Value(`{"requested_until":"2020-01-01T00:00:00Z"}`)
		},
		"an endless chain":    func(s *authzen.Submission) { s.Client = jsontext.Value(`{"actor":` + actors(9) + `}`) },
		"an actor without id": func(s *authzen.Submission) { s.Client = jsontext.Value(`{"actor":{}}`) },
	}
	for name, change := range tests {
		d := open(t, plain)
		s := d.submission(t, push)
		change(s)
		var invalid *authzen.ValidationError
		if _, err := d.Submit(t.Context(), gateway, "", s); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// actors returns a chain of n actors.
func actors(n int) string {
	if n == 0 {
		return `null`
	}
	return fmt.Sprintf(`{"sub":"a%d","act":%s}`, n, actors(n-1))
}

// A submission repeated under its key returns its task, even after the denial has expired and the
// token was used (AR-57 to AR-59 in conformance/testdata/rows.txt).
func TestIdempotency(t *testing.T) {
	d := open(t, plain)
	s := d.submission(t, push)
	s.RequestedAccess = jsontext.Value(`{"requested_until":"2026-04-30T20:40:00Z"}`) // also in the past by then
	first, err := d.Submit(t.Context(), gateway, "key-1", s)
	if err != nil {
		t.Fatal(err)
	}
	d.pass(30 * time.Minute)
	again, err := d.Submit(t.Context(), gateway, `"key-1"`, s) // with quotation marks
	if err != nil || again.Task.ID != first.Task.ID {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	other := *s
	other.Context = jsontext.Value(`{"workflow_id":"wf-1","note":"x"}`)
	if _, err := d.Submit(t.Context(), gateway, "key-1", &other); !errors.Is(err, approval.ErrDuplicate) {
		t.Errorf("AR-58: another body under the key: %v", err)
	}
	if _, err := d.Submit(t.Context(), approval.Caller{Tenant: "acme", ID: "gateway-2"}, "key-1", s); !errors.Is(err, approval.ErrBinding) {
		t.Errorf("AR-61: another caller's key: %v", err)
	}
}

// A key identifies its task until the task is deleted (AR-60 in conformance/testdata/rows.txt).
func TestIdempotencyIsKept(t *testing.T) {
	d := open(t, plain)
	s := d.submission(t, push)
	first, err := d.Submit(t.Context(), gateway, "key-1", s)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		pass time.Duration
		want error
	}{{time.Hour, nil}, {24 * time.Hour, nil}, {15 * time.Minute, approval.ErrExpiredDenial}} {
		d.pass(step.pass)
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := d.Submit(t.Context(), gateway, "key-1", s)
		if !errors.Is(err, step.want) || err == nil && again.Task.ID != first.Task.ID {
			t.Errorf("after %s: %+v, %v", step.pass, again, err)
		}
	}
}

// Without a key, a token is valid for one task. A failed submission does not consume it (AR-68 in
// conformance/testdata/rows.txt).
func TestReplayedToken(t *testing.T) {
	d := open(t, plain)
	s := d.submission(t, push)
	wrong := *s
	wrong.Context = jsontext.Value(`{}`)
	if _, err := d.Submit(t.Context(), gateway, "", &wrong); !errors.Is(err, approval.ErrBinding) {
		t.Fatal(err)
	}
	if _, err := d.Submit(t.Context(), gateway, "", s); err != nil {
		t.Fatalf("after one that failed: %v", err)
	}
	if _, err := d.Submit(t.Context(), gateway, "", s); !errors.Is(err, approval.ErrBinding) {
		t.Errorf("replayed: %v", err)
	}
}

// The number of pending requests is limited for a caller and for a tenant.
func TestPendingIsBounded(t *testing.T) {
	d := open(t, plain)
	d.config.MaxPending, d.config.MaxPendingCaller = 5, 3
	d.reopen(t)
	var ids []string
	for range 3 {
		ids = append(ids, d.submit(t, push).Task.ID)
	}
	if _, err := d.Submit(t.Context(), gateway, "", d.submission(t, push)); !errors.Is(err, approval.ErrTooMany) {
		t.Errorf("a fourth: %v", err)
	}
	if _, err := d.Decide(t.Context(), ids[0], approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	d.submit(t, push)
}

// The approval of every item repeats the subject, so many items with a long subject are refused.
func TestItemsOfALongSubject(t *testing.T) {
	d := open(t, plain)
	for length, refused := range map[int]bool{1 << 10: false, 1 << 20: true} {
		s := d.items(t, strings.Split(strings.Repeat("a,", 9)+"a", ",")...)
		s.Subject.Properties = jsontext.Value(`{"text":"` + strings.Repeat("x", length) + `"}`)
		_, err := d.Submit(t.Context(), gateway, "", s)
		var invalid *authzen.ValidationError
		if errors.As(err, &invalid) != refused {
			t.Errorf("ten items of a subject of %d bytes: %v", length, err)
		}
	}
}

var pendingRequests = flag.Int("pending", 100, "how many requests TestManyPending has pending")

// At the limit of pending requests, each is listed, decided and swept.
func TestManyPending(t *testing.T) {
	d := open(t, plain)
	d.config.MaxPending, d.config.MaxPendingCaller = *pendingRequests, *pendingRequests
	d.reopen(t)
	start := time.Now()
	for range *pendingRequests {
		d.submit(t, push)
	}
	submitted := time.Since(start)
	for range 10 {
		if _, err := d.Submit(t.Context(), gateway, "", d.submission(t, push)); !errors.Is(err, approval.ErrTooMany) {
			t.Fatalf("beyond the bound: %v", err)
		}
	}
	start = time.Now()
	if list := d.list(t, approval.Query{Status: authzen.TaskPending}); len(list) != *pendingRequests {
		t.Fatalf("%d are listed", len(list))
	}
	listed := time.Since(start)
	start = time.Now()
	d.pass(time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d submitted in %s (%s each), listed in %s, expired in %s", *pendingRequests, submitted, submitted/time.Duration(*pendingRequests), listed, time.Since(start))
	if left := d.list(t, approval.Query{Status: authzen.TaskPending}); len(left) > 0 {
		t.Errorf("%d are left", len(left))
	}
	d.submit(t, push)
}

// items submits the same call for several tools, each with its own denial.
func (d *desk) items(t testing.TB, tools ...string) *authzen.Submission {
	t.Helper()
	s := &authzen.Submission{}
	for _, tool := range tools {
		r := evaluation(t, edit(t, "github.push_code", tool))
		s.Subject, s.Context = r.Subject, r.Context
		s.Items = append(s.Items, authzen.SubmissionItem{Resource: r.Resource, Action: r.Action, Denial: d.denied(t, r)})
	}
	return s
}

// Each item needs its own denial, or one of the whole request that covers it (AR-45, AR-47 in
// conformance/testdata/rows.txt).
func TestItemDenials(t *testing.T) {
	for _, test := range []struct {
		name   string
		want   error
		change func(s *authzen.Submission)
	}{
		{"each its own", nil, func(*authzen.Submission) {}},
		{"one that of the whole", nil, func(s *authzen.Submission) { s.Denial, s.Items[1].Denial = s.Items[1].Denial, nil }},
		{"its own before that of the whole", nil, func(s *authzen.Submission) { s.Denial = &authzen.Denial{BindingToken: "x"} }},
		{"one none", approval.ErrBinding, func(s *authzen.Submission) { s.Items[1].Denial = nil }},
		{"one that proves nothing", approval.ErrBinding, func(s *authzen.Submission) {
			s.Items[1].Denial = &authzen.Denial{ExpiresAt: s.Items[0].Denial.ExpiresAt}
		}},
		{"one the other's", approval.ErrBinding, func(s *authzen.Submission) { s.Items[1].Denial = s.Items[0].Denial }},
		{"one that of the whole, which is the other's", approval.ErrBinding, func(s *authzen.Submission) { s.Denial, s.Items[1].Denial = s.Items[0].Denial, nil }},
		{"for another subject", approval.ErrBinding, func(s *authzen.Submission) { s.Subject.ID = "root" }},
	} {
		d := open(t, plain)
		s := d.items(t, "one", "two")
		test.change(s)
		if _, err := d.Submit(t.Context(), gateway, "", s); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

// requested_access of an item overrides that of the request, including its end (AR-43, AR-51 in
// conformance/testdata/rows.txt).
func TestItemAccess(t *testing.T) {
	var checked []string
	d := open(t, with(func(terms *authzen.ApprovalTemplate) {
		terms.CheckAccess = func(access jsontext.Value) error { checked = append(checked, string(access)); return nil }
	}))
	s := d.items(t, "one", "two")
	s.RequestedAccess = jsontext.Value(`{"emergency":true,"requested_until":"2026-04-30T20:25:00Z"}`)
	s.Items[1].RequestedAccess = jsontext.Value(`{"requested_until":"2026-04-30T20:20:00Z","ticket":"T-1"}`)
	task, err := d.Submit(t.Context(), gateway, "", s)
	if err != nil {
		t.Fatal(err)
	}
	if task.Task.Status != authzen.TaskPending { // an emergency waits as well
		t.Errorf("it is %s", task.Task.Status)
	}
	want := []string{
		`{"emergency":true,"requested_until":"2026-04-30T20:25:00Z"}`,
		`{"emergency":true,"requested_until":"2026-04-30T20:20:00Z","ticket":"T-1"}`,
	}
	if diff := cmp.Diff(want, checked); diff != "" {
		t.Errorf("held against the schema (-want +got):\n%s", diff)
	}
	r, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), approves)
	if err != nil {
		t.Fatal(err)
	}
	for i, minutes := range []time.Duration{10, 5} {
		if got := r.Items[i].Approval.Until; !got.Equal(morning.Add(minutes * time.Minute)) {
			t.Errorf("item %d is approved until %s", i, got)
		}
	}
	s = d.items(t, "one", "two")
	s.Items[1].RequestedAccess = jsontext.Value(`{"requested_until":"2020-01-01T00:00:00Z"}`)
	var invalid *authzen.ValidationError
	if _, err := d.Submit(t.Context(), gateway, "", s); !errors.As(err, &invalid) || invalid.Path != "/requested_access/requested_until" {
		t.Errorf("an item until the past: %v", err)
	}
}

// Several items have separate denials and separate results (AR-80, AR-81, AR-105 in
// conformance/testdata/rows.txt).
func TestBulk(t *testing.T) {
	d := open(t, plain)
	s := d.items(t, "one", "two", "three")
	swapped := *s
	swapped.Items = append([]authzen.SubmissionItem{}, s.Items...)
	swapped.Items[0].Denial, swapped.Items[1].Denial = s.Items[1].Denial, s.Items[0].Denial
	if _, err := d.Submit(t.Context(), gateway, "", &swapped); !errors.Is(err, approval.ErrBinding) {
		t.Errorf("AR-46: denials of the others: %v", err)
	}
	task, err := d.Submit(t.Context(), gateway, "", s)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(decision string, item int) {
		t.Helper()
		choice := approval.Decision{Decision: decision, Items: []int{item}}
		if _, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), choice); err != nil {
			t.Fatal(err)
		}
	}
	statuses := func() string {
		t.Helper()
		now, err := d.Status(t.Context(), gateway, task.Task.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.Result != nil {
			t.Error("AR-82: there is a result for the whole")
		}
		text := string(now.Task.Status)
		for _, item := range now.Task.Items {
			text += " " + string(item.Status)
			if (item.Result != nil) != (item.Status == authzen.TaskApproved) {
				t.Errorf("AR-91, AR-92: %s item with result %v", item.Status, item.Result)
			}
		}
		return text
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "pending pending pending pending"},
		{func() { decide("approve", 1) }, "pending pending approved pending"},
		{func() { decide("deny", 2) }, "pending pending approved denied"},
		{func() {
			if _, err := d.Cancel(t.Context(), gateway, task.Task.ID, authzen.Cancellation{}); err != nil {
				t.Fatal(err)
			}
		}, "partial cancelled approved denied"},
	} {
		if step.do(); statuses() != step.want {
			t.Errorf("got %s, want %s", statuses(), step.want)
		}
	}
	if _, err := d.Cancel(t.Context(), gateway, task.Task.ID, authzen.Cancellation{}); !errors.Is(err, approval.ErrTaskState) {
		t.Errorf("AR-105: cancelled again: %v", err)
	}
}
