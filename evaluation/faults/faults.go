package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Fault is one thing wrong in a policy store.
type Fault = yamldoc.Fault

// List are all that is wrong in a policy store, by file and line. It is the
// type of every error that [Compile] returns.
type List []Fault

func (f List) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unique returns the faults, each once: what is wrong with a guardrail is wrong
// for every tenant, and what is wrong behind an anchor for every alias.
func (f List) Unique() List {
	var once List
	seen := make(map[Fault]bool, len(f))
	for _, fault := range f {
		if !seen[fault] {
			seen[fault] = true
			once = append(once, fault)
		}
	}
	return once
}

// Sorted returns the faults in the order a reader goes through the files, or
// nil when there are none.
func (f List) Sorted() error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}

// DidYouMean is the hint for a name that is not one of the known ones: the
// nearest of them, or "".
func DidYouMean(name string, known []string) string { return yamldoc.DidYouMean(name, known) }

// Nearest returns the known name that is the fewest edits from name, at most
// so many, or "".
func Nearest(name string, known []string, edits int) string {
	return yamldoc.Nearest(name, known, edits)
}

// SpellingHint is the hint for a name that is not one of the known ones but looks like
// another spelling of one: ids are seldom alike by chance, but seldom unlike.
func SpellingHint(name string, known []string) string {
	if near := Nearest(name, known, MaxEdits(name)); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// MaxEdits says by how many letters two spellings of a name differ at most.
func MaxEdits(name string) int { return min(len(name)/2, 2) }
