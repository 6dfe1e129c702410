package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Fault is one thing wrong in a policy store.
type Fault = yamldoc.Fault

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
// for every tenant, and what is wrong behind an anchor for every alias.
func (f Faults) unique() Faults {
	var once Faults
	seen := make(map[Fault]bool, len(f))
	for _, fault := range f {
		if !seen[fault] {
			seen[fault] = true
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
func didYouMean(name string, known []string) string { return yamldoc.DidYouMean(name, known) }

// nearest returns the known name that is the fewest edits from name, at most
// so many, or "".
func nearest(name string, known []string, edits int) string {
	return yamldoc.Nearest(name, known, edits)
}

// meant is the hint for a name that is not one of the known ones but looks like
// another spelling of one: ids are seldom alike by chance, but seldom unlike.
func meant(name string, known []string) string {
	if near := nearest(name, known, edits(name)); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// edits says by how many letters two spellings of a name differ at most.
func edits(name string) int { return min(len(name)/2, 2) }
