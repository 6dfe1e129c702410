// Package plain makes untrusted text safe to show to people who decide by it: on
// the approval page, in a summary for a policy, in a terminal.
//
// The law it keeps: what is read is what is there. Whatever has no shape of its
// own, or changes the shape or the order of what stands beside it, is written
// as an escape: controls, line and paragraph breaks, bidirectional marks,
// zero-width and other invisible characters, private use, bytes that are not
// UTF-8. Letters of other alphabets stay, and [Mixed] reports words that mix
// look-alikes.
//
// A single value goes through [Text]: it stays on its line, and different values
// are shown differently. Output that is composed already, of lines of its own,
// goes through [Lines] as a whole.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with an escape for each character that would not be seen as
// itself: \u{202E}. A backslash is doubled, so that no text looks like an
// escape of another.
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

// Lines returns s with an escape for each character that would not be seen as
// itself, but for line feeds and tabs. Backslashes stay single: s may hold
// quoted values.
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

// show writes r, with which rest begins, as itself or as an escape.
func show(out *strings.Builder, rest string, r rune) {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(rest, "\uFFFD"):
		fmt.Fprintf(out, `\x%02X`, rest[0])
	case !seen(r):
		fmt.Fprintf(out, `\u{%04X}`, r)
	default:
		out.WriteRune(r)
	}
}

// seen reports whether a character has a shape of its own and leaves the others
// where they are.
func seen(r rune) bool {
	switch {
	case r == ' ':
		return true
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), unicode.Is(unicode.Variation_Selector, r),
		unicode.Is(unicode.Bidi_Control, r), r == '\u2800', r == '\uFFFC':
		return false
	}
	return unicode.IsPrint(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Me, r) || marks(r)
}

// marks reports whether a combining mark is one that writing needs: those of
// the scripts, not those that overlay any character.
func marks(r rune) bool {
	return unicode.Is(unicode.M, r) && !unicode.Is(unicode.Inherited, r)
}

// Mixed returns the words of s whose letters are of Latin and of Cyrillic or
// Greek, which have look-alikes of each other.
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
