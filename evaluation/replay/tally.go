package replay

import (
	"cmp"
	"maps"
	"slices"
)

// MaxChanges limits the rows of a Tally. Beyond it, changes of new subjects have the subject
// [OtherSubjects].
const MaxChanges = 10_000

// OtherSubjects is the subject of changes that have no row of their own.
const OtherSubjects = "(others)"

// A Tally counts changes of decisions. Its zero value is empty.
type Tally struct {
	known map[change]*Changes
}

// Add counts the change of a decision: its effect, the cause in the other policies (see
// [explain.Cause]), the subject and the Decision-ID.
func (t *Tally) Add(effect Effect, policy, subject, id string) {
	t.add(change{effect, policy, subject}, 1, id)
}

// Merge adds the rows of another Tally.
func (t *Tally) Merge(other *Tally) {
	for f, row := range other.known {
		t.add(f, row.Count, row.Examples...)
	}
}

func (t *Tally) add(f change, count int, ids ...string) {
	if t.known[f] == nil && len(t.known) >= MaxChanges {
		f = change{Effect: f.Effect, Subject: OtherSubjects}
	}
	known := t.known[f]
	if known == nil {
		if t.known == nil {
			t.known = make(map[change]*Changes)
		}
		known = &Changes{change: f}
		t.known[f] = known
	}
	known.Count += count
	known.Examples = append(known.Examples, ids[:min(len(ids), mostExamples-len(known.Examples))]...)
}

// Changes returns copies of the rows: by effect, the most severe first, and then the most frequent
// first.
func (t *Tally) Changes() []*Changes {
	rows := slices.SortedFunc(maps.Values(t.known), func(a, b *Changes) int {
		return cmp.Or(
			cmp.Compare(slices.Index(effects, a.Effect), slices.Index(effects, b.Effect)),
			-cmp.Compare(a.Count, b.Count),
			cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Subject, b.Subject),
		)
	})
	for i, row := range rows {
		rows[i] = &Changes{change: row.change, Count: row.Count, Examples: slices.Clone(row.Examples)}
	}
	return rows
}
