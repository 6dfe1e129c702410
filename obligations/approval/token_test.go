package approval_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// claims verifies a compact JWS with the published keys, and returns its type and claims.
func (d *desk) claims(t testing.TB, token string) (kind any, claims map[string]any) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	header, keys := signed.Signatures[0].Protected, d.JWKS()
	found := keys.Key(header.KeyID)
	if len(found) != 1 || found[0].Use != "sig" {
		t.Fatalf("the key %q is %+v", header.KeyID, found)
	}
	payload, err := signed.Verify(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return header.ExtraHeaders[jose.HeaderType], claims
}

// object decodes the expected claims.
func object(t testing.TB, text string) (members map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		t.Fatal(err)
	}
	return members
}

// asked is push in the form of claims.
const asked = `
	"subject": {"type": "agent", "id": "agent-7", "properties": {"roles": ["writer"]}},
	"resource": {"type": "tool", "id": "github.push_code", "properties": {"impact": "write"}},
	"action": {"name": "tool.invoke", "properties": {"arguments": {"branch": "main", "files": 3}}}`

// sha256Of returns the digest of a canonical text as in claims.
func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// A binding token has these claims (AR-14, AR-25, AR-30, AR-32 to AR-34, AR-160 in
// conformance/testdata/rows.txt).
func TestBindingToken(t *testing.T) {
	d := open(t, plain)
	kind, got := d.claims(t, d.denied(t, evaluation(t, push)).BindingToken)
	if kind != "access-request-binding+jwt" {
		t.Errorf("it is signed as %v", kind)
	}
	want := object(t, `{`+asked+`,
		"iss": "https://pdp.example.com/tenants/acme", "aud": "https://pdp.example.com/tenants/acme",
		"denial_expires_at": "2026-04-30T20:25:00Z", "tenant": "acme", "client_id": "gateway-1",
		"template": "sre", "policy_revision": "sha256:1", "binding_context_members": ["workflow_id"],
		"bound_context": {"whole": true, "digest": "`+sha256Of(`{"workflow_id":"wf-1"}`)+`"}}`)
	want["iat"], want["exp"] = float64(morning.Unix()), float64(morning.Add(10*time.Minute).Unix())
	want["jti"], want["evaluation_id"] = got["jti"], got["jti"]
	if id, _ := got["jti"].(string); id == "" {
		t.Error("it has no id")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

// A denial is bound to these members of the context, and its token names them, even if there are
// none (AR-26, AR-27, AR-159 in conformance/testdata/rows.txt).
func TestBoundMembers(t *testing.T) {
	const protocol = `"access_request":{},"evaluation_id":"e","evaluated_at":"t","reason":"r","approval":{"id":"a"},"capability":{"use":true},"supported_obligations":[],"justification":"j","time":"t"`
	for _, test := range []struct {
		context string
		named   []string
		want    []any
	}{
		{`{"workflow_id":"wf-1","amount":1}`, nil, []any{"amount", "workflow_id"}},
		{`{"workflow_id":"wf-1",` + protocol + `}`, nil, []any{"workflow_id"}},
		{`{` + protocol + `}`, nil, []any{}},
		{`{}`, nil, []any{}},
		{`{"workflow_id":"wf-1","trace":"x"}`, []string{"workflow_id", "ticket"}, []any{"workflow_id", "ticket"}},
	} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Context = test.named }))
		r := evaluation(t, push)
		r.Context = jsontext.Value(test.context)
		_, got := d.claims(t, d.denied(t, r).BindingToken)
		if diff := cmp.Diff(any(test.want), got["binding_context_members"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.context, diff)
		}
	}
}

// A token of the service is refused for another submission (AR-31, AR-38, AR-39, AR-64, AR-67 in
// conformance/testdata/rows.txt).
func TestBindingClaims(t *testing.T) {
	says := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = value }
	}
	without := func(name string) func(map[string]any) {
		return func(claims map[string]any) { delete(claims, name) }
	}
	for _, test := range []struct {
		name   string
		want   error
		change func(claims map[string]any)
	}{
		{"as it was", nil, func(map[string]any) {}},
		{"a claim that nobody knows", nil, says("risk", map[string]any{"score": 7})},
		{"for another", approval.ErrBinding, says("aud", "https://other.example.com")},
		{"for nobody", approval.ErrBinding, without("aud")},
		{"for several", approval.ErrBinding, says("aud", []string{"https://pdp.example.com/tenants/acme"})}, // never issued in this form
		{"by another", approval.ErrBinding, says("iss", "https://other.example.com")},
		{"by nobody", approval.ErrBinding, without("iss")},
		{"of another tenant", approval.ErrBinding, says("tenant", "globex")},
		{"of another caller", approval.ErrBinding, says("client_id", "gateway-2")},
		{"of another time", approval.ErrBinding, says("denial_expires_at", "2026-04-30T20:30:00Z")},
		{"of no time", approval.ErrBinding, without("denial_expires_at")},
		{"that has expired before the denial", approval.ErrExpiredDenial, says("exp", morning.Unix())},
		{"that never expires", approval.ErrExpiredDenial, without("exp")},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, plain)
			s := d.submission(t, push)
			kind, claims := d.claims(t, s.Denial.BindingToken)
			test.change(claims)
			s.Denial.BindingToken = d.Signed(t, kind.(string), claims)
			if _, err := d.Submit(t.Context(), gateway, "", s); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// A token has a digest of the context. A token of an earlier version, with the context, is valid
// until it expires.
func TestBindingContext(t *testing.T) {
	d := open(t, plain)
	long := edit(t, `"workflow_id"`, `"text": "`+strings.Repeat("x", 100_000)+`", "workflow_id"`)
	if got := len(d.denied(t, evaluation(t, long)).BindingToken); got > 2000 {
		t.Errorf("the token of a context of 100 kB has %d bytes", got)
	}
	before := map[string]any{"members": []string{"workflow_id"}, "whole": true, "context": map[string]any{"workflow_id": "wf-1"}}
	for _, test := range []struct {
		bound any
		text  string
		want  error
	}{
		{before, push, nil},
		{before, edit(t, "wf-1", "wf-2"), approval.ErrBinding},
		{map[string]any{"whole": true}, push, approval.ErrBinding},
		{map[string]any{"whole": true, "digest": ""}, push, approval.ErrBinding},
		{map[string]any{"whole": true, "context": map[string]any{}}, push, approval.ErrBinding},
		{map[string]any{}, push, approval.ErrBinding},
	} {
		denial := d.denied(t, evaluation(t, push))
		kind, claims := d.claims(t, denial.BindingToken)
		claims["bound_context"] = test.bound
		s := d.submission(t, test.text)
		s.Denial = denial
		s.Denial.BindingToken = d.Signed(t, kind.(string), claims)
		task, err := d.Submit(t.Context(), gateway, "", s)
		if !errors.Is(err, test.want) {
			t.Errorf("%v of %s: %v, want %v", test.bound, test.text, err, test.want)
		}
		if err != nil {
			continue
		}
		if _, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), approves); err != nil {
			t.Fatal(err)
		}
		if task, err = d.Status(t.Context(), gateway, task.Task.ID); err != nil || d.again(t, push, task.Result.Approval).Approval == nil {
			t.Errorf("what came of %v does not stand: %v", test.bound, err)
		}
	}
}

// A token signed with other keys proves nothing (AR-64 in conformance/testdata/rows.txt).
func TestBindingTokenOfAnother(t *testing.T) {
	d := open(t, plain)
	s := d.submission(t, push)
	s.Denial.BindingToken = open(t, plain).denied(t, evaluation(t, push)).BindingToken
	s.Denial.EvaluationID = ""
	if _, err := d.Submit(t.Context(), gateway, "", s); !errors.Is(err, approval.ErrBinding) {
		t.Errorf("a token of another service: %v", err)
	}
}

// A denial without known actors has no offer (AR-20 in conformance/testdata/rows.txt).
func TestNoOffer(t *testing.T) {
	d := open(t, plain)
	for act, offered := range map[string]bool{`{"sub":"planner"}`: true, `{}`: false, `"planner"`: false, actors(9): false} {
		r := evaluation(t, edit(t, `"roles"`, `"act": `+act+`, "roles"`))
		offer, err := d.Offer(&authzen.RequestableDenial{EvaluationID: "e", Time: morning, Template: "sre", Request: r})
		if err != nil || (offer != nil) != offered {
			t.Errorf("%s: %+v, %v", act, offer, err)
		}
	}
}

// The state of an approval has the approved request and the bound members of the context (AR-109,
// AR-114, AR-119 in conformance/testdata/rows.txt).
func TestApprovalState(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push)
	kind, got := d.claims(t, approved.State)
	if kind != "approval+jwt" {
		t.Errorf("it is signed as %v", kind)
	}
	for _, name := range []string{"task_id", "evaluation_id"} {
		if text, _ := got[name].(string); text == "" {
			t.Errorf("it has no %s", name)
		}
	}
	delete(got, "task_id")
	delete(got, "evaluation_id")
	want := object(t, `{`+asked+`,
		"iss": "https://pdp.example.com/tenants/acme", "aud": "https://pdp.example.com/tenants/acme",
		"tenant": "acme", "scope": "call", "binding_context_members": ["workflow_id"]}`)
	want["approval_id"] = approved.ID
	want["iat"], want["exp"] = float64(approved.ApprovedAt.Unix()), float64(approved.ApprovedUntil.Unix())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	for name, value := range map[string]any{"approval_id": "apr_1", "iss": "https://other.example.com", "aud": "https://other.example.com"} {
		_, claims := d.claims(t, approved.State)
		changed := maps.Clone(claims)
		changed[name] = value
		for said, want := range map[string]string{d.Signed(t, "approval+jwt", claims): "", d.Signed(t, "approval+jwt", changed): authzen.ReasonApprovalUnverifiable} {
			if standing := d.again(t, push, authzen.Approval{ID: approved.ID, State: said}); standing.Reason != want {
				t.Errorf("with another %s: %q, want %q", name, standing.Reason, want)
			}
		}
	}
}

// Ids of tasks and approvals are unguessable and reveal nothing (AR-76 in
// conformance/testdata/rows.txt).
func TestIdentifiers(t *testing.T) {
	d := open(t, plain)
	seen := make(map[string]bool)
	for range 100 {
		id := d.submit(t, push).Task.ID
		random, ok := strings.CutPrefix(id, "arq_")
		if !ok || len(random) != 26 || strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" || seen[id] { // 130 bits
			t.Fatalf("the task is called %q", id)
		}
		seen[id] = true
	}
}
