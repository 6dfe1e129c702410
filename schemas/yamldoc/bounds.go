package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Limits of a file. The first four apply before parsing: the parser takes quadratic time for
// nesting and for the keys of a mapping, and its memory is a hundred times the size of a file full
// of indicator characters.
const (
	maxBytes   = 1 << 20
	maxMarks   = 150_000 // characters that may begin or end a token
	maxNesting = 64      // open brackets, or consecutive dashes
	maxKeys    = 10_000  // keys of one mapping
	maxNodes   = 100_000 // nodes, with aliases expanded
)

var (
	errTooDeep  = fmt.Errorf("the text is longer than %d bytes or nests deeper than %d levels", maxBytes, maxNesting)
	errTooMuch  = fmt.Errorf("the text has more than %d brackets, quotes, colons, commas and lines", maxMarks)
	errTooMany  = fmt.Errorf("a mapping has more than %d keys", maxKeys)
	errReturned = errors.New("a carriage return stands alone: end lines with a line feed")
)

// bounded checks the limits that apply before parsing. The text need not be YAML.
func bounded(src []byte) error {
	switch {
	case len(src) > maxBytes || nests(src):
		return errTooDeep
	case crowded(src):
		return errTooMany
	case marks(src) > maxMarks:
		return errTooMuch
	}
	for i, c := range src {
		if c == '\r' && (i+1 == len(src) || src[i+1] != '\n') { // the parser counts a lone CR as a line break, editors do not
			return errReturned
		}
	}
	return nil
}

// marked reports whether text begins with a byte order mark of UTF-8 or UTF-16. Editors hide it,
// and the parser reads it as part of the first key.
func marked(src []byte) bool {
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(src, []byte(mark)) {
			return true
		}
	}
	return false
}

// nests reports whether text nests too deeply.
func nests(src []byte) bool {
	open, dashes := 0, 0
	for i, c := range src {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?':
			if i+1 < len(src) && !strings.ContainsRune(" \t\r\n", rune(src[i+1])) {
				break // begins a quoted text
			}
			dashes++
			if dashes > maxNesting {
				return true
			}
			continue
		case ' ':
			continue
		}
		dashes = 0
		if open > maxNesting {
			return true
		}
	}
	return false
}

func marks(src []byte) int {
	n := 0
	for _, c := range src {
		switch c {
		case '\n', ':', ',', '[', ']', '{', '}', '"', '\'', '&', '*', '!', '?', '#':
			n++
		}
	}
	return n
}

// crowded reports whether a block mapping may have too many keys. It counts lines with a colon in
// the same column, without a line in a smaller column between them.
func crowded(src []byte) bool {
	var keys []int // count of keys by column
	column, begun, counted := 0, false, false
	for _, c := range src {
		switch {
		case c == '\n':
			column, begun, counted = 0, false, false
			continue
		case c == '-' && !begun: // a list element ends the mappings of the one before
			keys = keys[:min(len(keys), column+1)]
		case c != ' ' && !begun:
			begun = true
			keys = append(keys, make([]int, max(0, column+1-len(keys)))...)[:column+1]
		}
		if c == ':' && begun && !counted {
			counted = true
			if keys[len(keys)-1]++; keys[len(keys)-1] > maxKeys {
				return true
			}
		}
		column++
	}
	return false
}
