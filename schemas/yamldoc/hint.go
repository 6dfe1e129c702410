package yamldoc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// DidYouMean is the hint for a name that is not one of the known ones: the
// nearest of them, or "".
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known, len(name)/2); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// Nearest returns the known name that is the fewest edits from name, at most
// so many, or "".
func Nearest(name string, known []string, edits int) string {
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
