package evaluation

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// What the scanner lets through to the Cedar parser, which recurses without a
// bound on nested text and takes quadratic time and worse on some chains. A
// policy beyond these is a fault, and the process lives on.
const (
	maxStatement  = 64 << 10 // bytes of one policy
	maxNesting    = 64       // brackets open at once
	maxUnary      = 4        // ! or - in a row, as in the official engine
	maxHasPath    = 16       // attributes in one has a.b.c
	maxLikeString = 256      // bytes of a pattern
)

// A statement is one policy's text and where in its file it begins.
type statement struct {
	text         []byte
	line, column int // from 1; column counts characters
}

// position returns where in the file the place is that is at line and column
// of the statement.
func (s statement) position(line, column int) (int, int) {
	if line == 1 {
		return s.line, s.column + column - 1
	}
	return s.line + line - 1, column
}

// A scanner cuts policy text into statements, so that the parser sees one
// policy at a time and a fault in one does not hide those in others.
type scanner struct {
	src          []byte
	at           int // next byte
	line, column int // of that byte

	start     statement // where the current statement began
	startedAt int
	nesting   int
	unary     int
	hasPath   int  // attributes so far in a has path; 0 outside one
	like      bool // the next string is a pattern

	file       string
	statements []statement
	faults     Faults
}

// scan cuts the file into statements. Text that must not reach the parser is
// reported and left out.
func scan(file string, src []byte) ([]statement, Faults) {
	s := &scanner{src: src, file: file, line: 1, column: 1, startedAt: -1}
	if i := invalidUTF8(src); i >= 0 {
		return nil, Faults{{File: file, Message: fmt.Sprintf("is not UTF-8 at byte %d", i)}}
	}
	for s.at < len(src) {
		s.next()
	}
	if s.startedAt >= 0 {
		s.end()
	}
	return s.statements, s.faults
}

func invalidUTF8(src []byte) int {
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// next consumes one lexical element.
func (s *scanner) next() {
	c := s.src[s.at]
	switch {
	case c == ' ', c == '\t', c == '\n', c == '\r':
		s.advance(1)
	case bytes.HasPrefix(s.src[s.at:], []byte("//")):
		s.advance(lineLength(s.src[s.at:]))
	case bytes.HasPrefix(s.src[s.at:], []byte("/*")):
		s.fault("block comments are not Cedar", "use // on each line")
		s.advance(2)
	default:
		s.begin()
		s.element(c)
	}
}

func (s *scanner) element(c byte) {
	word := wordLength(s.src[s.at:])
	switch {
	case c == '"':
		s.quoted()
	case word > 0:
		s.word(string(s.src[s.at : s.at+word]))
		s.advance(word)
	case c == ';' && s.nesting == 0:
		s.advance(1)
		s.end()
	default:
		s.punctuation(c)
		_, size := utf8.DecodeRune(s.src[s.at:])
		s.advance(size)
	}
}

func (s *scanner) begin() {
	if s.startedAt < 0 {
		s.startedAt = s.at
		s.start = statement{line: s.line, column: s.column}
	}
}

// end closes the current statement. One that is too long is a fault.
func (s *scanner) end() {
	st := s.start
	st.text = s.src[s.startedAt:s.at]
	if len(st.text) > maxStatement {
		s.faultAt(st.line, st.column, fmt.Sprintf("this policy is longer than %d bytes", maxStatement), "split it")
	} else if !s.faultSince(st) {
		s.statements = append(s.statements, st)
	}
	s.startedAt, s.nesting, s.unary, s.hasPath, s.like = -1, 0, 0, 0, false
}

// faultSince reports whether the statement that began at st has a fault.
func (s *scanner) faultSince(st statement) bool {
	if len(s.faults) == 0 {
		return false
	}
	last := s.faults[len(s.faults)-1]
	return last.Line > st.line || last.Line == st.line && last.Column >= st.column
}

// quoted consumes a string literal.
func (s *scanner) quoted() {
	end := s.at + 1
	for end < len(s.src) && s.src[end] != '"' {
		if s.src[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end+1, len(s.src))
	if s.like && end-s.at-2 > maxLikeString {
		s.fault(fmt.Sprintf("this pattern is longer than %d bytes", maxLikeString), "")
	}
	s.unary, s.hasPath, s.like = 0, 0, false
	s.advance(end - s.at)
}

func (s *scanner) word(w string) {
	s.unary, s.like = 0, w == "like"
	switch {
	case w == "has":
		s.hasPath = 1
	case s.hasPath > 0:
		s.hasPath++
		if s.hasPath == maxHasPath+2 {
			s.fault(fmt.Sprintf("this has path names more than %d attributes", maxHasPath), "")
		}
	}
}

func (s *scanner) punctuation(c byte) {
	switch c {
	case '!', '-':
		s.unary++
		if s.unary == maxUnary+1 {
			s.fault(fmt.Sprintf("more than %d ! or - in a row", maxUnary), "")
		}
		return
	case '(', '[', '{':
		s.nesting++
		if s.nesting == maxNesting+1 {
			s.fault(fmt.Sprintf("brackets nest deeper than %d", maxNesting), "")
		}
	case ')', ']', '}':
		s.nesting = max(0, s.nesting-1)
	}
	s.unary = 0
	if c != '.' {
		s.hasPath = 0
	}
}

func (s *scanner) advance(n int) {
	for _, r := range string(s.src[s.at : s.at+n]) {
		if r == '\n' {
			s.line, s.column = s.line+1, 1
		} else {
			s.column++
		}
	}
	s.at += n
}

func (s *scanner) fault(message, hint string) { s.faultAt(s.line, s.column, message, hint) }

func (s *scanner) faultAt(line, column int, message, hint string) {
	s.faults = append(s.faults, Fault{File: s.file, Line: line, Column: column, Message: message, Hint: hint})
}

func lineLength(src []byte) int {
	if i := bytes.IndexByte(src, '\n'); i >= 0 {
		return i
	}
	return len(src)
}

func wordLength(src []byte) int {
	for i, c := range src {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(src)
}
