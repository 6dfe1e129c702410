package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// A Fault is one thing wrong in a policy store.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"`   // from 1; 0 is the whole file
	Column  int    `json:"column,omitzero"` // from 1
	Message string `json:"message"`
	Hint    string `json:"hint,omitzero"` // what to do about it
}

func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": " + f.Message)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}
	return b.String()
}

// Faults are all that is wrong in a policy store, by file and line. It is the
// type of every error that [Compile] returns.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// unique returns the faults, each once: what is wrong with a guardrail is wrong
// for every tenant.
func (f Faults) unique() Faults {
	var once Faults
	for _, fault := range f {
		if !slices.Contains(once, fault) {
			once = append(once, fault)
		}
	}
	return once
}

// sorted returns the faults in the order a reader goes through the files, or
// nil when there are none.
func (f Faults) sorted() error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}

// didYouMean is the hint for a name that is not one of the known ones: the
// nearest of them, or "".
func didYouMean(name string, known []string) string {
	if near := nearest(name, known, len(name)/2); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// nearest returns the known name that is the fewest edits from name, at most
// so many, or "".
func nearest(name string, known []string, edits int) string {
	best := ""
	if len(name) > 64 { // nobody means that
		return best
	}
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(candidate)); d <= edits {
			best, edits = candidate, d-1
		}
	}
	return best
}
