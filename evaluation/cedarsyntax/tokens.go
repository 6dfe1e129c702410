package cedarsyntax

import (
	"bytes"
	"slices"
	"strings"
)

// Tokens is a part of a statement's text, split into tokens without comments.
type Tokens struct {
	Src      []byte
	line     int  // line of the file where src begins
	compiled bool // the file does not have the text: its only line is line
	Tokens   []token
}

type token struct{ Start, end int }

// Text returns the text of token i.
func (p Tokens) Text(i int) string { return string(p.Src[p.Tokens[i].Start:p.Tokens[i].end]) }

func (p Tokens) slice(i, j int) Tokens { return Tokens{p.Src, p.line, p.compiled, p.Tokens[i:j]} }

// OneLine returns the text on one line.
func (p Tokens) OneLine() string {
	var b strings.Builder
	for i, w := range p.Tokens {
		if i > 0 && p.Tokens[i-1].end < w.Start {
			b.WriteByte(' ')
		}
		b.Write(p.Src[w.Start:w.end])
	}
	return b.String()
}

// Texts lists the texts of the tokens.
func (p Tokens) Texts() []string {
	out := make([]string, len(p.Tokens))
	for i := range p.Tokens {
		out[i] = p.Text(i)
	}
	return out
}

// Find returns the byte offset of the first run of tokens that equals words, or -1.
func (p Tokens) Find(words ...string) int {
	for i := range p.Tokens {
		if end := i + len(words); end <= len(p.Tokens) && slices.Equal(p.slice(i, end).Texts(), words) {
			return p.Tokens[i].Start
		}
	}
	return -1
}

// firstLine returns the line of the file where the text begins.
func (p Tokens) firstLine() int {
	if len(p.Tokens) == 0 || p.compiled {
		return p.line
	}
	return p.line + bytes.Count(p.Src[:p.Tokens[0].Start], []byte{'\n'})
}

// Tokenize splits the text of a statement into tokens.
func Tokenize(st Statement) Tokens {
	p := Tokens{Src: st.Text, line: st.Line, compiled: st.Compiled}
	for at := 0; at < len(p.Src); {
		length, blank := nextToken(p.Src[at:])
		if !blank {
			p.Tokens = append(p.Tokens, token{at, at + length})
		}
		at += length
	}
	return p
}

// unbracketed yields the tokens outside all brackets, with their indexes. It also yields the
// outermost brackets themselves.
func (p Tokens) unbracketed(yield func(int, string) bool) {
	depth := 0
	for i := range p.Tokens {
		text := p.Text(i)
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
