package approval_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A desk is a service with a clock, an engine that lets approvers decide, and a log.
type desk struct {
	*approval.Service
	dir    string
	config approval.Config

	mu       sync.Mutex
	now      time.Time
	terms    authzen.ApprovalTemplate
	records  []approval.Record
	broken   error // error of the log
	revision string
}

var morning = time.Date(2026, 4, 30, 20, 15, 0, 0, time.UTC)

// open returns a desk whose templates all have these terms.
func open(t testing.TB, terms authzen.ApprovalTemplate) *desk {
	t.Helper()
	d := &desk{dir: t.TempDir(), now: morning, terms: terms, revision: "sha256:1"}
	d.config = approval.Config{
		BaseURL:    "https://pdp.example.com",
		Template:   func(_, name string) (authzen.ApprovalTemplate, error) { return d.terms, nil },
		CanApprove: d.may, WouldApprove: d.may,
		Record: d.record,
		Now:    d.time,
	}
	d.reopen(t)
	t.Cleanup(func() { d.Close() })
	return d
}

func (d *desk) reopen(t testing.TB) {
	t.Helper()
	if d.Service != nil {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := approval.Open(d.dir, d.config)
	if err != nil {
		t.Fatal(err)
	}
	d.Service = s
}

func (d *desk) time() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) pass(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

func (d *desk) may(_ context.Context, check approval.Check) (bool, error) {
	return strings.HasPrefix(check.Request.Subject.Type, "approver"), nil
}

func (d *desk) record(_ context.Context, r approval.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	d.records = append(d.records, r)
	return nil
}

// events returns the events in the log, in order.
func (d *desk) events(t testing.TB) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, r := range d.records {
		var body struct {
			Event string `json:"event"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		all = append(all, r.Kind+"/"+body.Event)
	}
	return strings.Join(all, " ")
}

// plain are the terms of a template with defaults.
var plain = authzen.ApprovalTemplate{TTL: lasting(15 * time.Minute), DecideWithin: lasting(time.Hour), Uses: 1, Quorum: 1, Scope: authzen.ScopeCall}

func lasting(d time.Duration) authzen.Duration { return authzen.Duration{Duration: d} }

func with(change func(*authzen.ApprovalTemplate)) authzen.ApprovalTemplate {
	terms := plain
	change(&terms)
	return terms
}

// push is the request that the tests submit.
const push = `{
	"subject": {"type": "agent", "id": "agent-7", "properties": {"roles": ["writer"]}},
	"action": {"name": "tool.invoke", "properties": {"arguments": {"branch": "main", "files": 3}}},
	"resource": {"type": "tool", "id": "github.push_code", "properties": {"impact": "write"}},
	"context": {"workflow_id": "wf-1", "time": "2026-04-30T20:15:00Z"}
}`

func evaluation(t testing.TB, text string) *authzen.EvaluationRequest {
	t.Helper()
	var r authzen.EvaluationRequest
	if err := authzen.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

var gateway = approval.Caller{Tenant: "acme", ID: "gateway-1"}

var denials int

// denied returns the denial of a request as the gateway sends it back.
func (d *desk) denied(t testing.TB, request *authzen.EvaluationRequest) *authzen.Denial {
	t.Helper()
	denials++
	id := fmt.Sprintf("evaluation-%d", denials)
	offer, err := d.Offer(&authzen.RequestableDenial{
		EvaluationID: id, Tenant: gateway.Tenant, Caller: gateway.ID, Time: d.time(), Revision: d.revision, Template: "sre", Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &authzen.Denial{EvaluationID: id, ExpiresAt: offer.ExpiresAt.Format(time.RFC3339), BindingToken: offer.BindingToken}
}

// submission returns an Access Request for a request.
func (d *desk) submission(t testing.TB, text string) *authzen.Submission {
	t.Helper()
	r := evaluation(t, text)
	return &authzen.Submission{Subject: r.Subject, Resource: &r.Resource, Action: &r.Action, Context: r.Context, Denial: d.denied(t, r)}
}

func (d *desk) submit(t testing.TB, text string) *authzen.TaskResponse {
	t.Helper()
	task, err := d.Submit(t.Context(), gateway, "", d.submission(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// approver returns an approver whom policies allow.
func approver(id string) approval.Approver { return entity("approver", id) }

// entity returns an approver with a single name.
func entity(kind, id string) approval.Approver {
	return approval.Approver{Subject: authzen.Subject{Type: kind, ID: id}}
}

var approves, denies = approval.Decision{Decision: "approve"}, approval.Decision{Decision: "deny"}

// approve submits and approves a request, and returns the approval.
func (d *desk) approve(t testing.TB, text string) authzen.Approval {
	t.Helper()
	id := d.submit(t, text).Task.ID
	if _, err := d.Decide(t.Context(), id, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	task, err := d.Status(t.Context(), gateway, id)
	if err != nil {
		t.Fatal(err)
	}
	if task.Task.Status != authzen.TaskApproved || task.Result == nil {
		t.Fatalf("AR-91: approved task is %+v", task)
	}
	return task.Result.Approval
}

// again evaluates the request with a claim.
func (d *desk) again(t testing.TB, text string, claim any) authzen.ApprovalStatus {
	t.Helper()
	raw, ok := claim.(jsontext.Value)
	if !ok {
		var err error
		if raw, err = json.Marshal(claim); err != nil {
			t.Fatal(err)
		}
	}
	standing, err := d.Verify(t.Context(), &authzen.Reevaluation{
		EvaluationID: "again", Tenant: gateway.Tenant, Caller: gateway.ID, Time: d.time(), Revision: d.revision, Claim: raw, Request: evaluation(t, text),
	})
	if err != nil {
		t.Fatal(err)
	}
	return standing
}

// edit returns push with old replaced by new.
func edit(t testing.TB, old, new string) string {
	t.Helper()
	if !strings.Contains(push, old) {
		t.Fatalf("the request has no %s", old)
	}
	return strings.ReplaceAll(push, old, new)
}
