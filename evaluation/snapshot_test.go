package evaluation_test

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// erring permits everything, unless a policy errors: the permit where the
// subject lacks the attribute it reads, the forbid where the resource does.
const erring = `
@id("a-permit") permit (principal, action, resource);
@id("b-permit-that-reads") permit (principal, action, resource) when { principal.ok };
@id("c-forbid-that-reads") forbid (principal, action, resource) when { resource.closed };
`

func TestOnPolicyError(t *testing.T) {
	const (
		known, unknown = `user a {"ok":false}`, `user a`
		open, strange  = `doc 1 {"closed":false}`, `doc 1`
		closed         = `doc 1 {"closed":true}`
	)
	configs := map[string]string{
		"deny":            "on_policy_error: deny",
		"deny by default": "clock: now",
		"deny_any":        "on_policy_error: deny_any",
		"skip":            "on_policy_error: skip",
	}
	tests := []struct {
		name, subject, resource string
		errors                  []string // the policies that error
		allowed                 []string // by these configurations
	}{
		{"none errs", known, open, nil, []string{"deny", "deny by default", "deny_any", "skip"}},
		{"a permit errs", unknown, open, []string{"b-permit-that-reads"}, []string{"deny", "deny by default", "skip"}},
		{"a forbid errs", known, strange, []string{"c-forbid-that-reads"}, []string{"skip"}},
		{"both err", unknown, strange, []string{"b-permit-that-reads", "c-forbid-that-reads"}, []string{"skip"}},
		{"a forbid holds", known, closed, nil, nil},
	}
	for _, test := range tests {
		allowed := map[string]bool{}
		for _, name := range test.allowed {
			allowed[name] = true
		}
		for name, config := range configs {
			t.Run(test.name+", "+name, func(t *testing.T) {
				s := compile(t, erring+"-- config.yaml --\n"+config+"\n")
				out := s.decide(question(test.subject, "read", test.resource))
				if out.Decision != allowed[name] {
					t.Errorf("decided %v", out.Decision)
				}
				var errs []string
				denied := false
				for _, e := range out.Errors {
					if e.Policy != "" {
						errs = append(errs, e.Policy)
					}
					denied = denied || e == decisionlog.PolicyError{Message: "evaluation_error"}
				}
				if diff := cmp.Diff(test.errors, errs); diff != "" {
					t.Errorf("policies in error (-want +got):\n%s", diff)
				}
				if want := test.errors != nil && !allowed[name]; denied != want {
					t.Errorf("errors %v; is the denial for them: want %v", out.Errors, want)
				}
			})
		}
	}
}

// A denial that a forbid makes is that forbid's, whatever else errs: its
// obligations hold.
func TestForbidBesideAnError(t *testing.T) {
	for _, config := range []string{"deny", "deny_any", "skip"} {
		s := compile(t, `
@id("a-permit") permit (principal, action, resource);
@id("b-forbid") @reason_user("Closed.") @obligation_notification("{\"to\":\"soc\",\"body\":\"b\"}")
forbid (principal, action, resource);
@id("c-forbid-that-errs") forbid (principal, action, resource) when { resource.closed };
-- config.yaml --
on_policy_error: `+config+"\n")
		out := s.decide(question("user a", "read", "doc 1"))
		if diff := cmp.Diff([]string{"b-forbid"}, out.Policies); diff != "" {
			t.Errorf("%s: determining policies (-want +got):\n%s", config, diff)
		}
		want := &authzen.DecisionContext{
			ReasonUser: authzen.Reason{"en": "Closed."},
			Obligations: []authzen.Obligation{
				{ID: "obligation-1", Type: "notification", Properties: jsontext.Value(`{"body":"b","decision_subject":"a","to":["soc"]}`)},
			},
		}
		if diff := cmp.Diff(want, out.Context); out.Decision || diff != "" {
			t.Errorf("%s: decided %v, context (-want +got):\n%s", config, out.Decision, diff)
		}
	}
}

// Determining policies are in the order of their ids, wherever they stand.
func TestDeterminingPolicies(t *testing.T) {
	policy := func(effect, id string) string {
		return fmt.Sprintf("@id(%q) %s (principal, action, resource);\n", id, effect)
	}
	const permit, forbid = "permit", "forbid"
	stores := []string{
		"-- a.cedar --\n" + policy(permit, "c") + policy(permit, "a") + "-- b.cedar --\n" + policy(permit, "B") + policy(permit, "b"),
		"-- z.cedar --\n" + policy(permit, "a") + policy(permit, "b") + "-- y.cedar --\n" + policy(permit, "c") + policy(permit, "B"),
		policy(permit, "b") + policy(permit, "B") + policy(permit, "c") + policy(permit, "a"),
	}
	want := []string{"B", "a", "b", "c"}
	for _, store := range stores {
		out := compile(t, store).decide(question("user alice", "read", "doc 1"))
		if diff := cmp.Diff(want, out.Policies); diff != "" || !out.Decision {
			t.Errorf("%s\nis decided %v by (-want +got):\n%s", store, out.Decision, diff)
		}
		// A forbid decides alone.
		out = compile(t, store+policy(forbid, "y")+policy(forbid, "x")).decide(question("user alice", "read", "doc 1"))
		if diff := cmp.Diff([]string{"x", "y"}, out.Policies); diff != "" || out.Decision {
			t.Errorf("%s\nwith forbids is decided %v by (-want +got):\n%s", store, out.Decision, diff)
		}
	}
	out := compile(t, policy(permit, "a")[:len(policy(permit, "a"))-2]+" when { false };").decide(question("user alice", "read", "doc 1"))
	if diff := cmp.Diff(&snapshot.Outcome{}, out); diff != "" {
		t.Errorf("outcome where no policy applies (-want +got):\n%s", diff)
	}
}

// crowd is a store in which everything happens at once, and the requests of a
// crowd.
const crowd = `
@id("m-read") @reason_user("May read.") permit (principal, action == Action::"read", resource) when { resource has open };
@id("a-read") @obligation_notification("{\"to\":\"soc\",\"body\":\"b\"}") permit (principal in Role::"reader", action, resource);
@id("z-write") @approval("sre") permit (principal in Role::"writer", action == Action::"write", resource);
@id("b-closed") @reason_admin("Closed.") forbid (principal, action, resource) when { resource has closed && resource.closed };
@id("c-err") permit (principal, action, resource) when { principal.level > 3 };
@id("d-err") permit (principal, action, resource) when { context.level > 3 };
-- config.yaml --
parents: {roles: Role}
-- entities.json --
[{"uid": {"type": "Role", "id": "writer"}, "attrs": {}, "parents": [{"type": "Role", "id": "reader"}]},
 {"uid": {"type": "user", "id": "alice"}, "attrs": {"level": 4}, "parents": [{"type": "Role", "id": "reader"}]}]
`

func crowdRequests(t testing.TB) []*authzen.EvaluationRequest {
	var all []*authzen.EvaluationRequest
	for _, subject := range []string{`user alice`, `user alice {"level":1}`, `user bob`, `user bob {"roles":["writer"],"level":5}`, `Role reader`} {
		for _, action := range []string{"read", "write", "erase"} {
			for _, resource := range []string{`doc 1`, `doc 1 {"open":1}`, `doc 1 {"open":1,"closed":true}`, `user alice`} {
				for _, context := range []string{``, `{"level":9,"supported_obligations":["custom"]}`, `{"x":[3,1,2]}`} {
					all = append(all, request(t, question(subject, action, resource, context)))
				}
			}
		}
	}
	return all
}

// The same request has the same outcome every time: AZ-100.
func TestDecideRepeats(t *testing.T) {
	s := compile(t, crowd)
	for _, req := range crowdRequests(t) {
		first, err := s.Decide(req, environment)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			again, err := s.Decide(req, environment)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(first, again) {
				t.Fatalf("outcome (-once +again):\n%s", cmp.Diff(first, again))
			}
		}
	}
}

// Where a policy could err in two ways, it errs in one of them every time.
func TestErrorsRepeat(t *testing.T) {
	s := compile(t, `
@id("record") permit (principal, action, resource) when { {a: resource.a, b: resource.b, c: resource.c} == context };
@id("set") permit (principal, action, resource) when { [resource.a, resource.b, resource.c].contains(1) };
`)
	first := s.decide(question("user alice", "read", "doc 1"))
	for range 100 {
		if diff := cmp.Diff(first, s.decide(question("user alice", "read", "doc 1"))); diff != "" {
			t.Fatalf("outcome (-once +again):\n%s", diff)
		}
	}
}

// A snapshot answers any number of goroutines, and none of them changes it.
func TestDecideTogether(t *testing.T) {
	store := archive(crowd)
	kept := maps.Clone(store)
	compiled, err := snapshot.Compile(store)
	if err != nil {
		t.Fatal(err)
	}
	requests := crowdRequests(t)
	outcomes := make([]*snapshot.Outcome, len(requests))
	for i, req := range requests {
		if outcomes[i], err = compiled.Decide(req, environment); err != nil {
			t.Fatal(err)
		}
	}
	revision := compiled.Revision()

	var crowd sync.WaitGroup
	for g := range 8 {
		crowd.Go(func() {
			for i := range requests {
				n := (i*7 + g*23) % len(requests)
				out, err := compiled.Decide(requests[n], environment)
				if err != nil || !reflect.DeepEqual(outcomes[n], out) {
					t.Errorf("request %d: error %v, outcome (-alone +together):\n%s", n, err, cmp.Diff(outcomes[n], out))
				}
			}
		})
	}
	crowd.Wait()
	if compiled.Revision() != revision {
		t.Errorf("the revision is %s and was %s", compiled.Revision(), revision)
	}
	if diff := cmp.Diff(kept, compiled.Archive()); diff != "" {
		t.Errorf("archive (-before +after):\n%s", diff)
	}
}

// What the caller does with an outcome stays with the caller.
func TestOutcomesAreTheCallers(t *testing.T) {
	s := compile(t, crowd)
	req := request(t, question(`user alice`, "read", `doc 1 {"open":1}`))
	first, err := s.Decide(req, environment)
	if err != nil {
		t.Fatal(err)
	}
	first.Policies[0] = "changed"
	first.Obligations[0].ID = "changed"
	first.Context.Obligations[0].Type = "changed"
	first.Context.ReasonUser["en"] = "changed"

	want := &snapshot.Outcome{
		Decision: true,
		Policies: []string{"a-read", "c-err", "m-read"},
		Errors:   []decisionlog.PolicyError{{Policy: "d-err", Message: "while evaluating policy `d-err`: record does not have the attribute `level`"}},
		Obligations: []authzen.Obligation{
			{ID: "obligation-1", Type: "notification", Properties: jsontext.Value(`{"body":"b","decision_subject":"alice","to":["soc"]}`)},
		},
	}
	want.Context = &authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "May read."}, Obligations: want.Obligations}
	got, err := s.Decide(req, environment)
	if err != nil {
		t.Fatal(err)
	}
	got.Errors[0].Message = want.Errors[0].Message // as the engine words it
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}
