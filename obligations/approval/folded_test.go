package approval_test

import (
	"testing"
	"unicode"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// isCalled reports whether a person with one name may have another.
func isCalled(person, name string) bool {
	return approval.Approver{Subject: authzen.Subject{Type: "user", ID: person}}.IsCalled(name)
}

// A name with a character that nobody sees is another spelling of the same name, at each place, whether its
// accents are composed or not.
func TestUnseenCharactersDoNotMakeAnotherName(t *testing.T) {
	unseen := []rune{
		' ', '\t', '\n', '\v', '\u0085', '\u00A0', '\u2003', '\u3000', // blanks
		0, '\x1B', '\u00AD', '\u200B', '\u200D', '\u202E', '\u2060', '\uFEFF', '\U000E0041', // controls and formats
		'\u034F', '\u115F', '\u3164', '\uFFA0', '\uFE0F', '\U000E0101', // ignored in display
		'\u2800', '\uFFFC', '\uE000', '\U000F0000', '\u2028', // no shape of their own
		'\u0334', '\u0335', '\u0336', '\u0337', '\u20E5', // overlay any letter
		'\u20DD', '\u20E0', // enclose any letter
	}
	for _, r := range unicode.Noncharacter_Code_Point.R16 {
		unseen = append(unseen, rune(r.Lo), rune(r.Hi))
	}
	for _, r := range unicode.Noncharacter_Code_Point.R32 {
		unseen = append(unseen, rune(r.Lo), rune(r.Hi))
	}
	for _, name := range []string{"carol@example.com", "ren\u00E9", "rene\u0301", "gi\u0307l", "\uAC15", "\u1100\u1161\u11BC", "\u05D3\u05B8\u05DF"} {
		runes := []rune(name)
		for at := range len(runes) + 1 {
			for _, r := range unseen {
				if other := string(runes[:at]) + string(r) + string(runes[at:]); !isCalled(name, other) {
					t.Errorf("%+q is not %+q", other, name)
				}
			}
		}
	}
}

// Spellings of one name, and names of different people.
func TestNamesAreComparedAsTheyLook(t *testing.T) {
	for _, pair := range [][2]string{
		{"gil@example.com", "g\u0130l@example.com"}, {"gil@example.com", "g\u0131l@example.com"}, {"gil@example.com", "GI\u0307L@example.com"},
		{"g\u0131l", "G\u0130L"}, {"ren\u00E9", "RENE\u0301"}, {"carol", "\uFF23\uFF21ROL"}, {"stra\u00DFe", "STRASSE"}, {"\u01F0", "J\u030C"},
		{"carol", "c\u0334\u0336arol"}, {"carol jones", "caroljones"},
	} {
		if !isCalled(pair[0], pair[1]) || !isCalled(pair[1], pair[0]) {
			t.Errorf("%+q and %+q are two people", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{"rene", "ren\u00E9"}, {"gil", "gal"}, {"gil", "g\u00EDl"}, {"\u0111an", "dan"}, {"o\u0323", "o"}, {"\u304B", "\u304C"},
		{"\u0905", "\u0906"}, {"\u0915", "\u0915\u093F"}, {"\u05D3", "\u05D3\u05B8"}, {"\u0438", "\u0439"}, {"carol", "carl"}, {"", ""}, {"carol", ""},
	} {
		if isCalled(pair[0], pair[1]) || isCalled(pair[1], pair[0]) {
			t.Errorf("%+q and %+q are one person", pair[0], pair[1])
		}
	}
}
