package explain

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Verdict is the result of a policy or of one of its conditions.
type Verdict string

// The verdicts. A policy's verdict is that of its first condition that does not hold, or VerdictTrue.
const (
	VerdictTrue       Verdict = "true"
	VerdictFalse      Verdict = "false"
	VerdictError      Verdict = "error"
	VerdictNotReached Verdict = "not reached" // an earlier condition did not hold
)

// A Trace is the evaluation of a policy whose scope the request satisfies, condition by condition.
type Trace struct {
	Citation
	Verdict    Verdict `json:"verdict"`
	Conditions []Step  `json:"conditions,omitempty"`
}

// A Step is the evaluation of a condition. Its verdict is the clause's: an unless whose expression is
// true is VerdictFalse.
type Step struct {
	cedarsyntax.Condition
	Verdict Verdict   `json:"verdict"`
	Error   string    `json:"error,omitzero"`
	Read    []Reading `json:"read,omitempty"` // the paths in the condition, in source order

	conjunct cedarsyntax.Conjunct
	alone    Verdict // the result of the condition by itself, reached or not
}

// A Reading is the value at a path of the request, such as resource.owner.department: a Cedar value,
// or "absent". For principal, action and resource themselves, In lists the ancestors.
type Reading struct {
	Path  string   `json:"path"`
	Value string   `json:"value"`
	In    []string `json:"in,omitempty"`
}

const absent = "absent"

// Absent reports whether the path has no value.
func (r Reading) Absent() bool { return r.Value == absent }

// Traces evaluates every policy whose scope the request satisfies, in the order of their ids. The
// verdicts are those that [snapshot.Snapshot.Decide] uses. There are none for a request that is denied
// before any policy is evaluated.
func Traces(s *snapshot.Snapshot, req *authzen.EvaluationRequest, env snapshot.Environment) ([]Trace, error) {
	q, err := s.NewQuery(req, env)
	if err != nil || q.Denied != "" {
		return nil, err
	}
	t := newTracer(s, q)
	var traces []Trace
	for _, p := range s.Policies.Ordered {
		if len(t.misses(p)) == 0 {
			traces = append(traces, t.trace(p))
		}
	}
	return traces, nil
}

// A tracer evaluates policies for one query.
type tracer struct {
	snapshot                    *snapshot.Snapshot
	environment                 eval.Env
	principal, action, resource snapshot.ResolvedEntity
}

func newTracer(s *snapshot.Snapshot, q *snapshot.Query) *tracer {
	r := q.Request
	return &tracer{
		snapshot:    s,
		environment: eval.Env{Entities: q, Principal: r.Principal, Action: r.Action, Resource: r.Resource, Context: r.Context},
		principal:   q.Node(r.Principal),
		action:      q.Node(r.Action),
		resource:    q.Node(r.Resource),
	}
}

// trace evaluates the conditions of a policy and assumes that its scope holds.
func (t *tracer) trace(p *snapshot.Policy) Trace {
	w := writtenIn(t.snapshot, p)
	out := Trace{Citation: w.Citation, Verdict: VerdictTrue}
	for i, c := range cedarsyntax.ConjunctsOf(p.Syntax) {
		step := Step{Condition: w.Conditions[i], Verdict: VerdictNotReached, conjunct: w.conjuncts[i]}
		var err error
		step.alone, err = t.evaluate(c)
		if out.Verdict == VerdictTrue {
			out.Verdict, step.Verdict = step.alone, step.alone
			step.Read = t.readings(step.conjunct.Body)
			if err != nil {
				step.Error = err.Error()
			}
		}
		out.Conditions = append(out.Conditions, step)
	}
	return out
}

// verdicts returns the result of a policy, and of each condition by itself. It assumes that the scope
// holds.
func (t *tracer) verdicts(p *snapshot.Policy) (Verdict, []Verdict) {
	verdict := VerdictTrue
	var alone []Verdict
	for _, c := range cedarsyntax.ConjunctsOf(p.Syntax) {
		v, _ := t.evaluate(c)
		if verdict == VerdictTrue {
			verdict = v
		}
		alone = append(alone, v)
	}
	return verdict, alone
}

func (t *tracer) evaluate(c cedarsyntax.Conjunct) (Verdict, error) {
	value, err := eval.Eval(c.Body, t.environment)
	if err != nil {
		return VerdictError, err
	}
	holds, ok := value.(types.Boolean)
	switch {
	case !ok:
		return VerdictError, fmt.Errorf("%w: expected bool, got %s", eval.ErrType, eval.TypeName(value))
	case bool(holds) == c.Unless:
		return VerdictFalse, nil
	}
	return VerdictTrue, nil
}

// readings returns the value at every path in an expression.
func (t *tracer) readings(n xast.IsNode) []Reading {
	var all []Reading
	for path := range cedarsyntax.Paths(n) {
		r := Reading{Path: cedarsyntax.Render(path), Value: absent}
		if slices.ContainsFunc(all, func(other Reading) bool { return other.Path == r.Path }) {
			continue
		}
		if value, err := eval.Eval(path, t.environment); err == nil {
			r.Value = string(value.MarshalCedar())
		}
		if of := t.node(cedarsyntax.EntityVariable(path)); of != nil {
			r.In = of.Groups()
		}
		all = append(all, r)
	}
	return all
}

// node returns the entity that is the value of a variable, or nil.
func (t *tracer) node(variable types.String) *snapshot.ResolvedEntity {
	switch variable {
	case "principal":
		return &t.principal
	case "action":
		return &t.action
	case "resource":
		return &t.resource
	}
	return nil
}

// A miss is a part of a policy's scope that a request does not satisfy.
type miss struct {
	part string // principal, action or resource
	test xast.IsScopeNode
	node *snapshot.ResolvedEntity
}

// misses returns the parts of a policy's scope that the request does not satisfy.
func (t *tracer) misses(p *snapshot.Policy) []miss {
	var missed []miss
	for _, m := range [...]miss{
		{"principal", p.Syntax.Principal, &t.principal},
		{"action", p.Syntax.Action, &t.action},
		{"resource", p.Syntax.Resource, &t.resource},
	} {
		if !m.node.Passes(m.test) {
			missed = append(missed, m)
		}
	}
	return missed
}
