package evaluation

import (
	"regexp"
	"strconv"
	"strings"
)

// parseFault reports what a parser says about a statement.
func (c *compiler) parseFault(file string, st statement, err error) {
	said := readParseError(err.Error())
	line, column := st.line, st.column
	if said.line > 0 {
		line, column = st.position(said.line, said.column)
	}
	c.fault(file, line, column, "does not parse: "+said.why(), "")
}

// A parseError is what can be told from the text of a parser's error, which is
// all that cedar-go gives.
type parseError struct {
	line, column int    // in the statement; 0 when it does not say
	token        string // where it stopped, quoted; "" when it does not say
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
	return parseError{line: line, column: column, token: m[3], message: text[len(m[0]):]}
}

// why says what is wrong, in words of its own for the parser's commonest.
func (e parseError) why() string {
	found := e.token
	if found == `""` {
		found = "the end of the policy"
	}
	_, wanted, exact := strings.Cut(e.message, " want ")
	switch {
	case found == "":
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
