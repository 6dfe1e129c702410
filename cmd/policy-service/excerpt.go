package main

import "strings"

// excerptWidth is the length of an excerpt of a long line, in letters.
const excerptWidth = 100

// excerpt returns a line of a text and, on the next line, a caret below a column. Both
// count from 1. It returns "" for an empty or missing line. Tabs keep their width, so
// that the caret is below its column.
func excerpt(text []byte, line, column int) string {
	lines := strings.Split(string(text), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	letters := []rune(strings.TrimRight(lines[line-1], "\r"))
	if len(letters) == 0 {
		return ""
	}
	at := min(max(column-1, 0), len(letters))
	from := max(0, at-excerptWidth/2)
	to := min(len(letters), from+excerptWidth)
	blank := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(letters[from:at]))
	return string(letters[from:to]) + "\n" + blank + "^"
}
