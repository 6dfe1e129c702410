package revisions

import (
	"strings"
	"unicode"

	"znkr.io/diff"
)

// A Line is a line of two texts, or of one of them.
type Line struct {
	Change Change `json:"change,omitzero"` // added or removed; absent for a line of both texts
	Before int    `json:"before,omitzero"` // its number in the file before; 0 if it was added
	After  int    `json:"after,omitzero"`  // its number in the file after; 0 if it was removed
	Parts  []Part `json:"parts"`           // together its text
}

// A Part is a piece of a line.
type Part struct {
	Text    string `json:"text"`
	Changed bool   `json:"changed,omitzero"` // within a line that is otherwise similar in the other text
}

// Limits of the lines of one change.
const (
	surroundings = 3      // lines of both texts around those that differ
	maxLines     = 2000   // further ones are left out
	maxWords     = 20_000 // of a block of lines; in longer ones no parts are marked
)

// compareTexts returns the lines that differ, with their surroundings, and the number of those that are
// left out. The arguments before and after the texts are the numbers of their first lines.
func compareTexts(before, after string, firstBefore, firstAfter int) (lines []Line, left int) {
	for _, hunk := range diff.Hunks(linesOf(before), linesOf(after), diff.Context(surroundings)) {
		for edits := hunk.Edits; len(edits) > 0; {
			n := blockLength(edits)
			lines = append(lines, blockOf(edits[:n], firstBefore, firstAfter)...)
			edits = edits[n:]
		}
	}
	if left = len(lines) - maxLines; left > 0 {
		return lines[:maxLines], left
	}
	return lines, 0
}

func linesOf(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// blockLength returns how many edits, from the first on, match, or how many do not.
func blockLength(edits []diff.Edit[string]) int {
	n := 1
	for n < len(edits) && (edits[n].Op == diff.Match) == (edits[0].Op == diff.Match) {
		n++
	}
	return n
}

// blockOf returns the lines of edits that all match, or that all do not.
func blockOf(edits []diff.Edit[string], firstBefore, firstAfter int) (lines []Line) {
	var removed, added []string
	for _, e := range edits {
		switch e.Op {
		case diff.Match:
			lines = append(lines, Line{Before: firstBefore + e.PosX, After: firstAfter + e.PosY, Parts: []Part{{Text: e.X}}})
		case diff.Delete:
			removed = append(removed, e.X)
		case diff.Insert:
			added = append(added, e.Y)
		}
	}
	partsBefore, partsAfter := markWords(removed, added)
	at := map[diff.Op]int{}
	for _, e := range edits {
		switch i := at[e.Op]; e.Op {
		case diff.Delete:
			lines = append(lines, Line{Change: Removed, Before: firstBefore + e.PosX, Parts: partsBefore[i]})
		case diff.Insert:
			lines = append(lines, Line{Change: Added, After: firstAfter + e.PosY, Parts: partsAfter[i]})
		}
		at[e.Op]++
	}
	return lines
}

// markWords returns the parts of removed lines and of the lines in their place, with the words that differ.
// Where little is alike, no word is marked: the lines differ as a whole.
func markWords(removed, added []string) (before, after [][]Part) {
	x, y := words(strings.Join(removed, "\n")), words(strings.Join(added, "\n"))
	if len(removed) == 0 || len(added) == 0 || len(x) > maxWords || len(y) > maxWords {
		return wholeLines(removed), wholeLines(added)
	}
	marksX, marksY, alike := make([]bool, len(x)), make([]bool, len(y)), 0
	for _, e := range diff.Edits(x, y) {
		switch {
		case e.Op == diff.Delete:
			marksX[e.PosX] = true
		case e.Op == diff.Insert:
			marksY[e.PosY] = true
		case isWord(e.X):
			alike++
		}
	}
	if 3*alike < max(countWords(x), countWords(y)) {
		return wholeLines(removed), wholeLines(added)
	}
	return partsOf(x, marksX), partsOf(y, marksY)
}

func wholeLines(lines []string) (parts [][]Part) {
	for _, line := range lines {
		parts = append(parts, []Part{{Text: line}})
	}
	return parts
}

// words splits a text into words, blanks, line feeds and other characters.
func words(text string) (all []string) {
	kind := func(r rune) int {
		switch {
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return 1
		case r == ' ' || r == '\t':
			return 2
		}
		return 0
	}
	last := 0
	start := 0
	for i, r := range text {
		now := kind(r)
		if i > 0 && (now == 0 || now != last) {
			all = append(all, text[start:i])
			start = i
		}
		last = now
	}
	return append(all, text[start:])
}

func isWord(word string) bool { return strings.ContainsFunc(word, isWordRune) }

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func countWords(all []string) (n int) {
	for _, word := range all {
		if isWord(word) {
			n++
		}
	}
	return n
}

// partsOf returns the parts of each line of a text of words, some of which are marked.
func partsOf(words []string, marks []bool) [][]Part {
	joinMarks(words, marks)
	unmarkIndents(words, marks)
	lines := [][]Part{nil}
	for i, word := range words {
		last := &lines[len(lines)-1]
		switch n := len(*last); {
		case word == "\n":
			lines = append(lines, nil)
		case n > 0 && (*last)[n-1].Changed == marks[i]:
			(*last)[n-1].Text += word
		default:
			*last = append(*last, Part{word, marks[i]})
		}
	}
	for i := range lines {
		if lines[i] == nil {
			lines[i] = []Part{{}}
		}
	}
	return lines
}

// joinMarks marks what is between two marked words of a line and is no word itself, so that marks are few
// and easy to read.
func joinMarks(words []string, marks []bool) {
	last := -1 // the last marked word, if only others than words of the same line came after it
	for i, word := range words {
		switch {
		case marks[i]:
			for j := last + 1; last >= 0 && j < i; j++ {
				marks[j] = true
			}
			last = i
		case word == "\n" || isWord(word):
			last = -1
		}
	}
}

// unmarkIndents takes the marks from blanks at the beginning of lines.
func unmarkIndents(words []string, marks []bool) {
	for i, word := range words {
		if strings.Trim(word, " \t") == "" && (i == 0 || words[i-1] == "\n") {
			marks[i] = false
		}
	}
}
