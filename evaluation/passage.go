package evaluation

import (
	"bytes"
	"slices"
	"strings"
)

// A passage is a part of a statement's text, as the words and signs it is made
// of. Comments are none of them.
type passage struct {
	src   []byte
	line  int // in the file, of the beginning of src
	words []word
}

type word struct{ start, end int }

func (p passage) at(i int) string { return string(p.src[p.words[i].start:p.words[i].end]) }

func (p passage) from(i, j int) passage { return passage{p.src, p.line, p.words[i:j]} }

// text returns the passage on one line.
func (p passage) text() string {
	var b strings.Builder
	for i, w := range p.words {
		if i > 0 && p.words[i-1].end < w.start {
			b.WriteByte(' ')
		}
		b.Write(p.src[w.start:w.end])
	}
	return b.String()
}

// all lists the words.
func (p passage) all() []string {
	out := make([]string, len(p.words))
	for i := range p.words {
		out[i] = p.at(i)
	}
	return out
}

// find returns where in the text the words stand one after the other, or -1.
func (p passage) find(words ...string) int {
	for i := range p.words {
		if end := i + len(words); end <= len(p.words) && slices.Equal(p.from(i, end).all(), words) {
			return p.words[i].start
		}
	}
	return -1
}

// firstLine returns where in the file the passage begins.
func (p passage) firstLine() int {
	if len(p.words) == 0 {
		return p.line
	}
	return p.line + bytes.Count(p.src[:p.words[0].start], []byte{'\n'})
}

func readPassage(st statement) passage {
	p := passage{src: st.text, line: st.line}
	for at := 0; at < len(p.src); {
		length, blank := element(p.src[at:])
		if !blank {
			p.words = append(p.words, word{at, at + length})
		}
		at += length
	}
	return p
}

// outside yields the words that no bracket of the passage encloses, and
// where they are. An opening and a closing bracket are themselves outside.
func (p passage) outside(yield func(int, string) bool) {
	depth := 0
	for i := range p.words {
		text := p.at(i)
		switch text {
		case ")", "]", "}":
			depth--
		}
		if depth == 0 && !yield(i, text) {
			return
		}
		switch text {
		case "(", "[", "{":
			depth++
		}
	}
}
