package catalog_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

// corpus is what a client may send as arguments. Those that are apart are read
// differently by JSON.parse, Python's json and encoding/json, or by one of them
// and not by another.
var corpus = []struct {
	name, text string
	apart      bool
}{
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

// TestParsers sends the corpus, and texts made of it, through three parsers. What
// [catalog.Tool.Check] lets through is the same value for JSON.parse, for Python
// and for the gateway. The control is that others of the corpus are not.
func TestParsers(t *testing.T) {
	texts := [][]byte{}
	for _, c := range corpus {
		texts = append(texts, []byte(c.text))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 4000 {
		texts = append(texts, mutate(r, texts[i%len(corpus)]), generate(r, '{', 4))
	}
	javascript := parse(t, texts, "node", "testdata/parse.js")
	python := parse(t, texts, "python3", "testdata/parse.py")
	anything := tool(t, `{}`)
	passed := 0
	for i, text := range texts {
		standard := stdTell(text)
		if i < len(corpus) && corpus[i].apart == (same(javascript[i], python[i]) && same(javascript[i], standard)) {
			t.Errorf("%s: JSON.parse %s, Python %s, encoding/json %s", corpus[i].name, javascript[i], python[i], standard)
		}
		if len(text) == 0 || anything.Check(text) != nil {
			continue
		}
		passed++
		ours := tell(t, text)
		if !same(ours, javascript[i]) || !same(ours, python[i]) {
			t.Errorf("%q is let through: the gateway reads %s, JSON.parse %s, Python %s", text, ours, javascript[i], python[i])
		}
	}
	if passed < 1000 || passed > len(texts)/2 {
		t.Errorf("of %d texts %d were let through", len(texts), passed)
	}
	t.Logf("%d texts, %d let through", len(texts), passed)
}

// mutate changes some bytes of a text to others that JSON has a use for.
func mutate(r *rand.Rand, text []byte) []byte {
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

// parse has a program tell what it reads.
func parse(t *testing.T, texts [][]byte, program, script string) (told []jsontext.Value) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("there is no %s, and in CI there has to be", program)
		}
		t.Skipf("there is no %s here; in CI there has to be", program)
	}
	var encoded []string
	for _, text := range texts {
		encoded = append(encoded, base64.StdEncoding.EncodeToString(text))
	}
	input, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), path, script)
	command.Stdin, command.Stderr = bytes.NewReader(input), &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for line := range bytes.Lines(out) {
		told = append(told, jsontext.Value(bytes.TrimSpace(line)))
	}
	if len(told) != len(texts) {
		t.Fatalf("%s told of %d texts, not %d", program, len(told), len(texts))
	}
	return told
}

// same reports whether two parsers read the same. Numbers are compared by their
// value.
func same(a, b jsontext.Value) bool { return equal(decode(a), decode(b)) }

func decode(told jsontext.Value) (v any) {
	decoder := stdjson.NewDecoder(bytes.NewReader(told))
	if err := decoder.Decode(&v); err != nil {
		return err.Error()
	}
	return v
}

func equal(a, b any) bool {
	x, isX := a.([]any)
	y, isY := b.([]any)
	if !isX || !isY {
		return a == b
	}
	if len(x) != len(y) {
		return false
	}
	if len(x) == 2 && x[0] == "n" && y[0] == "n" {
		return rational(x[1]).Cmp(rational(y[1])) == 0
	}
	for i := range x {
		if !equal(x[i], y[i]) {
			return false
		}
	}
	return true
}

func rational(text any) *big.Rat {
	value, ok := new(big.Rat).SetString(fmt.Sprint(text))
	if !ok { // it is not finite
		return big.NewRat(-1<<62, 1)
	}
	return value
}

// tell writes what the gateway reads, as the scripts do.
func tell(t *testing.T, text []byte) jsontext.Value {
	t.Helper()
	v, err := number.Read(text, func(text string) (any, error) { return stdjson.Number(text), nil })
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return marshal(v)
}

// stdTell writes what encoding/json reads.
func stdTell(text []byte) jsontext.Value {
	decoder := stdjson.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil || decoder.More() {
		return jsontext.Value("null")
	}
	return marshal(v)
}

func marshal(v any) jsontext.Value {
	out, err := stdjson.Marshal(pairs(v))
	if err != nil {
		return jsontext.Value(err.Error())
	}
	return out
}

func pairs(v any) any {
	switch v := v.(type) {
	case stdjson.Number:
		return []any{"n", string(v)}
	case string:
		return []any{"s", units(v)}
	case []any:
		all := []any{}
		for _, element := range v {
			all = append(all, pairs(element))
		}
		return []any{"a", all}
	case map[string]any:
		named := make(map[string]any)
		for name, member := range v {
			named[units(name)] = pairs(member)
		}
		all := []any{}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			all = append(all, []any{name, named[name]})
		}
		return []any{"o", all}
	}
	return []any{"v", v}
}

func units(text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return hex.EncodeToString(out)
}
