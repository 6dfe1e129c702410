package cedarsyntax

import (
	"regexp"
	"strconv"
	"strings"
)

// A ParseError holds what the text of a cedar-go parse error tells. cedar-go's errors have no
// fields.
type ParseError struct {
	Line, Column int    // in the statement; 0 if the error has no position
	token        string // at that position; "" if the error names none
	atEnd        bool   // the position is after the last token
	text         string
}

var parseErrorForm = regexp.MustCompile(`^(?:parser error: )?(?:parse error at )?(?:<input>|[^\s:]+):(\d+):(\d+):? ?(?:("(?:[^"\\]|\\.)*"): )?`)

// ReadParseError parses the text of a cedar-go parse error.
func ReadParseError(text string) ParseError {
	m := parseErrorForm.FindStringSubmatch(text)
	if m == nil {
		return ParseError{text: strings.TrimPrefix(text, "parser error: ")}
	}
	line, _ := strconv.Atoi(m[1]) // the expression matches digits only
	column, _ := strconv.Atoi(m[2])
	token, _ := strconv.Unquote(m[3])
	return ParseError{Line: line, Column: column, token: token, atEnd: m[3] == `""`, text: text[len(m[0]):]}
}

// PastToken reports whether the position is that of the token after the wrong one. This happens
// if the parser has already consumed the wrong token.
func (e ParseError) PastToken() bool {
	got, exact := strings.CutPrefix(e.text, "exact got ")
	if exact {
		return !strings.HasPrefix(got, " want ")
	}
	return strings.HasPrefix(e.text, "unexpected effect") || e.token != "" && !strings.HasPrefix(e.text, "got ")
}

// StepBack moves the position to the previous token.
func (e *ParseError) StepBack(text []byte) {
	line, column := 1, 1
	before := *e
	for len(text) > 0 && (line < e.Line || line == e.Line && column < e.Column) {
		length, blank := nextToken(text)
		if !blank {
			before.Line, before.Column, before.token, before.atEnd = line, column, string(text[:length]), false
		}
		for _, r := range string(text[:length]) {
			if r == '\n' {
				line, column = line+1, 1
			} else {
				column++
			}
		}
		text = text[length:]
	}
	*e = before
}

// Message returns the description of the error. The parser's commonest errors get a clearer text.
func (e ParseError) Message() string {
	found := strconv.Quote(e.token)
	if e.atEnd {
		found = "the end of the policy"
	}
	_, wanted, exact := strings.Cut(e.text, " want ")
	switch {
	case e.token == "" && !e.atEnd:
		return e.text
	case exact:
		return "expected " + wanted + ", found " + found
	case e.text == "invalid primary", e.text == "unexpected token":
		return found + " does not belong here"
	case strings.HasPrefix(e.text, "expected "):
		return e.text + ", found " + found
	}
	return e.text
}
