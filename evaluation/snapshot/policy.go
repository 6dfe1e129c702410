package snapshot

import (
	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/obligations"
)

// A Policy is one Cedar policy with the obligations and terms of its annotations.
type Policy struct {
	ID           cedar.PolicyID
	effect       cedar.Effect
	Syntax       *xast.Policy
	Scope        cedarsyntax.Scope
	conditions   *cedar.Policy // without the scope, which the index has tested
	Terms        *obligations.Terms
	File         string
	Line, Column int
}

// Permits reports whether the policy is a permit.
func (p *Policy) Permits() bool { return p.effect == cedar.Permit }

// AnnotationPlace returns the position of an annotation of the policy in its file.
func (p *Policy) AnnotationPlace(st cedarsyntax.Statement, key string) (line, column int) {
	offset := cedarsyntax.Tokenize(st).Find("@", key)
	if offset < 0 {
		return p.Line, p.Column
	}
	return st.Position(LineAndColumn(st.Text, int64(offset)))
}
