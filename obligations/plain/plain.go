// Package plain makes untrusted text safe to show to people who decide by it: on the approval page,
// in a summary for a policy, in a terminal.
//
// Invariant: visible text equals the actual text. Characters that are invisible, or that change the
// form or order of others, are escaped: controls, line and paragraph breaks, bidirectional marks,
// zero-width characters, private use, invalid UTF-8. Letters of all scripts stay. [Mixed] reports
// words that mix look-alikes.
//
// [Text] escapes a single value: it stays on its line, and different values look different. [Lines]
// escapes composed output of several lines.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text escapes each character of s that would not be visible as itself: \u{202E}. It doubles
// backslashes, so that no text looks like the escape of another.
func Text(s string) string {
	var out strings.Builder
	for i, r := range s {
		if r == '\\' {
			out.WriteByte('\\')
		}
		show(&out, s[i:], r)
	}
	return out.String()
}

// Lines escapes each character of s that would not be visible as itself, except line feeds and
// tabs. It does not double backslashes, because s may contain escaped values.
func Lines(s string) string {
	var out strings.Builder
	for i, r := range s {
		if r == '\n' || r == '\t' {
			out.WriteRune(r)
			continue
		}
		show(&out, s[i:], r)
	}
	return out.String()
}

// show writes r, the first rune of rest, as itself or as an escape.
func show(out *strings.Builder, rest string, r rune) {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(rest, "\uFFFD"):
		fmt.Fprintf(out, `\x%02X`, rest[0])
	case !Seen(r):
		fmt.Fprintf(out, `\u{%04X}`, r)
	default:
		out.WriteRune(r)
	}
}

// Seen reports whether a character is visible and does not affect others.
func Seen(r rune) bool {
	switch {
	case r == ' ':
		return true
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), unicode.Is(unicode.Variation_Selector, r),
		unicode.Is(unicode.Bidi_Control, r), r == '\u2800', r == '\uFFFC':
		return false
	}
	return unicode.IsPrint(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Me, r) || marks(r)
}

// marks reports whether a combining mark belongs to a script, unlike marks that overlay any
// character.
func marks(r rune) bool {
	return unicode.Is(unicode.M, r) && !unicode.Is(unicode.Inherited, r)
}

// Mixed returns the words of s that mix Latin with Cyrillic or Greek letters, which look alike.
func Mixed(s string) (words []string) {
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, other := false, false
		for _, r := range word {
			latin = latin || unicode.Is(unicode.Latin, r)
			other = other || unicode.In(r, unicode.Cyrillic, unicode.Greek)
		}
		if latin && other {
			words = append(words, word)
		}
	}
	return words
}
