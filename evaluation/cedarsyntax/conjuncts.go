package cedarsyntax

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Condition is one conjunct of a policy's when and unless clauses. The policy applies only if
// all its conditions hold. Text is a complete clause, such as
//
//	when { resource.impact == "read" }
//	unless { principal in Role::"admin" }
//
// with the expression as written, on one line and without comments. Line is the line of the file
// where it begins.
type Condition struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// A Conjunct is the expression of a condition. It must be true in a when and false in an unless.
type Conjunct struct {
	Unless bool
	Body   xast.IsNode
}

// ConjunctsOf splits a policy's clauses: a when at its && and an unless at its ||. Evaluation
// stops at the first part that is false or in error, exactly as in the whole clause.
func ConjunctsOf(p *xast.Policy) []Conjunct {
	var all []Conjunct
	for _, clause := range p.Conditions {
		all = AppendConjuncts(all, clause.Condition == xast.ConditionUnless, clause.Body)
	}
	return all
}

// AppendConjuncts appends the conjuncts of the expression n to all.
func AppendConjuncts(all []Conjunct, unless bool, n xast.IsNode) []Conjunct {
	var both xast.BinaryNode
	switch n := n.(type) {
	case xast.NodeTypeAnd:
		both = n.BinaryNode
	case xast.NodeTypeOr:
		both = n.BinaryNode
	}
	if _, or := n.(xast.NodeTypeOr); both.Left == nil || or != unless {
		return append(all, Conjunct{unless, n})
	}
	return AppendConjuncts(AppendConjuncts(all, unless, both.Left), unless, both.Right)
}

func (c Conjunct) equal(other Conjunct) bool {
	return c.Unless == other.Unless && xast.Equal(xast.NewNode(c.Body), xast.NewNode(other.Body))
}

// clause formats an expression as a clause of the conjunct's kind.
func (c Conjunct) clause(expression string) string {
	if c.Unless {
		return "unless { " + expression + " }"
	}
	return "when { " + expression + " }"
}

// parseConjuncts parses an expression. It returns nil if the text is not an expression.
func parseConjuncts(unless bool, expression string) []Conjunct {
	list, err := cedar.NewPolicyListFromBytes("", []byte("permit (principal, action, resource) when { "+expression+" };"))
	if err != nil || len(list) != 1 || len(list[0].AST().Conditions) != 1 {
		return nil
	}
	return AppendConjuncts(nil, unless, (*xast.Policy)(list[0].AST()).Conditions[0].Body)
}

// Render formats an expression in Cedar syntax.
func Render(n xast.IsNode) string {
	p := xast.Permit().When(xast.NewNode(n))
	text := string(cedar.NewPolicyFromAST((*ast.Policy)(p)).MarshalCedar())
	_, text, _ = strings.Cut(text, "when { ")
	return strings.TrimSuffix(text, " };")
}

// ClauseBodies returns the text between the braces of each when and unless.
func ClauseBodies(st Statement) []Tokens {
	p := Tokenize(st)
	var bodies []Tokens
	opened := 0
	for i, text := range p.unbracketed {
		switch text {
		case "{":
			opened = i + 1
		case "}":
			bodies = append(bodies, p.slice(opened, i))
		}
	}
	return bodies
}

// Conditions returns the source text of the conjuncts of a clause, whose body is p. If the text
// does not split into the same parts as the syntax tree, Conditions renders the tree instead.
func (p Tokens) Conditions(conjuncts []Conjunct) []Condition {
	var out []Condition
	for _, piece := range p.split(conjuncts[0].Unless) {
		left := conjuncts[len(out):]
		found := parseConjuncts(conjuncts[0].Unless, piece.OneLine())
		if len(found) == 0 || len(found) > len(left) || !slices.EqualFunc(found, left[:len(found)], Conjunct.equal) {
			return p.rendered(conjuncts)
		}
		if len(found) > 1 {
			out = append(out, piece.rendered(found)...)
			continue
		}
		out = append(out, Condition{Line: piece.firstLine(), Text: found[0].clause(piece.OneLine())})
	}
	if len(out) != len(conjuncts) {
		return p.rendered(conjuncts)
	}
	return out
}

func (p Tokens) rendered(conjuncts []Conjunct) []Condition {
	out := make([]Condition, len(conjuncts))
	for i, c := range conjuncts {
		out[i] = Condition{Line: p.firstLine(), Text: c.clause(Render(c.Body))}
	}
	return out
}

// split splits the text of an expression at the operators where [ConjunctsOf] splits the tree.
func (p Tokens) split(unless bool) []Tokens {
	operator := "&&"
	if unless {
		operator = "||"
	}
	var cuts []int
	for i, text := range p.unbracketed {
		switch {
		case text == "if", !unless && text == "||":
			return []Tokens{p}
		case text == operator:
			cuts = append(cuts, i)
		}
	}
	if cuts == nil {
		if inner, ok := p.unwrapped(); ok {
			return inner.split(unless)
		}
		return []Tokens{p}
	}
	var pieces []Tokens
	start := 0
	for _, cut := range append(cuts, len(p.Tokens)) {
		pieces = append(pieces, p.slice(start, cut).split(unless)...)
		start = cut + 1
	}
	return pieces
}

// unwrapped removes the brackets that enclose all the tokens.
func (p Tokens) unwrapped() (Tokens, bool) {
	var brackets []string
	for _, text := range p.unbracketed {
		brackets = append(brackets, text)
	}
	if !slices.Equal(brackets, []string{"(", ")"}) {
		return p, false
	}
	return p.slice(1, len(p.Tokens)-1), true
}
