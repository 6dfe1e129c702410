package cedarsyntax

import (
	"bytes"
	"fmt"
	"github.com/policy-service/policy-service/evaluation/faults"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits on text that the scanner passes to the Cedar parser. The parser recurses without a
// limit on nested text and takes at least quadratic time on some chains. A policy over a limit is a
// fault and does not crash the process.
const (
	maxStatement  = 64 << 10 // bytes of one policy
	maxNesting    = 64       // brackets open at the same time
	maxUnary      = 4        // consecutive ! or -, as in the official engine
	maxHasPath    = 16       // attributes in one has a.b.c
	maxLikeString = 256      // bytes of a pattern
	maxInner      = 64       // sets and records inside sets, in one policy
)

// A Statement is the text of one policy and its position in the file.
type Statement struct {
	Text         []byte
	Line, Column int // from 1; the column counts characters
	// Compiled means that the file does not have the text, but what the text was compiled from.
	Compiled bool
}

// Position converts a line and column of the statement to those of the file.
func (s Statement) Position(line, column int) (int, int) {
	if s.Compiled {
		return s.Line, s.Column
	}
	if line == 1 {
		return s.Line, s.Column + column - 1
	}
	return s.Line + line - 1, column
}

// A scanner splits policy text into statements. The parser then sees one policy at a time, and
// a fault in one does not hide the faults in others.
type scanner struct {
	src          []byte
	at           int // offset of the next byte
	line, column int // position of that byte

	start     Statement // start of the current statement
	startedAt int
	nesting   []bracket
	sets      int // open sets
	inner     int // sets and records inside sets
	unary     int
	hasPath   int  // attributes so far in a has path; 0 outside one
	hasBehind bool // an operand precedes has
	operand   bool // the current operand begins with brackets that contain a has path
	like      bool // the next string is a pattern
	previous  byte // first byte of the previous token
	complete  bool // an operand may end with the previous token

	file       string
	statements []Statement
	faults     faults.List
}

// Scan splits the file into statements. It reports and omits text that must not reach the parser.
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
	if !blank && rest[0] == ';' || unclosed { // Cedar has no semicolon inside brackets
		s.end()
	}
}

// nextToken returns the length of the lexical element at the start of src, and whether it is
// white space or a comment.
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

// pairs lists the two-character punctuation.
var pairs = []string{"==", "!=", "<=", ">=", "&&", "||", "::"}

// visit updates the state for an element that is not blank.
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

// completes reports whether an operand may end with the element: a name, a literal or a
// closing bracket.
func (s *scanner) completes(text []byte) bool {
	if wordLength(text) > 0 {
		return s.previous == '.' || !slices.Contains(beforeOperand, string(text))
	}
	return strings.IndexByte(`")]}0123456789`, text[0]) >= 0
}

// beforeOperand lists the keywords that precede an operand.
var beforeOperand = []string{"if", "then", "else", "in"}

// continues reports whether an element extends the operand that a bracket closed. A dot, a name
// after a dot and another bracket do.
func (s *scanner) continues(text []byte) bool {
	return strings.IndexByte(".()[]{}", text[0]) >= 0 || wordLength(text) > 0 && s.previous == '.'
}

func (s *scanner) begin() {
	if s.startedAt < 0 {
		s.startedAt = s.at
		s.start = Statement{Line: s.line, Column: s.column}
	}
}

// end closes the current statement. A statement over the length limit is a fault.
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

// word counts the attributes of a has path: the word after has, and each word that follows it
// after a dot.
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
			return // binary minus
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

// open records an opening bracket.
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

// close records a closing bracket. The bracketed text may be the start of an operand.
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

// path records a has path of two or more attributes. The parser copies the operand once for
// each attribute, so nested paths would grow exponentially.
func (s *scanner) path() {
	if s.hasBehind {
		s.fault("a has path behind brackets that hold another", "write the has of each attribute")
	}
	s.holdsPath()
}

// holdsPath marks the open bracket as containing a has path.
func (s *scanner) holdsPath() {
	if around := len(s.nesting) - 1; around >= 0 {
		s.nesting[around].path = true
	}
}

// A bracket is an open bracket.
type bracket struct {
	kind byte
	path bool // it contains a has path
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

// commentLength returns the length of a block comment. An unclosed comment extends to the end.
func commentLength(src []byte) int {
	if i := bytes.Index(src, []byte("*/")); i >= 0 {
		return i + 2
	}
	return len(src)
}

// quotedLength returns the length of a string literal. An unclosed literal ends with its line.
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

// StatementAt returns the statement of the file that begins at a line and column.
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
