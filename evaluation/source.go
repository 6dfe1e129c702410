package evaluation

import (
	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Citation says where a policy stands.
type Citation struct {
	Policy string `json:"policy"` // its @id
	Effect string `json:"effect"` // permit or forbid
	File   string `json:"file"`
	Line   int    `json:"line"`
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

// A writing is a policy read again from its file. Its conjuncts are those that
// Cedar evaluates as they were before [repair].
type writing struct {
	Source
	conjuncts []conjunct
}

// written reads a policy again.
func (s *Snapshot) written(p *policy) writing {
	return p.written(statementAt(p.file, s.archive[p.file], p.line, p.column))
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
