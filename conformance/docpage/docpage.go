// Package docpage keeps the generated parts of the pages in docs/reference equal
// to the program. A part stands between two comments, which a reader does not
// see:
//
//	<!-- generated: NAME -->
//	<!-- end -->
//
// A test makes the text of a part from flags, schemas or instruments and calls
// [Check]. With -update-docs, Check writes the part instead: make docs.
package docpage

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update-docs", false, "write the generated parts of docs/reference")

// ErrNoPart means that a page has no part of the name.
var ErrNoPart = errors.New("the page has no such generated part")

const end = "<!-- end -->"

// Generated matches a generated part with its comments.
var Generated = regexp.MustCompile(`(?s)<!-- generated: [\w-]+ -->.*?` + end)

// Check fails the test unless the named part of a page is text.
func Check(t testing.TB, page, name, text string) {
	t.Helper()
	is, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Replace(string(is), name, text)
	switch {
	case err != nil:
		t.Errorf("%s: %s: %v", page, name, err)
	case want == string(is):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the part %s differs from the program: run make docs and read the difference", page, name)
	}
}

// Replace returns a page with another text in the named part.
func Replace(page, name, text string) (string, error) {
	begin := "<!-- generated: " + name + " -->"
	before, rest, found := strings.Cut(page, begin)
	if !found {
		return "", ErrNoPart
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("%w: it has no end", ErrNoPart)
	}
	return before + begin + "\n" + strings.Trim(text, "\n") + "\n" + end + after, nil
}

// Table returns a Markdown table. Bars and line feeds in cells are escaped.
func Table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			cell = strings.ReplaceAll(strings.ReplaceAll(cell, "|", `\|`), "\n", " ")
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
