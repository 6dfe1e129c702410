package evaluation

import (
	"regexp"
	"strconv"
	"strings"
)

// A parseError is what can be told from the text of a parser's error, which is
// all that cedar-go gives.
type parseError struct {
	line, column int    // in the statement; 0 when it does not say
	token        string // at that place; "" when it does not say
	atEnd        bool   // that place is behind the last token
	message      string
}

var parseErrorForm = regexp.MustCompile(`^(?:parser error: )?(?:parse error at )?(?:<input>|[^\s:]+):(\d+):(\d+):? ?(?:("(?:[^"\\]|\\.)*"): )?`)

func readParseError(text string) parseError {
	m := parseErrorForm.FindStringSubmatch(text)
	if m == nil {
		return parseError{message: strings.TrimPrefix(text, "parser error: ")}
	}
	line, _ := strconv.Atoi(m[1]) // digits, by the expression
	column, _ := strconv.Atoi(m[2])
	token, _ := strconv.Unquote(m[3])
	return parseError{line: line, column: column, token: token, atEnd: m[3] == `""`, message: text[len(m[0]):]}
}

// isPastIt reports whether the place is that of the token behind the one that
// is wrong, as it is where the parser has taken that one already.
func (e parseError) isPastIt() bool {
	got, exact := strings.CutPrefix(e.message, "exact got ")
	if exact {
		return !strings.HasPrefix(got, " want ")
	}
	return strings.HasPrefix(e.message, "unexpected effect") || e.token != "" && !strings.HasPrefix(e.message, "got ")
}

// stepBack moves the place to the token before it.
func (e *parseError) stepBack(text []byte) {
	line, column := 1, 1
	before := *e
	for len(text) > 0 && (line < e.line || line == e.line && column < e.column) {
		length, blank := element(text)
		if !blank {
			before.line, before.column, before.token, before.atEnd = line, column, string(text[:length]), false
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

// why says what is wrong, in words of its own for the parser's commonest.
func (e parseError) why() string {
	found := strconv.Quote(e.token)
	if e.atEnd {
		found = "the end of the policy"
	}
	_, wanted, exact := strings.Cut(e.message, " want ")
	switch {
	case e.token == "" && !e.atEnd:
		return e.message
	case exact:
		return "expected " + wanted + ", found " + found
	case e.message == "invalid primary", e.message == "unexpected token":
		return found + " does not belong here"
	case strings.HasPrefix(e.message, "expected "):
		return e.message + ", found " + found
	}
	return e.message
}
