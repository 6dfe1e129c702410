package evaluation

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Citation says where a policy stands.
type Citation struct {
	Policy string `json:"policy"` // its @id
	Effect string `json:"effect"` // permit or forbid
	File   string `json:"file"`
	Line   int    `json:"line"`
}

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

// A Source is a policy as it is written, with its conditions in the order in
// which Cedar evaluates them.
type Source struct {
	Citation
	Text       string      `json:"text"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Sources returns the snapshot's policies in the order of their ids.
func (s *Snapshot) Sources() []Source {
	type place struct {
		file         string
		line, column int
	}
	statements := map[place]statement{}
	for _, file := range s.archive.policyFiles() {
		found, _ := scan(file, s.archive[file])
		for _, st := range found {
			statements[place{file, st.line, st.column}] = st
		}
	}
	out := make([]Source, len(s.policies.ordered))
	for i, p := range s.policies.ordered {
		out[i] = p.written(statements[place{p.file, p.line, p.column}]).Source
	}
	return out
}

func (p *policy) citation() Citation {
	effect := "forbid"
	if p.permits() {
		effect = "permit"
	}
	return Citation{Policy: string(p.id), Effect: effect, File: p.file, Line: p.line}
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

// A writing is a policy read again from its file. Its conjuncts are those that
// Cedar evaluates as they were before [repair].
type writing struct {
	Source
	conjuncts []conjunct
}

// written reads a policy again.
func (s *Snapshot) written(p *policy) writing {
	return p.written(statementAt(s.archive[p.file], p))
}

// written reads the policy from its statement.
func (p *policy) written(st statement) writing {
	list, err := cedar.NewPolicyListFromBytes(p.file, st.text)
	if err != nil || len(list) != 1 {
		panic("evaluation: " + p.file + " has changed since it was compiled") // against the contract of Snapshot.Archive
	}
	w := writing{Source: Source{Citation: p.citation(), Text: string(st.text)}}
	bodies := clauseBodies(st)
	for i, clause := range (*xast.Policy)(list[0].AST()).Conditions {
		found := appendConjuncts(nil, clause.Condition == xast.ConditionUnless, clause.Body)
		w.conjuncts = append(w.conjuncts, found...)
		w.Conditions = append(w.Conditions, bodies[i].conditions(found)...)
	}
	return w
}

// statementAt cuts the statement of p out of its file.
func statementAt(src []byte, p *policy) statement {
	for line := 1; line < p.line; line++ {
		src = src[bytes.IndexByte(src, '\n')+1:]
	}
	for column := 1; column < p.column; column++ {
		_, size := utf8.DecodeRune(src)
		src = src[size:]
	}
	s := scanner{src: src, file: p.file, line: p.line, column: p.column, startedAt: -1}
	for len(s.statements) == 0 && s.at < len(src) {
		s.next()
	}
	if len(s.statements) == 0 {
		return statement{}
	}
	return s.statements[0]
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
