package snapshot

import (
	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
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
	compiled     []byte // the text, if the policy was compiled from an access document
}

// Permits reports whether the policy is a permit.
func (p *Policy) Permits() bool { return p.effect == cedar.Permit }

// Annotations returns the values of the policy's annotations by name.
func (p *Policy) Annotations() map[string]string { return annotationsOf(p.Syntax) }

// AnnotationPlace returns the position of an annotation of the policy in its file.
func (p *Policy) AnnotationPlace(st cedarsyntax.Statement, key string) (line, column int) {
	offset := cedarsyntax.Tokenize(st).Find("@", key)
	if offset < 0 {
		return p.Line, p.Column
	}
	return st.Position(faults.LineAndColumn(st.Text, int64(offset)))
}

// statementOf returns the text of a policy in an archive.
func statementOf(a Archive, p *Policy) cedarsyntax.Statement {
	if p.compiled != nil {
		return cedarsyntax.Statement{Text: p.compiled, Line: p.Line, Column: p.Column, Compiled: true}
	}
	return cedarsyntax.StatementAt(p.File, a[p.File], p.Line, p.Column)
}
