package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A nearPermit is a permit that did not apply. Either the request missed one part of its scope, or
// missed none and failed its conditions.
type nearPermit struct {
	policy *snapshot.Policy
	missed []miss
	alone  []Verdict // verdict on each condition, evaluated separately
}

// failing returns the number of conditions that do not hold.
func (n nearPermit) failing() int {
	count := 0
	for _, v := range n.alone {
		if v != VerdictTrue {
			count++
		}
	}
	return count
}

// held returns the number of conditions before the first that does not hold.
func (n nearPermit) held() int {
	if i := slices.IndexFunc(n.alone, func(v Verdict) bool { return v != VerdictTrue }); i >= 0 {
		return i
	}
	return len(n.alone)
}

// distance ranks how much of the request would have to change: policies whose scope it satisfies come
// first, policies for another action last.
func (n nearPermit) distance() int {
	if len(n.missed) == 0 {
		return 0
	}
	m := n.missed[0]
	switch {
	case m.part == "action":
		return 3
	case m.group() == "":
		return 2
	}
	return 1
}

// nearest cites the nearest permits.
func (e *explainer) nearest(permits []nearPermit) {
	slices.SortStableFunc(permits, func(a, b nearPermit) int {
		return cmp.Or(cmp.Compare(a.distance(), b.distance()), cmp.Compare(a.failing(), b.failing()), cmp.Compare(b.held(), a.held()))
	})
	e.out.NearestLeft = max(0, len(permits)-maxNearest)
	for _, n := range permits[:len(permits)-e.out.NearestLeft] {
		e.out.Nearest = append(e.out.Nearest, e.near(n))
	}
}

func (e *explainer) near(n nearPermit) NearMiss {
	trace, text := e.tracer.trace(n.policy), writtenIn(e.snapshot, n.policy).Text
	if len(n.missed) == 0 {
		step := trace.stop()
		return NearMiss{Trace: trace, Text: text, Because: strings.Join(append([]string{step.Text + " does not hold"}, step.values()...), "; ")}
	}
	trace.Verdict = VerdictFalse
	for i := range trace.Conditions {
		step := &trace.Conditions[i]
		step.Verdict, step.Error, step.Read = VerdictNotReached, "", nil
	}
	m := n.missed[0]
	return NearMiss{Trace: trace, Text: text, Part: m.part, Because: m.String()}
}

// stop returns the condition that did not hold, or nil.
func (t *Trace) stop() *Step {
	i := slices.IndexFunc(t.Conditions, func(s Step) bool { return s.Verdict == VerdictFalse || s.Verdict == VerdictError })
	if i < 0 {
		return nil
	}
	return &t.Conditions[i]
}

// values describes what the condition read.
func (s *Step) values() []string {
	var out []string
	for _, r := range shortest(s.Read) {
		out = append(out, r.String())
	}
	return out
}

// String describes the value at the path.
func (r Reading) String() string {
	text := r.Path + " is " + r.Value
	if len(r.In) > 0 {
		text += ", in " + listed(r.In)
	}
	return text
}

// String describes why a request misses a part of a scope.
func (m miss) String() string {
	is := m.part + " is " + m.node.UID.String()
	switch t := m.test.(type) {
	case xast.ScopeTypeEq:
		return fmt.Sprintf("%s, not %s", is, t.Entity)
	case xast.ScopeTypeIs:
		return fmt.Sprintf("%s is a %s, not a %s", m.part, m.node.UID.Type, t.Type)
	case xast.ScopeTypeIsIn:
		if m.node.UID.Type != t.Type {
			return fmt.Sprintf("%s is a %s, not a %s", m.part, m.node.UID.Type, t.Type)
		}
	case xast.ScopeTypeInSet:
		names := make([]string, len(t.Entities))
		for i, e := range t.Entities {
			names[i] = e.String()
		}
		return is + ", not in " + listed(names)
	}
	groups := "nothing"
	if in := m.node.Groups(); len(in) > 0 {
		groups = listed(in)
	}
	return fmt.Sprintf("%s is not in %s; it is in %s", m.part, m.group(), groups)
}

// group returns the group that the scope requires, or "" if the request misses another test.
func (m miss) group() string {
	switch t := m.test.(type) {
	case xast.ScopeTypeIn:
		return t.Entity.String()
	case xast.ScopeTypeIsIn:
		if m.node.UID.Type == t.Type {
			return t.Entity.String()
		}
	}
	return ""
}

// listed joins the first few items of a list.
func listed(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}
