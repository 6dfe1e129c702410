package yamldoc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// DidYouMean returns a hint with the known name nearest to an unknown one, or "".
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known, len(name)/2); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// Nearest returns the known name with the smallest edit distance to name, up to edits, or "".
func Nearest(name string, known []string, edits int) string {
	best := ""
	if len(name) > 64 { // too long for a misspelling
		return best
	}
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(candidate)); d <= edits {
			best, edits = candidate, d-1
		}
	}
	return best
}
