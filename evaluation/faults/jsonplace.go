package faults

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// JSONOffset returns the byte offset of a JSON reader's error, or 0.
func JSONOffset(err error) int64 {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return syntax.ByteOffset
	case errors.As(err, &semantic):
		return semantic.ByteOffset
	}
	return 0
}

// JSONMessage returns the text of a JSON reader's error without its position.
func JSONMessage(err error) string {
	var syntax *jsontext.SyntacticError
	switch {
	case !errors.As(err, &syntax) || syntax.Err == nil:
		return err.Error()
	case errors.Is(err, jsontext.ErrDuplicateName):
		return string(syntax.JSONPointer) + " is named twice"
	}
	return "is not valid JSON: " + syntax.Err.Error()
}

// LineAndColumn converts a byte offset in src to a line and a column, both from 1. Columns count
// characters.
func LineAndColumn(src []byte, offset int64) (line, column int) {
	before := src[:min(int(offset), len(src))]
	line = bytes.Count(before, []byte{'\n'}) + 1
	return line, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}
