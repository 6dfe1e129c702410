package main

import "strings"

// excerptWidth is how much of a long line an excerpt shows, in letters.
const excerptWidth = 100

// excerpt returns a line of a text and, on a line of its own, a caret below a
// column of it; both count from 1. It is "" for a line that is empty or not
// there. Tabs are as wide above as below, so that the caret stands where it
// should.
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
