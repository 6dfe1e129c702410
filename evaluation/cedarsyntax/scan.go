package cedarsyntax

import (
	"bytes"
	"fmt"
	"github.com/policy-service/policy-service/evaluation/faults"
	"slices"
	"strings"
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
	maxInner      = 64       // sets and records in sets, in one policy
)

// A statement is one policy's text and where in its file it begins.
type Statement struct {
	Text         []byte
	Line, Column int // from 1; column counts characters
}

// Position returns where in the file the place is that is at line and column
// of the statement.
func (s Statement) Position(line, column int) (int, int) {
	if line == 1 {
		return s.Line, s.Column + column - 1
	}
	return s.Line + line - 1, column
}

// A scanner cuts policy text into statements, so that the parser sees one
// policy at a time and a fault in one does not hide those in others.
type scanner struct {
	src          []byte
	at           int // next byte
	line, column int // of that byte

	start     Statement // where the current statement began
	startedAt int
	nesting   []bracket
	sets      int // open
	inner     int // sets and records in sets
	unary     int
	hasPath   int  // attributes so far in a has path; 0 outside one
	hasBehind bool // operand before that has
	operand   bool // the current operand begins with brackets that hold a has path
	like      bool // the next string is a pattern
	previous  byte // that the previous element began with
	complete  bool // an operand may end with the previous element

	file       string
	statements []Statement
	faults     faults.List
}

// Scan cuts the file into statements. Text that must not reach the parser is
// reported and left out.
func Scan(file string, src []byte) ([]Statement, faults.List) {
	s := &scanner{src: src, file: file, line: 1, column: 1, startedAt: -1}
	if i := invalidUTF8(src); i >= 0 {
		return nil, faults.List{{File: file, Message: fmt.Sprintf("is not UTF-8 at byte %d", i)}}
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
	rest := s.src[s.at:]
	length, blank := nextToken(rest)
	unclosed := rest[0] == '"' && !isClosed(rest[:length])
	switch {
	case bytes.HasPrefix(rest, []byte("/*")):
		s.fault("block comments are not Cedar", "use // on each line")
	case bytes.HasPrefix(rest, []byte("//")) && bytes.ContainsRune(bytes.TrimSuffix(rest[:length], []byte("\r")), '\r'):
		s.fault("there is a carriage return in this comment", "the official engine reads what follows it: end the line with a line feed")
	case blank:
	default:
		s.begin()
		s.visit(rest[:length])
	}
	s.advance(length)
	if !blank && rest[0] == ';' || unclosed { // no semicolon of Cedar stands in brackets
		s.end()
	}
}

// nextToken returns the length of the lexical element that src begins with, and
// whether it is white space or a comment.
func nextToken(src []byte) (length int, blank bool) {
	switch c := src[0]; {
	case c == ' ', c == '\t', c == '\n', c == '\r':
		return 1, true
	case bytes.HasPrefix(src, []byte("//")):
		return lineLength(src), true
	case bytes.HasPrefix(src, []byte("/*")):
		return commentLength(src), true
	case c == '"':
		return quotedLength(src), false
	case len(src) > 1 && slices.Contains(pairs, string(src[:2])):
		return 2, false
	}
	if n := wordLength(src); n > 0 {
		return n, false
	}
	_, size := utf8.DecodeRune(src)
	return size, false
}

// pairs are the punctuation of two characters.
var pairs = []string{"==", "!=", "<=", ">=", "&&", "||", "::"}

// visit takes account of an element that is not blank.
func (s *scanner) visit(text []byte) {
	switch {
	case text[0] == '"':
		s.quoted(text)
	case wordLength(text) > 0:
		s.word(string(text))
	default:
		s.punctuation(text)
	}
	if !s.continues(text) {
		s.operand = false
	}
	s.complete = s.completes(text)
	s.previous = text[0]
}

// completes reports whether an operand may end with an element: a name, a
// literal or a closing bracket.
func (s *scanner) completes(text []byte) bool {
	if wordLength(text) > 0 {
		return s.previous == '.' || !slices.Contains(beforeOperand, string(text))
	}
	return strings.IndexByte(`")]}0123456789`, text[0]) >= 0
}

// beforeOperand are the words that an operand follows.
var beforeOperand = []string{"if", "then", "else", "in"}

// continues reports whether an element belongs to the operand that a bracket
// closed: a dot or a word behind one, or another bracket.
func (s *scanner) continues(text []byte) bool {
	return strings.IndexByte(".()[]{}", text[0]) >= 0 || wordLength(text) > 0 && s.previous == '.'
}

func (s *scanner) begin() {
	if s.startedAt < 0 {
		s.startedAt = s.at
		s.start = Statement{Line: s.line, Column: s.column}
	}
}

// end closes the current statement. One that is too long is a fault.
func (s *scanner) end() {
	st := s.start
	st.Text = s.src[s.startedAt:s.at]
	if len(st.Text) > maxStatement {
		s.faultAt(st.Line, st.Column, fmt.Sprintf("this policy is longer than %d bytes", maxStatement), "split it")
	} else if !s.faultSince(st) {
		s.statements = append(s.statements, st)
	}
	s.startedAt, s.nesting, s.sets, s.inner, s.unary, s.hasPath, s.like, s.previous, s.operand, s.complete = -1, nil, 0, 0, 0, 0, false, 0, false, false
}

// faultSince reports whether the statement that began at st has a fault.
func (s *scanner) faultSince(st Statement) bool {
	if len(s.faults) == 0 {
		return false
	}
	last := s.faults[len(s.faults)-1]
	return last.Line > st.Line || last.Line == st.Line && last.Column >= st.Column
}

func (s *scanner) quoted(text []byte) {
	if s.like && len(text)-2 > maxLikeString {
		s.fault(fmt.Sprintf("this pattern is longer than %d bytes", maxLikeString), "")
	}
	s.unary, s.hasPath, s.like = 0, 0, false
}

// word counts the attributes of a has path: the word behind has and those that
// follow it behind a dot each.
func (s *scanner) word(w string) {
	s.unary, s.like = 0, w == "like" && s.previous != '@'
	switch {
	case s.hasPath == 1 || s.hasPath > 1 && s.previous == '.':
		s.hasPath++
		if s.hasPath == 3 {
			s.path()
		}
		if s.hasPath == maxHasPath+2 {
			s.fault(fmt.Sprintf("this has path names more than %d attributes", maxHasPath), "")
		}
	case w == "has" && s.previous != '@':
		s.hasPath, s.hasBehind = 1, s.operand
	default:
		s.hasPath = 0
	}
}

func (s *scanner) punctuation(text []byte) {
	switch text[0] {
	case '!', '-':
		if len(text) > 1 {
			break
		}
		if s.complete && text[0] == '-' {
			return // it subtracts
		}
		s.unary++
		if s.unary == maxUnary+1 {
			s.fault(fmt.Sprintf("more than %d ! or - in a row", maxUnary), "")
		}
		return
	case '(', '[', '{':
		s.open(text[0])
	case ')', ']', '}':
		s.close()
	}
	s.unary = 0
	if text[0] != '.' {
		s.hasPath = 0
	}
}

// open takes account of an opening bracket.
func (s *scanner) open(c byte) {
	if s.sets > 0 && c != '(' {
		s.inner++
		if s.inner == maxInner+1 {
			s.fault(fmt.Sprintf("more than %d sets and records in sets", maxInner), "")
		}
	}
	if c == '[' {
		s.sets++
	}
	s.nesting = append(s.nesting, bracket{kind: c})
	if len(s.nesting) == maxNesting+1 {
		s.fault(fmt.Sprintf("brackets nest deeper than %d", maxNesting), "")
	}
}

// close takes account of a closing bracket, with which an operand may begin.
func (s *scanner) close() {
	if last := len(s.nesting) - 1; last >= 0 {
		s.operand = s.operand || s.nesting[last].path
		if s.nesting[last].kind == '[' {
			s.sets--
		}
		s.nesting = s.nesting[:last]
		if s.operand {
			s.holdsPath()
		}
	}
}

// path takes account of a has path of two attributes or more. The parser writes
// what stands before it once for each attribute, and so would make a power of
// them of paths within each other.
func (s *scanner) path() {
	if s.hasBehind {
		s.fault("a has path behind brackets that hold another", "write the has of each attribute")
	}
	s.holdsPath()
}

// holdsPath notes in the open bracket that it holds a has path.
func (s *scanner) holdsPath() {
	if around := len(s.nesting) - 1; around >= 0 {
		s.nesting[around].path = true
	}
}

// A bracket is open.
type bracket struct {
	kind byte
	path bool // it holds a has path
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
	s.faults = append(s.faults, faults.Fault{File: s.file, Line: line, Column: column, Message: message, Hint: hint})
}

func lineLength(src []byte) int {
	if i := bytes.IndexByte(src, '\n'); i >= 0 {
		return i
	}
	return len(src)
}

// commentLength is that of a block comment, or what there is of one.
func commentLength(src []byte) int {
	if i := bytes.Index(src, []byte("*/")); i >= 0 {
		return i + 2
	}
	return len(src)
}

// quotedLength is that of a string literal; one that is not closed ends with
// its line.
func quotedLength(src []byte) int {
	for i := 1; i < len(src); i++ {
		switch src[i] {
		case '"':
			return i + 1
		case '\n':
			return i
		case '\\':
			i++
		}
	}
	return len(src)
}

// isClosed reports whether a string literal ends with its quote.
func isClosed(quoted []byte) bool {
	escaped := false
	for _, c := range quoted[1:] {
		if c == '"' && !escaped {
			return true
		}
		escaped = c == '\\' && !escaped
	}
	return false
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

// StatementAt cuts the statement that begins at a line and column out of its file.
func StatementAt(file string, src []byte, line, column int) Statement {
	for range line - 1 {
		src = src[bytes.IndexByte(src, '\n')+1:]
	}
	for range column - 1 {
		_, size := utf8.DecodeRune(src)
		src = src[size:]
	}
	s := scanner{src: src, file: file, line: line, column: column, startedAt: -1}
	for len(s.statements) == 0 && s.at < len(src) {
		s.next()
	}
	if len(s.statements) == 0 {
		return Statement{}
	}
	return s.statements[0]
}
