package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxSuggested is the number of suggestions after which suggest considers no further permit.
const maxSuggested = 5

// suggest lists what would change a denial: first what lifts it, then what makes a permit apply. The
// latter does not help under a forbid without exceptions.
func (e *explainer) suggest() {
	if e.denyingError() {
		for i := range e.out.Errors {
			e.suggestRepair(&e.out.Errors[i])
		}
	}
	if !e.suggestExceptions() {
		return
	}
	for _, w := range e.out.Withheld {
		e.suggestSupport(w)
	}
	if e.permitted() {
		return
	}
	for i := range e.out.Errors {
		e.suggestPermit(&e.out.Errors[i])
	}
	for i := range e.out.Nearest {
		e.suggestPermit(&e.out.Nearest[i].Trace)
	}
}

func (e *explainer) add(policy string, then Consequence, needs ...string) {
	e.out.Suggestions = append(e.out.Suggestions, Suggestion{policy, then, needs})
}

// permitted reports whether a permit applied.
func (e *explainer) permitted() bool {
	for t := range e.out.applied {
		if t.Effect == "permit" {
			return true
		}
	}
	return false
}

// applied yields the policies that applied.
func (e *Explanation) applied(yield func(*Trace) bool) {
	for i := range e.Determining {
		if !yield(&e.Determining[i].Trace) {
			return
		}
	}
	for i := range e.Overruled {
		if !yield(&e.Overruled[i]) {
			return
		}
	}
}

// suggestRepair suggests the data whose absence makes a policy error.
func (e *explainer) suggestRepair(t *Trace) {
	step := t.stop()
	var needs []string
	for _, path := range e.absent(step) {
		needs = append(needs, path+" ("+absent+")")
	}
	if needs == nil {
		for _, r := range step.Read {
			needs = append(needs, "another "+r.Path)
		}
	}
	e.add(t.Policy, ThenEvaluates, needs...)
}

// suggestExceptions suggests the exceptions of the forbids that applied, and reports whether all of
// them have one.
func (e *explainer) suggestExceptions() bool {
	excepted := true
	for t := range e.out.applied {
		if t.Effect == "forbid" && !e.suggestException(t) {
			e.add(t.Policy, ThenStays)
			excepted = false
		}
	}
	return excepted
}

func (e *explainer) suggestException(t *Trace) (excepted bool) {
	terms := e.snapshot.Policies.ByID[cedar.PolicyID(t.Policy)].Terms
	if terms.Requestable != "" {
		e.add(t.Policy, ThenNotForbids, approvalBy(terms.Requestable))
		return true
	}
	for i := range t.Conditions {
		if step := t.Conditions[i]; step.conjunct.Unless {
			step.conjunct.Unless = false
			e.add(t.Policy, ThenNotForbids, e.need(&step))
			excepted = true
		}
	}
	return excepted
}

// suggestSupport suggests how to obtain a permit that was withheld.
func (e *explainer) suggestSupport(w Withheld) {
	if w.Template != "" {
		e.add(w.Policy, ThenPermits, approvalBy(w.Template))
	}
	e.add(w.Policy, ThenPermits, fmt.Sprintf("%q in context.%s", w.Type, snapshot.ContextSupport))
}

// suggestPermit suggests what a permit that did not apply needs. It skips permits for another action,
// or for a single principal or resource, because these would be a different request.
func (e *explainer) suggestPermit(t *Trace) {
	p := e.snapshot.Policies.ByID[cedar.PolicyID(t.Policy)]
	if !p.Permits() || len(e.out.Suggestions) >= maxSuggested {
		return
	}
	var needs []string
	for _, m := range e.tracer.misses(p) {
		group := m.group()
		if group == "" || m.part == "action" {
			return
		}
		needs = append(needs, m.part+" in "+group)
	}
	needs = append(needs, e.needs(t.Conditions)...)
	if p.Terms.Approval != "" && !e.query.Support.Has(authzen.ObligationCustom) {
		needs = append(needs, approvalBy(p.Terms.Approval))
	}
	e.add(t.Policy, ThenPermits, needs...)
}

// needs lists what the failing conditions require, without duplicates. It omits the presence of an
// attribute for which a condition requires more.
func (e *explainer) needs(steps []Step) []string {
	var needs []string
	for i := range steps {
		step := &steps[i]
		if step.alone == VerdictTrue {
			continue
		}
		need := e.need(step)
		implied := slices.ContainsFunc(steps[i+1:], func(later Step) bool { return later.alone != VerdictTrue && step.presenceReadBy(later) })
		if !implied && !slices.Contains(needs, need) {
			needs = append(needs, need)
		}
	}
	return needs
}

// presence returns the path if the condition tests only its presence, or nil.
func (s *Step) presence() xast.IsNode {
	if _, has := s.conjunct.Body.(xast.NodeTypeHas); has {
		return cedarsyntax.PathOf(s.conjunct.Body)
	}
	return nil
}

// presenceReadBy reports whether the step tests the presence of what a later one reads.
func (s *Step) presenceReadBy(later Step) bool {
	path := s.presence()
	if path == nil || s.conjunct.Unless {
		return false
	}
	for read := range cedarsyntax.Paths(later.conjunct.Body) {
		if within := cedarsyntax.Render(read) + "."; strings.HasPrefix(within, cedarsyntax.Render(path)+".") {
			return true
		}
	}
	return false
}

// need returns what would make a condition hold.
func (e *explainer) need(s *Step) string {
	if template, ok := approvalIn(s.conjunct.Body); ok {
		return approvalBy(template)
	}
	path, need := s.presence(), s.expression()
	switch {
	case path != nil && s.conjunct.Unless:
		return "no " + cedarsyntax.Render(path)
	case path != nil:
		need = cedarsyntax.Render(path)
	case s.conjunct.Unless && cedarsyntax.IsPath(s.conjunct.Body):
		need += " is false"
	case s.conjunct.Unless:
		need = "(" + need + ") is false"
	}
	switch missing := e.absent(s); {
	case path != nil:
		need += " (" + absent + ")"
	case len(missing) == 1:
		need += " (" + missing[0] + " is " + absent + ")"
	case len(missing) > 1:
		need += " (" + listed(missing) + " are " + absent + ")"
	}
	return need
}

// absent lists the paths that a condition reads and that have no value.
func (e *explainer) absent(s *Step) []string {
	var missing []string
	for _, r := range shortest(e.tracer.readings(s.conjunct.Body)) {
		if r.Absent() {
			missing = append(missing, r.Path)
		}
	}
	return missing
}

// shortest omits paths that are absent only because a prefix is absent.
func shortest(readings []Reading) []Reading {
	return slices.DeleteFunc(slices.Clone(readings), func(r Reading) bool {
		return slices.ContainsFunc(readings, func(of Reading) bool { return of.Absent() && strings.HasPrefix(r.Path, of.Path+".") })
	})
}

// expression returns the condition's expression without its clause.
func (s *Step) expression() string {
	_, text, _ := strings.Cut(s.Text, "{ ")
	return strings.TrimSuffix(text, " }")
}

func approvalBy(template string) string {
	if template == "" {
		return "an approval"
	}
	return fmt.Sprintf("an approval by template %q", template)
}

// approvalIn reports whether an expression reads context.approval, and the template it requires, if
// any.
func approvalIn(n xast.IsNode) (template string, reads bool) {
	xast.Inspect(xast.NewNode(n), func(n xast.IsNode) bool {
		switch n := n.(type) {
		case xast.NodeTypeHas:
			reads = reads || isContext(n.Arg) && n.Value == snapshot.ContextApproval
		case xast.NodeTypeAccess:
			reads = reads || isContext(n.Arg) && n.Value == snapshot.ContextApproval
		case xast.NodeTypeEquals:
			if path, ok := n.Left.(xast.NodeTypeAccess); ok && path.Value == "template" {
				if literal, ok := n.Right.(xast.NodeValue); ok {
					name, _ := literal.Value.(types.String)
					template = string(name)
				}
			}
		}
		return true
	})
	if !reads {
		return "", false
	}
	return template, true
}

func isContext(n xast.IsNode) bool {
	v, ok := n.(xast.NodeTypeVariable)
	return ok && v.Name == "context"
}
