package plain_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/plain"
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

func TestMixed(t *testing.T) {
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
		if strings.ContainsFunc(shown, func(r rune) bool {
			return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Zs, r) && r != ' '
		}) {
			t.Errorf("%q is shown as %q", a, shown)
		}
	})
}
