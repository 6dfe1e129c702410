package conformance_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The bounds of the README: one page.
const (
	mostLines   = 150
	mostColumns = 160
)

// The README is one page. What it is comes first, and the license last.
func TestReadmeIsOnePage(t *testing.T) {
	text := read(t, "../README.md")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > mostLines {
		t.Errorf("the README has %d lines, want %d at most", len(lines), mostLines)
	}
	for n, line := range lines {
		if width := utf8.RuneCountInString(line); width > mostColumns {
			t.Errorf("line %d has %d characters, want %d at most", n+1, width, mostColumns)
		}
	}
	order := []string{"Why", "Install", "Quick start", "Specifications", "Performance", "Comparison", "Documentation", "Project layout", "Contributing", "Security", "License"}
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		headings = append(headings, m[1])
	}
	if got, want := strings.Join(headings, ", "), strings.Join(order, ", "); got != want {
		t.Errorf("the sections are %s, want %s", got, want)
	}
	if _, after, _ := strings.Cut(text, "## License"); strings.Count(after, "\n") > 4 {
		t.Errorf("behind the license stands %q", after)
	}
}
