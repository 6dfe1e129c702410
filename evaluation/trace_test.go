package evaluation_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// traceTrials are random policy stores with the requests they are asked.
func traceTrials(t *testing.T, visit func(*testing.T, *trial, *snapshot.Snapshot)) {
	t.Helper()
	n := uint64(150)
	compiled := 0
	for i := range n {
		c := newTrial(7, i)
		s, err := snapshot.Compile(c.archive)
		if err != nil {
			continue
		}
		compiled++
		visit(t, c, s)
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	if compiled < int(n)/3 {
		t.Fatalf("only %d of %d stores compile", compiled, n)
	}
}

// The traces of a request are the decision, seen from nearer: they say of the
// same policies that they determine it and that they err.
func TestTracesAreTheDecision(t *testing.T) {
	counts := map[explain.Verdict]int{}
	traceTrials(t, func(t *testing.T, c *trial, s *snapshot.Snapshot) {
		for i, request := range c.requests {
			env := snapshot.Environment{Time: trialTime}
			want := decide(s, request)
			traces, err := explain.Traces(s, request, env)
			got := answerOf(traces)
			if err != nil {
				got = answer{Fault: err.Error()}
			}
			if want.Fault != "" && err == nil && len(traces) == 0 {
				got.Fault = want.Fault
				got.Decision = want.Decision
			}
			if diff := gocmp.Diff(want, got, sameAnswers); diff != "" {
				t.Errorf("request %d (-decision +traces):\n%s", i, diff)
			}
			for _, trace := range traces {
				counts[trace.Verdict]++
				checkSteps(t, trace)
			}
		}
	})
	t.Log(counts)
	for _, v := range []explain.Verdict{explain.VerdictTrue, explain.VerdictFalse, explain.VerdictError} {
		if counts[v] < 20 {
			t.Errorf("%d policies were %s", counts[v], v)
		}
	}
}

// answerOf decides as Cedar does: a forbid beats the permits, a policy in
// error counts for nothing.
func answerOf(traces []explain.Trace) answer {
	a := answer{Decision: "deny"}
	applied := map[string][]string{}
	for _, trace := range traces {
		switch trace.Verdict {
		case explain.VerdictTrue:
			applied[trace.Effect] = append(applied[trace.Effect], trace.Policy)
		case explain.VerdictError:
			a.Errors = append(a.Errors, trace.Policy)
		}
	}
	a.Reasons = applied["forbid"]
	if a.Reasons == nil && applied["permit"] != nil {
		a.Decision, a.Reasons = "allow", applied["permit"]
	}
	return a
}

// checkSteps holds the verdict of a policy against those of its conditions.
func checkSteps(t *testing.T, trace explain.Trace) {
	t.Helper()
	want := explain.VerdictTrue
	for _, step := range trace.Conditions {
		switch {
		case want != explain.VerdictTrue:
			if step.Verdict != explain.VerdictNotReached {
				t.Errorf("%s: %q is %s behind a condition that does not hold", trace.Policy, step.Text, step.Verdict)
			}
		case (step.Verdict == explain.VerdictError) != (step.Error != ""):
			t.Errorf("%s: %q is %s with the error %q", trace.Policy, step.Text, step.Verdict, step.Error)
		default:
			want = step.Verdict
		}
	}
	if trace.Verdict != want {
		t.Errorf("%s is %s, its conditions %s", trace.Policy, trace.Verdict, want)
	}
}

// What a decision does not tell, of permits under a forbid, it tells when each
// policy is the only one.
func TestTraceOfEachPolicyAlone(t *testing.T) {
	traceTrials(t, func(t *testing.T, c *trial, s *snapshot.Snapshot) {
		for id := range c.Policies {
			alone := snapshot.Archive{}
			for name, text := range c.archive {
				if !strings.HasSuffix(name, ".cedar") || name == id+".cedar" {
					alone[name] = text
				}
			}
			one, err := snapshot.Compile(alone)
			if err != nil {
				t.Fatal(err)
			}
			for _, request := range c.requests {
				want := decide(one, request)
				got := tracedVerdict(t, s, request, id)
				if (got == explain.VerdictTrue) != (want.Reasons != nil) || (got == explain.VerdictError) != (want.Errors != nil) {
					t.Errorf("%s is %s, alone it makes %+v", id, got, want)
				}
			}
		}
	})
}

// tracedVerdict returns the verdict of one policy: false where its scope is not
// satisfied or no policy is asked.
func tracedVerdict(t *testing.T, s *snapshot.Snapshot, request *authzen.EvaluationRequest, id string) explain.Verdict {
	t.Helper()
	traces, _ := explain.Traces(s, request, snapshot.Environment{Time: trialTime})
	i := slices.IndexFunc(traces, func(trace explain.Trace) bool { return trace.Policy == id })
	if i < 0 {
		return explain.VerdictFalse
	}
	return traces[i].Verdict
}

// The conditions of a policy are the policy: a store with its policies put
// together from them decides alike.
func TestSourcesAreThePolicies(t *testing.T) {
	conditions := 0
	traceTrials(t, func(t *testing.T, c *trial, s *snapshot.Snapshot) {
		again := snapshot.Archive{}
		for name, text := range c.archive {
			again[name] = text
		}
		for _, source := range explain.Sources(s) {
			again[source.File] = []byte(reassembled(t, source))
			conditions += len(source.Conditions)
			if !bytes.Contains(c.archive[source.File], []byte(source.Text)) {
				t.Errorf("%s is not written as\n%s", source.File, source.Text)
			}
			for _, condition := range source.Conditions {
				if strings.ContainsAny(condition.Text, "\n\t") {
					t.Errorf("%q is not on one line", condition.Text)
				}
			}
		}
		other, err := snapshot.Compile(again)
		if err != nil {
			t.Fatal(err)
		}
		for i, request := range c.requests {
			if diff := gocmp.Diff(decide(s, request), decide(other, request), sameAnswers); diff != "" {
				t.Errorf("request %d (-written +put together):\n%s", i, diff)
			}
		}
	})
	t.Log(conditions, "conditions")
}

// reassembled writes a policy's scope and its conditions.
func reassembled(t *testing.T, source explain.Source) string {
	t.Helper()
	list, err := cedar.NewPolicyListFromBytes(source.File, []byte(source.Text))
	if err != nil {
		t.Fatal(err)
	}
	scope := *list[0].AST()
	scope.Conditions = nil
	text := strings.TrimSuffix(string(cedar.NewPolicyFromAST(&scope).MarshalCedar()), ";")
	for _, condition := range source.Conditions {
		text += "\n" + condition.Text
	}
	return text + ";\n"
}

func TestConditions(t *testing.T) {
	for name, tt := range map[string]struct {
		clauses string
		want    []string
	}{
		"none":       {"", nil},
		"one":        {"when { true }", []string{"3 when { true }"}},
		"and":        {"when { context.a && !context.b && context.c > 1 }", []string{"3 when { context.a }", "3 when { !context.b }", "3 when { context.c > 1 }"}},
		"lines":      {"when {\n  context.a &&\n\n  // that\n  context.b\n}\nwhen\n{\n  context.c // or not\n    == 7\n}", []string{"4 when { context.a }", "7 when { context.b }", "11 when { context.c == 7 }"}},
		"brackets":   {"when { ((context.a && (context.b && context.c))) && (context.d || context.e) }", []string{"3 when { context.a }", "3 when { context.b }", "3 when { context.c }", "3 when { context.d || context.e }"}},
		"or":         {"when { context.a && context.b || context.c }", []string{"3 when { context.a && context.b || context.c }"}},
		"unless":     {"unless { context.a || (context.b || context.c && context.d) }", []string{"3 unless { context.a }", "3 unless { context.b }", "3 unless { context.c && context.d }"}},
		"unless and": {"unless { context.a && context.b }", []string{"3 unless { context.a && context.b }"}},
		"if":         {"when { if context.a && context.b then context.c else context.d && context.e }", []string{"3 when { if context.a && context.b then context.c else context.d && context.e }"}},
		"if inside":  {"when { context.a && (if context.b then context.c else context.d) }", []string{"3 when { context.a }", "3 when { if context.b then context.c else context.d }"}},
		"has path":   {"when { context has a.b &&\n context.a.b }", []string{"3 when { context has a }", "3 when { context.a has b }", "4 when { context.a.b }"}},
		"strings":    {`when { context.a == "} && \" || //" && context.b like "*}" }`, []string{`3 when { context.a == "} && \" || //" }`, `3 when { context.b like "*}" }`}},
		"records":    {`when { {a: context.b && context.c}.a && [1, 2].contains(context.d) }`, []string{`3 when { {a: context.b && context.c}.a }`, `3 when { [1, 2].contains(context.d) }`}},
		"brackets 2": {"when { (context.a) == (context.b) }", []string{"3 when { (context.a) == (context.b) }"}},
		"dates":      {`when { context.t.toDate() == datetime("1969-01-01") && decimal("1.0").lessThan(context.d) }`, []string{`3 when { context.t.toDate() == datetime("1969-01-01") }`, `3 when { decimal("1.0").lessThan(context.d) }`}},
		"letters":    {`when { context.a == "ü😀" &&  context . b }`, []string{`3 when { context.a == "ü😀" }`, `3 when { context . b }`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, "// first\n@id(\"ü\") permit (principal, action, resource)\n"+tt.clauses+";\n")
			var got []string
			for _, condition := range explain.Sources(s.Snapshot)[0].Conditions {
				got = append(got, fmt.Sprint(condition.Line, " ", condition.Text))
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// A condition that is no boolean is an error, first or last.
func TestTraceOfOtherValues(t *testing.T) {
	s := compile(t, `@id("a") permit (principal, action, resource) when { context.n };
@id("b") permit (principal, action, resource) when { true && context.n };
@id("c") permit (principal, action, resource) unless { context.n || true };
`)
	traces, err := explain.Traces(s.Snapshot, request(t, question("user ann", "read", "doc d", `{"n":1}`)), environment)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]string{"a", "b", "c"}, answerOf(traces).Errors); diff != "" {
		t.Errorf("policies in error (-want +got):\n%s", diff)
	}
}

// A policy may stand behind others on its line.
func TestSourcesOnOneLine(t *testing.T) {
	s := compile(t, "// ü\n"+
		`@id("ü") permit (principal, action, resource); @id("b") forbid (principal, action, resource) when {`+"\ncontext.a};\n")
	want := []explain.Source{
		{
			Citation:   explain.Citation{Policy: "b", Effect: "forbid", File: "policies.cedar", Line: 2},
			Text:       "@id(\"b\") forbid (principal, action, resource) when {\ncontext.a};",
			Conditions: []cedarsyntax.Condition{{Line: 3, Text: "when { context.a }"}},
		},
		{
			Citation: explain.Citation{Policy: "ü", Effect: "permit", File: "policies.cedar", Line: 2},
			Text:     `@id("ü") permit (principal, action, resource);`,
		},
	}
	if diff := gocmp.Diff(want, explain.Sources(s.Snapshot)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

// A tenant's policies stand in its folder.
func TestSourcesOfTenant(t *testing.T) {
	s, err := snapshot.CompileStore(archive(`// All.
@id("all") forbid (principal, action, resource);
-- tenants/acme/own.cedar --

@id("own") permit (principal, action, resource) when { context.a };
`))
	if err != nil {
		t.Fatal(err)
	}
	acme, err := s.For("acme")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, source := range explain.Sources(acme) {
		got = append(got, fmt.Sprintf("%s:%d %s", source.File, source.Line, source.Text))
	}
	want := []string{
		`policies.cedar:2 @id("all") forbid (principal, action, resource);`,
		`tenants/acme/own.cedar:2 @id("own") permit (principal, action, resource) when { context.a };`,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	traces, err := explain.Traces(acme, request(t, question("user ann", "read", "doc d")), environment)
	if err != nil || len(traces) != 2 || traces[1].Conditions[0].Text != "when { context.a }" {
		t.Errorf("traces are %+v, %v", traces, err)
	}
}

// readingStore has one policy, which reads in every way there is.
const readingStore = `
@id("reads") permit (principal, action, resource) when {
	principal in Role::"b" &&
	principal has address.city &&
	principal.address.city == resource["the city"] &&
	resource.owner.name == "Olga" &&
	principal.hasTag("team") && principal.getTag("team") == "x" &&
	(context has nothing || [context.n, context.n].contains(1)) &&
	context.t.toDate() == datetime("1969-12-31")
} unless { resource has locked } when { context.nothing };
-- entities.json --
[
	{"uid": {"type": "user", "id": "ann"}, "attrs": {"address": {"city": "Graz"}}, "tags": {"team": "x"}, "parents": [{"type": "Role", "id": "a"}]},
	{"uid": {"type": "Role", "id": "a"}, "attrs": {}, "parents": [{"type": "Role", "id": "b"}]},
	{"uid": {"type": "user", "id": "olga"}, "attrs": {"name": "Olga"}, "parents": []}
]
-- config.yaml --
attributes: {doc.owner: user, context.t: datetime}
`

func TestReadings(t *testing.T) {
	asked := request(t, question("user ann", "read", `doc d {"the city":"Graz","owner":"olga"}`, `{"n":1,"t":"1969-12-31T12:00:00Z"}`))
	traces, err := explain.Traces(compile(t, readingStore).Snapshot, asked, environment)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range traces[0].Conditions {
		got = append(got, fmt.Sprintf("%s: %s", step.Text, step.Verdict))
		for _, r := range step.Read {
			got = append(got, strings.TrimSpace(fmt.Sprintf("  %s = %s %s", r.Path, r.Value, strings.Join(r.In, " "))))
		}
	}
	want := []string{
		`when { principal in Role::"b" }: true`, `principal = user::"ann" Role::"a" Role::"b"`,
		`when { principal has address }: true`, `principal.address = {"city":"Graz"}`,
		`when { principal.address has city }: true`, `principal.address.city = "Graz"`,
		`when { principal.address.city == resource["the city"] }: true`, `principal.address.city = "Graz"`, `resource["the city"] = "Graz"`,
		`when { resource.owner.name == "Olga" }: true`, `resource.owner.name = "Olga"`,
		`when { principal.hasTag("team") }: true`, `principal.getTag("team") = "x"`,
		`when { principal.getTag("team") == "x" }: true`, `principal.getTag("team") = "x"`,
		`when { context has nothing || [context.n, context.n].contains(1) }: true`, `context.nothing = absent`, `context.n = 1`,
		`when { context.t.toDate() == datetime("1969-12-31") }: true`, `context.t = datetime("1969-12-31T12:00:00.000Z")`,
		`unless { resource has locked }: true`, `resource.locked = absent`,
		`when { context.nothing }: error`, `context.nothing = absent`,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if last := traces[0].Conditions[len(traces[0].Conditions)-1]; !strings.Contains(last.Error, "nothing") {
		t.Errorf("the error is %q", last.Error)
	}
}
