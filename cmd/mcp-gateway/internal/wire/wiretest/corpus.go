package wiretest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// A Text is one that a client may send as the arguments of a call.
type Text struct {
	Name, Text string
	// Apart: JSON.parse, Python's json and encoding/json do not read the same, or
	// one of them reads it and another does not.
	Apart bool
}

// Corpus are texts that parsers may differ about.
var Corpus = []Text{
	{"an object", `{"a":1,"b":[true,false,null],"c":{"d":"e"}}`, false},
	{"white space", " {\t\"a\"\r\n: 1 } ", false},
	{"numbers", `{"a":[0,-0,1,-1,1.5,1e3,1E+3,1e-3,0.1,5.0,1e21,1e-7,123456789012,9007199254740992,1.7976931348623157e308]}`, false},
	{"escapes", `{"a":"\u0041\n\"\\\/\ud83d\ude00","\u0062":1}`, false},
	{"other alphabets", `{"ключ":"值","é":"é"}`, false},
	{"line separators", "{\"a\":\"\u2028\u2029\"}", false},
	{"a prototype", `{"__proto__":{"admin":true},"constructor":1}`, false},
	{"an empty name", `{"":""}`, false},
	{"names that look like indices", `{"10":1,"9":2,"a":3}`, false},
	{"names in two cases", `{"amount":1,"Amount":2}`, false},
	{"nesting", strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50), false},

	{"an integer that no double holds", `{"a":9007199254740993}`, true},
	{"a number too large", `{"a":1e400}`, true},
	{"an integer of many digits", `{"a":` + strings.Repeat("9", 50) + `}`, true},
	{"a name twice", `{"a":1,"a":2}`, false},
	{"a name twice by an escape", `{"a":1,"\u0061":2}`, false},
	{"not a number", `{"a":NaN}`, true},
	{"infinity", `{"a":-Infinity}`, true},
	{"a lone surrogate", `{"a":"\ud800"}`, true},
	{"surrogates in the wrong order", `{"a":"\ude00\ud83d"}`, true},
	{"not UTF-8", "{\"a\":\"\xff\"}", true},
	{"UTF-8 that is too long", "{\"a\":\"\xc0\xaf\"}", true},
	{"a surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", true},
	{"UTF-16", "{\x00\"\x00a\x00\"\x00:\x001\x00}\x00", true},
	{"a byte order mark", "\ufeff{\"a\":1}", true},
	{"nothing", ``, false},
	{"two values", `{"a":1}{"a":2}`, false},
	{"a comma at the end", `{"a":1,}`, false},
	{"a comment", `{"a":1/*,"a":2*/}`, false},
	{"single quotes", `{'a':1}`, false},
	{"a zero before", `{"a":01}`, false},
	{"a plus", `{"a":+1}`, false},
	{"a point without digits", `{"a":1.}`, false},
	{"hexadecimal", `{"a":0x10}`, false},
	{"a form feed", "{\"a\":\f1}", false},
	{"a space that is none", "{\"a\":\u00a01}", false},
	{"a control in text", "{\"a\":\"\x01\"}", false},
	{"a zero byte at the end", "{\"a\":1}\x00", false},
	{"an escape that there is not", `{"a":"\x41"}`, false},
	{"digits of another alphabet", `{"a":१}`, false},
}

// Texts returns the corpus, and n times a text that is changed from one of it and
// one that is generated. They are the same every time.
func Texts(n int) (texts [][]byte) {
	for _, c := range Corpus {
		texts = append(texts, []byte(c.Text))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		texts = append(texts, Mutate(r, texts[i%len(Corpus)]), generate(r, '{', 4))
	}
	return texts
}

// Mutate changes some bytes of a text to others that JSON has a use for.
func Mutate(r *rand.Rand, text []byte) []byte {
	const alphabet = "{}[]\",:\\/ue0123456789.-+EeNnaAtrfl \t\n\x00\xff\xc3\xa9\xef\xbb\xbf"
	out := slices.Clone(text)
	for range 1 + r.IntN(3) {
		at := r.IntN(len(out) + 1)
		switch b := alphabet[r.IntN(len(alphabet))]; {
		case r.IntN(3) == 0 || at == len(out):
			out = slices.Insert(out, at, b)
		case r.IntN(2) == 0:
			out[at] = b
		default:
			out = slices.Delete(out, at, at+1)
		}
	}
	return out
}

// generate makes a text of a kind that is nearly JSON.
func generate(r *rand.Rand, kind byte, levels int) []byte {
	pick := func(from ...string) []byte { return []byte(from[r.IntN(len(from))]) }
	if levels == 0 {
		kind = '0'
	}
	switch kind {
	case '{', '[':
		out := []byte{kind}
		for i := range r.IntN(4) {
			if i > 0 {
				out = append(out, ',')
			}
			if kind == '{' {
				out = append(append(out, pick(`"a"`, `"b"`, `"\u0061"`, `"A"`, `"__proto__"`, `"é"`, `""`, `"10"`, `"9"`)...), ':')
			}
			out = append(out, generate(r, "{[0\"v"[r.IntN(5)], levels-1)...)
		}
		return append(out, kind+2)
	case '"':
		out := []byte{'"'}
		for range r.IntN(4) {
			out = append(out, pick("x", "é", "😀", `\u0041`, `\ud83d\ude00`, `\ud83d`, `\n`, `\/`, "\u2028", "\ufeff", "\x7f", "\xff", `\u0000`)...)
		}
		return append(out, '"')
	case '0':
		out := pick("", "-")
		for range 1 + r.IntN(20) {
			out = append(out, pick("0", "1", "2", "5", "9")...)
		}
		return append(append(out, pick("", "", ".0", ".5", ".1", ".")...), pick("", "", "e2", "E-3", "e+20", "e400", "e")...)
	}
	return pick("true", "false", "null", " 1 ", "NaN", "True")
}
