// Package wiretest has texts that parsers of JSON differ about, and parsers that
// tell what they read, for the tests of what decides on what others will parse.
package wiretest

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	//go:embed parse.js
	javascript string
	//go:embed parse.py
	python string
)

// A Parser is a program that tells what it reads.
type Parser struct {
	Name    string
	program string
	run     []string // the program's arguments
}

// Parsers are JSON.parse and Python's json.
var Parsers = []Parser{
	{"JSON.parse", "node", []string{"-e", javascript, "--"}},
	{"Python", "python3", []string{"-c", python}},
}

// Command runs the parser with arguments: none, to read an array of texts, or
// serve, to be an MCP server at a port that it says. Without the program the
// test is skipped, but in CI.
func (p *Parser) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(p.program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("there is no %s, and in CI there has to be", p.program)
		}
		t.Skipf("there is no %s here; in CI there has to be", p.program)
	}
	return exec.CommandContext(t.Context(), path, slices.Concat(p.run, args)...)
}

// Parse tells what the parser reads: null where it refuses a text.
func (p *Parser) Parse(t testing.TB, texts [][]byte) (told []jsontext.Value) {
	t.Helper()
	var encoded []string
	for _, text := range texts {
		encoded = append(encoded, base64.StdEncoding.EncodeToString(text))
	}
	input, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	command := p.Command(t)
	command.Stdin, command.Stderr = bytes.NewReader(input), &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for line := range bytes.Lines(out) {
		told = append(told, jsontext.Value(bytes.TrimSpace(line)))
	}
	if len(told) != len(texts) {
		t.Fatalf("%s told of %d texts, not %d", p.Name, len(told), len(texts))
	}
	return told
}

// Same reports whether two parsers read the same. Numbers are compared by their
// value.
func Same(a, b jsontext.Value) bool { return equal(decode(a), decode(b)) }

func decode(told jsontext.Value) (v any) {
	decoder := json.NewDecoder(bytes.NewReader(told))
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

// Standard tells what encoding/json reads.
func Standard(text []byte) jsontext.Value {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil || decoder.More() {
		return jsontext.Value("null")
	}
	return Told(v)
}

// Told writes a value as the scripts do. Its numbers are json.Number.
func Told(v any) jsontext.Value {
	out, err := json.Marshal(pairs(v))
	if err != nil {
		return jsontext.Value(err.Error())
	}
	return out
}

func pairs(v any) any {
	switch v := v.(type) {
	case json.Number:
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
