package explain

import (
	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Citation is the position of a policy in its file.
type Citation struct {
	Policy string `json:"policy"` // its @id
	Effect string `json:"effect"` // permit or forbid
	File   string `json:"file"`
	Line   int    `json:"line"`
}

// A Source is a policy's text with its conditions in Cedar's order of evaluation.
type Source struct {
	Citation
	Text       string                  `json:"text"`
	Conditions []cedarsyntax.Condition `json:"conditions,omitempty"`
}

// Sources returns the snapshot's policies in the order of their ids.
func Sources(s *snapshot.Snapshot) []Source {
	type place struct {
		file         string
		line, column int
	}
	statements := map[place]cedarsyntax.Statement{}
	for _, file := range s.Archive().PolicyFiles() {
		found, _ := cedarsyntax.Scan(file, s.Archive()[file])
		for _, st := range found {
			statements[place{file, st.Line, st.Column}] = st
		}
	}
	out := make([]Source, len(s.Policies.Ordered))
	for i, p := range s.Policies.Ordered {
		st, found := statements[place{p.File, p.Line, p.Column}]
		if !found {
			st = s.Statement(p)
		}
		out[i] = writtenAs(p, st).Source
	}
	return out
}

func citationOf(p *snapshot.Policy) Citation {
	effect := "forbid"
	if p.Permits() {
		effect = "permit"
	}
	return Citation{Policy: string(p.ID), Effect: effect, File: p.File, Line: p.Line}
}

// A writing is a policy parsed again from its file. Its conjuncts are those that Cedar evaluates,
// without the rewrites of [cedarsyntax.Normalize].
type writing struct {
	Source
	conjuncts []cedarsyntax.Conjunct
}

// writtenIn parses a policy again.
func writtenIn(s *snapshot.Snapshot, p *snapshot.Policy) writing {
	return writtenAs(p, s.Statement(p))
}

// writtenAs parses the policy from its statement.
func writtenAs(p *snapshot.Policy, st cedarsyntax.Statement) writing {
	list, err := cedar.NewPolicyListFromBytes(p.File, st.Text)
	if err != nil || len(list) != 1 {
		panic("evaluation: " + p.File + " has changed since it was compiled") // violates the contract of Snapshot.Archive
	}
	w := writing{Source: Source{Citation: citationOf(p), Text: string(st.Text)}}
	bodies := cedarsyntax.ClauseBodies(st)
	for i, clause := range (*xast.Policy)(list[0].AST()).Conditions {
		found := cedarsyntax.AppendConjuncts(nil, clause.Condition == xast.ConditionUnless, clause.Body)
		w.conjuncts = append(w.conjuncts, found...)
		w.Conditions = append(w.Conditions, bodies[i].Conditions(found)...)
	}
	return w
}
