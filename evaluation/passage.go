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

// clauseBodies returns what stands between the braces of each when and unless.
func clauseBodies(st statement) []passage {
	p := readPassage(st)
	var bodies []passage
	opened := 0
	for i, text := range p.outside {
		switch text {
		case "{":
			opened = i + 1
		case "}":
			bodies = append(bodies, p.from(opened, i))
		}
	}
	return bodies
}

// conditions says how the conjuncts of a clause, whose body the passage is,
// are written. Where the text does not come apart as the syntax does, it is
// the syntax that is written out.
func (p passage) conditions(conjuncts []conjunct) []Condition {
	var out []Condition
	for _, piece := range p.split(conjuncts[0].unless) {
		left := conjuncts[len(out):]
		found := parseConjuncts(conjuncts[0].unless, piece.text())
		if len(found) == 0 || len(found) > len(left) || !slices.EqualFunc(found, left[:len(found)], conjunct.equal) {
			return p.rendered(conjuncts)
		}
		if len(found) > 1 {
			out = append(out, piece.rendered(found)...)
			continue
		}
		out = append(out, Condition{Line: piece.firstLine(), Text: found[0].clause(piece.text())})
	}
	if len(out) != len(conjuncts) {
		return p.rendered(conjuncts)
	}
	return out
}

func (p passage) rendered(conjuncts []conjunct) []Condition {
	out := make([]Condition, len(conjuncts))
	for i, c := range conjuncts {
		out[i] = Condition{Line: p.firstLine(), Text: c.clause(render(c.body))}
	}
	return out
}

// split cuts the text of an expression where [conjunctsOf] takes it apart.
func (p passage) split(unless bool) []passage {
	operator := "&&"
	if unless {
		operator = "||"
	}
	var cuts []int
	for i, text := range p.outside {
		switch {
		case text == "if", !unless && text == "||":
			return []passage{p}
		case text == operator:
			cuts = append(cuts, i)
		}
	}
	if cuts == nil {
		if inner, ok := p.unwrapped(); ok {
			return inner.split(unless)
		}
		return []passage{p}
	}
	var pieces []passage
	start := 0
	for _, cut := range append(cuts, len(p.words)) {
		pieces = append(pieces, p.from(start, cut).split(unless)...)
		start = cut + 1
	}
	return pieces
}

// unwrapped takes away the brackets around the whole passage.
func (p passage) unwrapped() (passage, bool) {
	var brackets []string
	for _, text := range p.outside {
		brackets = append(brackets, text)
	}
	if !slices.Equal(brackets, []string{"(", ")"}) {
		return p, false
	}
	return p.from(1, len(p.words)-1), true
}
