package evaluation

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Condition is one conjunct of a policy's when and unless clauses: all of
// them must hold for the policy to apply. Text is a clause of its own, such as
//
//	when { resource.impact == "read" }
//	unless { principal in Role::"admin" }
//
// with the expression as the policy has it, on one line and without comments.
// Line is where in the file it begins.
type Condition struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// A conjunct is the expression of a condition. It must be true or, of an
// unless, false.
type conjunct struct {
	unless bool
	body   xast.IsNode
}

// conjunctsOf takes a policy's clauses apart: a when at its &&, an unless at
// its ||, each of which ends the evaluation where it is false or in error just
// as the whole clause would.
func conjunctsOf(p *xast.Policy) []conjunct {
	var all []conjunct
	for _, clause := range p.Conditions {
		all = appendConjuncts(all, clause.Condition == xast.ConditionUnless, clause.Body)
	}
	return all
}

func appendConjuncts(all []conjunct, unless bool, n xast.IsNode) []conjunct {
	var both xast.BinaryNode
	switch n := n.(type) {
	case xast.NodeTypeAnd:
		both = n.BinaryNode
	case xast.NodeTypeOr:
		both = n.BinaryNode
	}
	if _, or := n.(xast.NodeTypeOr); both.Left == nil || or != unless {
		return append(all, conjunct{unless, n})
	}
	return appendConjuncts(appendConjuncts(all, unless, both.Left), unless, both.Right)
}

func (c conjunct) equal(other conjunct) bool {
	return c.unless == other.unless && xast.Equal(xast.NewNode(c.body), xast.NewNode(other.body))
}

// clause writes an expression as the clause that the conjunct is.
func (c conjunct) clause(expression string) string {
	if c.unless {
		return "unless { " + expression + " }"
	}
	return "when { " + expression + " }"
}

// parseConjuncts parses an expression; it is nil for what is none.
func parseConjuncts(unless bool, expression string) []conjunct {
	list, err := cedar.NewPolicyListFromBytes("", []byte("permit (principal, action, resource) when { "+expression+" };"))
	if err != nil || len(list) != 1 || len(list[0].AST().Conditions) != 1 {
		return nil
	}
	return appendConjuncts(nil, unless, (*xast.Policy)(list[0].AST()).Conditions[0].Body)
}

// render writes an expression as Cedar does.
func render(n xast.IsNode) string {
	p := xast.Permit().When(xast.NewNode(n))
	text := string(cedar.NewPolicyFromAST((*ast.Policy)(p)).MarshalCedar())
	_, text, _ = strings.Cut(text, "when { ")
	return strings.TrimSuffix(text, " };")
}

// clauseBodies returns what stands between the braces of each when and unless.
func clauseBodies(st statement) []passage {
	p := readPassage(st)
	var bodies []passage
	opened := 0
	for i, text := range p.outside {
		switch text {
		case "{":
			opened = i + 1
		case "}":
			bodies = append(bodies, p.from(opened, i))
		}
	}
	return bodies
}

// conditions says how the conjuncts of a clause, whose body the passage is,
// are written. Where the text does not come apart as the syntax does, it is
// the syntax that is written out.
func (p passage) conditions(conjuncts []conjunct) []Condition {
	var out []Condition
	for _, piece := range p.split(conjuncts[0].unless) {
		left := conjuncts[len(out):]
		found := parseConjuncts(conjuncts[0].unless, piece.text())
		if len(found) == 0 || len(found) > len(left) || !slices.EqualFunc(found, left[:len(found)], conjunct.equal) {
			return p.rendered(conjuncts)
		}
		if len(found) > 1 {
			out = append(out, piece.rendered(found)...)
			continue
		}
		out = append(out, Condition{Line: piece.firstLine(), Text: found[0].clause(piece.text())})
	}
	if len(out) != len(conjuncts) {
		return p.rendered(conjuncts)
	}
	return out
}

func (p passage) rendered(conjuncts []conjunct) []Condition {
	out := make([]Condition, len(conjuncts))
	for i, c := range conjuncts {
		out[i] = Condition{Line: p.firstLine(), Text: c.clause(render(c.body))}
	}
	return out
}

// split cuts the text of an expression where [conjunctsOf] takes it apart.
func (p passage) split(unless bool) []passage {
	operator := "&&"
	if unless {
		operator = "||"
	}
	var cuts []int
	for i, text := range p.outside {
		switch {
		case text == "if", !unless && text == "||":
			return []passage{p}
		case text == operator:
			cuts = append(cuts, i)
		}
	}
	if cuts == nil {
		if inner, ok := p.unwrapped(); ok {
			return inner.split(unless)
		}
		return []passage{p}
	}
	var pieces []passage
	start := 0
	for _, cut := range append(cuts, len(p.words)) {
		pieces = append(pieces, p.from(start, cut).split(unless)...)
		start = cut + 1
	}
	return pieces
}

// unwrapped takes away the brackets around the whole passage.
func (p passage) unwrapped() (passage, bool) {
	var brackets []string
	for _, text := range p.outside {
		brackets = append(brackets, text)
	}
	if !slices.Equal(brackets, []string{"(", ")"}) {
		return p, false
	}
	return p.from(1, len(p.words)-1), true
}
