package plain_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/plain"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"letters", "Grüße, 東京 – ok!", "Grüße, 東京 – ok!"},
		{"a script's own marks", "हिन्दी", "हिन्दी"},
		{"a right-to-left script", "שלום", "שלום"},
		{"right-to-left override", "gpj.\u202Eexe", `gpj.\u{202E}exe`},
		{"isolates", "\u2066a\u2069", `\u{2066}a\u{2069}`},
		{"Arabic letter mark", "\u061C", `\u{061C}`},
		{"zero width", "pay\u200Bpal\u200D\uFEFF", `pay\u{200B}pal\u{200D}\u{FEFF}`},
		{"soft hyphen", "a\u00ADb", `a\u{00AD}b`},
		{"tags", "a\U000E0041", `a\u{E0041}`},
		{"variation selector", "a\uFE0F", `a\u{FE0F}`},
		{"blank that is no space", "\u2800\u3164\u00A0", `\u{2800}\u{3164}\u{00A0}`},
		{"lines", "a\nb\r\u2028c\u0085", `a\u{000A}b\u{000D}\u{2028}c\u{0085}`},
		{"a terminal's escape", "\x1b[2Jx\x07", `\u{001B}[2Jx\u{0007}`},
		{"overlays", "a\u0336b\u20DD", `a\u{0336}b\u{20DD}`},
		{"private use", "\uE000", `\u{E000}`},
		{"not UTF-8", "a\xffb", `a\xFFb`},
		{"the replacement character", "\uFFFD", "\uFFFD"},
		{"what looks like an escape", `\u{202E}`, `\\u{202E}`},
		{"markup is text", "<b>[x](y)", "<b>[x](y)"},
	} {
		if diff := cmp.Diff(test.want, plain.Text(test.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestLines(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"lines and tabs", "a\n\tb\n", "a\n\tb\n"},
		{"a quoted value", `"a\nb"`, `"a\nb"`},
		{"a carriage return", "allow\rdeny", `allow\u{000D}deny`},
		{"a separator of lines", "a\u2028b", `a\u{2028}b`},
		{"a terminal's escape", "\x1b[2J\u009b2J", `\u{001B}[2J\u{009B}2J`},
		{"right-to-left override", "gpj.\u202Eexe", `gpj.\u{202E}exe`},
		{"not UTF-8", "a\x9bb", `a\x9Bb`},
	} {
		if diff := cmp.Diff(test.want, plain.Lines(test.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// No character that is invisible, or that a terminal or a page obeys, comes out,
// and no line begins that did not in what went in.
func TestNothingHiddenIsShown(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		text, lines := plain.Text("a"+string(r)+"b"), plain.Lines("a"+string(r)+"b")
		if strings.ContainsFunc(text, hidden) {
			t.Fatalf("Text shows %U as %q", r, text)
		}
		if strings.ContainsFunc(lines, func(r rune) bool { return hidden(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("Lines shows %U as %q", r, lines)
		}
	}
}

// hidden reports characters that Unicode says have no shape of their own, or
// that order or break what stands beside them.
func hidden(r rune) bool {
	return r != ' ' && unicode.In(r, unicode.C, unicode.Z, unicode.Bidi_Control, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func TestMixedFindsLookalikes(t *testing.T) {
	const text = "transfer to \u0440aypal, Москва, Αθήνα, alice, Ωmega"
	if diff := cmp.Diff([]string{"\u0440aypal", "Ωmega"}, plain.Mixed(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Different texts are shown differently, and nothing that is shown is invisible
// or moves what stands beside it.
func FuzzText(f *testing.F) {
	f.Add("gpj.\u202Eexe", `gpj.\u{202E}exe`)
	f.Add("a\xff", `a\xFF`)
	f.Add("\uFFFD", "\xef\xbf")
	f.Fuzz(func(t *testing.T, a, b string) {
		shown := plain.Text(a)
		if a != b && shown == plain.Text(b) {
			t.Errorf("%q and %q are both shown as %q", a, b, shown)
		}
		if strings.ContainsFunc(shown, hidden) {
			t.Errorf("%q is shown as %q", a, shown)
		}
	})
}
