package console

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A codeLine is a line of a file, in pieces of one colour each.
type codeLine struct {
	Number int
	Spans  []span
}

// A span is a piece of a line. Class is empty for text without a colour.
type span struct{ Class, Text string }

// Classes of spans.
const (
	classComment    = "c"
	classString     = "s"
	classKeyword    = "k"
	classEffect     = "e" // permit and forbid
	classAnnotation = "a"
	classNumber     = "n"
)

// cedarWords are the words of Cedar that have a colour.
var cedarWords = map[string]string{
	"permit": classEffect, "forbid": classEffect,
	"when": classKeyword, "unless": classKeyword, "if": classKeyword, "then": classKeyword, "else": classKeyword, "in": classKeyword, "is": classKeyword,
	"like": classKeyword, "has": classKeyword, "true": classKeyword, "false": classKeyword,
	"principal": classKeyword, "action": classKeyword, "resource": classKeyword, "context": classKeyword,
}

// plainLines splits a text into lines without colours.
func plainLines(text string, first int) (lines []codeLine) {
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, codeLine{first + i, []span{{"", line}}})
	}
	return lines
}

// cedarLines splits Cedar policies into lines with colours. The colours are only a help for reading:
// a text that is not Cedar is shown whole as well.
func cedarLines(text string, first int) []codeLine {
	lines := []codeLine{{Number: first}}
	add := func(class, text string) {
		for i, part := range strings.Split(text, "\n") {
			if i > 0 {
				lines = append(lines, codeLine{Number: first + len(lines)})
			}
			if part != "" {
				last := &lines[len(lines)-1]
				last.Spans = append(last.Spans, span{class, part})
			}
		}
	}
	for rest := strings.TrimSuffix(text, "\n"); rest != ""; {
		class, length := nextSpan(rest)
		add(class, rest[:length])
		rest = rest[length:]
	}
	return lines
}

// nextSpan returns the class and the length of the first piece of a text, which is not empty.
func nextSpan(text string) (class string, length int) {
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case strings.HasPrefix(text, "//"):
		return classComment, lengthUntil(text, func(r rune) bool { return r == '\n' })
	case r == '"':
		return classString, stringLength(text)
	case r == '@':
		return classAnnotation, size + lengthUntil(text[size:], isNotName)
	case unicode.IsDigit(r):
		return classNumber, lengthUntil(text, func(r rune) bool { return !unicode.IsDigit(r) })
	case !isNotName(r):
		length := lengthUntil(text, isNotName)
		return cedarWords[text[:length]], length
	}
	length = size + lengthUntil(text[size:], func(r rune) bool { return !isNotName(r) || strings.ContainsRune(`/"@`, r) })
	return "", length
}

func isNotName(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// lengthUntil returns the length of a text up to the first character that ends it.
func lengthUntil(text string, ends func(rune) bool) int {
	if i := strings.IndexFunc(text, ends); i >= 0 {
		return i
	}
	return len(text)
}

// stringLength returns the length of a string literal with its quotes. An unterminated one ends with
// its line.
func stringLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		case '\n':
			return i
		}
	}
	return len(text)
}
