package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}`

// What two parsers could read differently is refused, and the refusal has the
// id, where there is one. CZ-54, CZ-61.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		name, body string
		code       int
		id         string
	}{
		{"nothing", ``, wire.CodeParse, ""},
		{"no JSON", `tools/call`, wire.CodeParse, ""},
		{"a byte order mark", "\ufeff" + call, wire.CodeParse, ""},
		{"another message behind it", call + call, wire.CodeParse, ""},
		{"another byte behind it", call + "x", wire.CodeParse, ""},
		{"a batch", `[` + call + `]`, wire.CodeRequest, ""},
		{"a batch of none", `[]`, wire.CodeRequest, ""},
		{"a name twice", strings.Replace(call, `"name":"echo"`, `"name":"echo","name":"rm"`, 1), wire.CodeParse, ""},
		{"a name twice, once escaped", strings.Replace(call, `"name":"echo"`, `"name":"echo","n\u0061me":"rm"`, 1), wire.CodeParse, ""},
		{"a name of an argument twice", strings.Replace(call, `"a":1`, `"a":1,"a":2`, 1), wire.CodeParse, ""},
		{"a member twice", strings.Replace(call, `"id":1`, `"id":1,"id":2`, 1), wire.CodeParse, ""},
		{"names that differ by case", strings.Replace(call, `"name":"echo"`, `"name":"echo","Name":"rm"`, 1), wire.CodeRequest, "1"},
		{"arguments that differ by case", strings.Replace(call, `"a":1`, `"a":1,"A":2`, 1), wire.CodeRequest, "1"},
		{"names that differ by a case beyond ASCII", strings.Replace(call, `"a":1`, `"key":1,"\u212aey":2`, 1), wire.CodeRequest, "1"},
		{"nested names that differ by case", strings.Replace(call, `"a":1`, `"a":[{"b":1,"c":{"d":1,"D":1}}]`, 1), wire.CodeRequest, "1"},
		{"a method of another case", strings.Replace(call, `"method"`, `"Method"`, 1), wire.CodeRequest, "1"},
		{"a member that no message has", strings.Replace(call, `"id":1`, `"id":1,"auth":"x"`, 1), wire.CodeRequest, "1"},
		{"invalid UTF-8", strings.Replace(call, `echo`, "ech\xff", 1), wire.CodeParse, ""},
		{"overlong UTF-8", strings.Replace(call, `echo`, "ech\xc0\xaf", 1), wire.CodeParse, ""},
		{"a lone surrogate", strings.Replace(call, `echo`, `ech\ud83d`, 1), wire.CodeParse, ""},
		{"surrogates in the wrong order", strings.Replace(call, `echo`, `ech\ude00\ud83d`, 1), wire.CodeParse, ""},
		{"a control character", strings.Replace(call, `echo`, "ech\x01", 1), wire.CodeParse, ""},
		{"not a number", strings.Replace(call, `"a":1`, `"a":NaN`, 1), wire.CodeParse, ""},
		{"a number with a zero in front", strings.Replace(call, `"a":1`, `"a":01`, 1), wire.CodeParse, ""},
		{"a comment", strings.Replace(call, `"id":1`, `"id":1/**/`, 1), wire.CodeParse, ""},
		{"a comma too many", strings.Replace(call, `"a":1`, `"a":1,`, 1), wire.CodeParse, ""},
		{"too deep", strings.Replace(call, `"a":1`, `"a":`+strings.Repeat("[", 62)+strings.Repeat("]", 62), 1), wire.CodeRequest, ""},
		{"far too deep", strings.Repeat("[", 1<<20), wire.CodeParse, ""},
		{"no version", strings.Replace(call, `"jsonrpc":"2.0",`, ``, 1), wire.CodeRequest, "1"},
		{"another version", strings.Replace(call, `"2.0"`, `"1.0"`, 1), wire.CodeRequest, "1"},
		{"an id of null", strings.Replace(call, `"id":1`, `"id":null`, 1), wire.CodeRequest, ""},
		{"an id with a fraction", strings.Replace(call, `"id":1`, `"id":1.5`, 1), wire.CodeRequest, ""},
		{"an id that no double holds", strings.Replace(call, `"id":1`, `"id":9007199254740993`, 1), wire.CodeRequest, ""},
		{"an id that is an object", strings.Replace(call, `"id":1`, `"id":{}`, 1), wire.CodeRequest, ""},
		{"params in a row", strings.Replace(call, `{"name":"echo","arguments":{"a":1}}`, `["echo"]`, 1), wire.CodeRequest, "1"},
		{"params of null", strings.Replace(call, `{"name":"echo","arguments":{"a":1}}`, `null`, 1), wire.CodeRequest, "1"},
		{"an empty method", strings.Replace(call, `tools/call`, ``, 1), wire.CodeRequest, "1"},
		{"a method that is a number", strings.Replace(call, `"tools/call"`, `1`, 1), wire.CodeRequest, "1"},
		{"a request with a result", strings.Replace(call, `"params"`, `"result":{},"params"`, 1), wire.CodeRequest, "1"},
		{"a result and an error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, wire.CodeRequest, "1"},
		{"neither", `{"jsonrpc":"2.0","id":1}`, wire.CodeRequest, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := wire.Parse([]byte(test.body))
			var fault *wire.Fault
			if m != nil || !errors.As(err, &fault) {
				t.Fatalf("%+v, %v", m, err)
			}
			if fault.Code != test.code || string(fault.ID) != test.id || fault.Reason == "" {
				t.Errorf("code %d, id %q: %s", fault.Code, fault.ID, fault.Reason)
			}
		})
	}
	if _, err := wire.Parse([]byte(call)); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// What is sent on is what was understood.
func TestEncode(t *testing.T) {
	for _, test := range []struct{ name, body, want string }{
		{"a request", call, call},
		{"white space and escapes", ` { "params" : {"n\u0061me":"\u0065cho","arguments":{ "z":1.0, "a":9007199254740993 }} , "method":"tools\/call", "id":"\u0031","jsonrpc":"2.0"}`,
			`{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"echo","arguments":{"z":1.0,"a":9007199254740993}}}`},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		{"a result", `{"jsonrpc":"2.0","id":-7,"result":{"__proto__":null}}`, `{"jsonrpc":"2.0","id":-7,"result":{"__proto__":null}}`},
		{"an error", `{"jsonrpc":"2.0","error":{"code":-1,"message":""}}`, `{"jsonrpc":"2.0","error":{"code":-1,"message":""}}`},
		{"arguments of the same name at two depths", strings.Replace(call, `"a":1`, `"a":{"A":{"a":1}}`, 1), strings.Replace(call, `"a":1`, `"a":{"A":{"a":1}}`, 1)},
		{"values that differ by case alone", strings.Replace(call, `"a":1`, `"a":["b","B","b"]`, 1), strings.Replace(call, `"a":1`, `"a":["b","B","b"]`, 1)},
	} {
		m, err := wire.Parse([]byte(test.body))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := string(m.Encode()); got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}

// The results of tools may have names that differ by case: a list of headers,
// or of variables.
func TestReplyMayHaveTwins(t *testing.T) {
	const reply = `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"path":"a","PATH":"b"}}}`
	if _, err := wire.ParseReply([]byte(reply)); err != nil {
		t.Error(err)
	}
	if _, err := wire.Parse([]byte(reply)); err == nil {
		t.Error("a client may, too")
	}
	if _, err := wire.ParseReply([]byte(strings.Replace(reply, "PATH", "path", 1))); err == nil {
		t.Error("a server may send a name twice")
	}
}

func TestHeaderText(t *testing.T) {
	for _, test := range []struct{ text, header string }{ // of SEP-2243, "Encoding examples"
		{"us-west1", "us-west1"},
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
	} {
		if got := wire.HeaderText(test.text); got != test.header {
			t.Errorf("%q is written %q", test.text, got)
		}
		if got, ok := wire.TextOfHeader(test.header); !ok || got != test.text {
			t.Errorf("%q is read %q, %v", test.header, got, ok)
		}
	}
	if got, ok := wire.TextOfHeader("=?base64?%%?="); ok {
		t.Errorf("what is no base64 is read %q", got)
	}
}

// Arguments stand in headers as the definition of the tool says, at any depth of
// properties.
func TestMirrors(t *testing.T) {
	const definition = `{"name":"q","inputSchema":{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"}, "n":{"type":"integer","x-mcp-header":"N"}, "b":{"type":"boolean","x-mcp-header":"B"},
		"deep":{"properties":{"er":{"type":"string","x-mcp-header":"Deeper"}}}, "any":true, "list":{"items":{"x-mcp-header":"No"}}, "null":{"x-mcp-header":"Null"}}}}`
	got, err := wire.Mirrors(jsontext.Value(definition), jsontext.Value(`{"region":"zürich","n":42,"b":true,"deep":{"er":"x"},"any":1,"list":["y"],"null":null}`))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b wire.Mirror) int { return strings.Compare(a.Name, b.Name) })
	if text := fmt.Sprint(got); text != "[{B true true} {Deeper x true} {N 42 true} {Null  false} {Region zürich true}]" {
		t.Errorf("%s", text)
	}
	for _, test := range []struct {
		header string
		m      wire.Mirror
		same   bool
	}{
		{"42", wire.Mirror{Text: "42", Present: true}, true}, {"42.0", wire.Mirror{Text: "42", Present: true}, true}, {"43", wire.Mirror{Text: "42", Present: true}, false},
		{"=?base64?esO8cmljaA==?=", wire.Mirror{Text: "zürich", Present: true}, true}, {"=?base64?%%?=", wire.Mirror{Text: "=?base64?%%?=", Present: true}, false},
		{"x", wire.Mirror{}, false}, {"", wire.Mirror{Text: "", Present: true}, true}, {"X", wire.Mirror{Text: "x", Present: true}, false},
	} {
		if got := test.m.Same(test.header); got != test.same {
			t.Errorf("%q and %+v: %v", test.header, test.m, got)
		}
	}
}

// Numbers that have the same canonical form as another have no digest; all
// others name the call, however they are written.
func TestDigest(t *testing.T) {
	digest := func(arguments string) string {
		got, err := wire.Binding{Server: "s", Method: "tools/call", Name: "pay", Arguments: jsontext.Value(arguments)}.Digest()
		var number *wire.NumberError
		if err != nil && !errors.As(err, &number) {
			t.Fatal(err)
		}
		return got
	}
	for _, test := range []struct {
		one, other string
		same       bool
	}{
		{`{"a":1,"b":"x"}`, ` {"b":"\u0078", "a":1.0e0}`, true},
		{`{"a":[0.1,-2.5e-7]}`, `{"a":[0.10,-25e-8]}`, true},
		{`{"a":9007199254740991}`, `{"a":9007199254740991.0}`, true},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":"é"}`, "{\"a\":\"e\u0301\"}", false},
		{`{}`, `{"a":null}`, false},
	} {
		one, other := digest(test.one), digest(test.other)
		if one == "" || (one == other) != test.same {
			t.Errorf("%s and %s: %s, %s", test.one, test.other, one, other)
		}
	}
	for _, number := range []string{
		"9007199254740993", "1e400", "-1e400", "1e-400", "1e-99999999999", "0.1000000000000000055511151231257827",
		"1" + strings.Repeat("0", 500), "123456789012345678901234567890",
	} {
		if got := digest(`{"a":{"b":[` + number + `]}}`); got != "" {
			t.Errorf("%s has the digest %s", number, got)
		}
	}
	for _, number := range []string{"9007199254740992", "0", "0.0", "0e99999", "1e22", "5e-324", "1.7976931348623157e308", "-0.5"} {
		if digest(`{"a":`+number+`}`) == "" {
			t.Errorf("%s has no digest", number)
		}
	}
	if digest(``) != digest(`{}`) {
		t.Error("no arguments are others than empty ones")
	}
}

// No part of a binding can be taken for a part of another.
func TestDigestParts(t *testing.T) {
	seen := make(map[string]wire.Binding)
	for _, b := range []wire.Binding{
		{Server: "ab"}, {Method: "ab"}, {Name: "ab"}, {Definition: "ab"}, {Server: "a", Method: "b"}, {Method: "a", Name: "b"}, {Name: "a", Definition: "b"},
		{Arguments: jsontext.Value(`{"a":1}`)}, {Meta: jsontext.Value(`{"a":1}`)}, {Others: jsontext.Value(`{"a":1}`)},
		{Meta: jsontext.Value(`{"a":1}`), Others: jsontext.Value(`{"a":1}`)},
	} {
		got, err := b.Digest()
		if other, found := seen[got]; found || err != nil {
			t.Errorf("%+v and %+v: %s, %v", b, other, got, err)
		}
		seen[got] = b
	}
}

// Whatever comes in, what goes out is read as the same by every parser, and as
// what came in.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		call, `{"jsonrpc":"2.0","id":"a","result":{"a":[1e400,"\ud83d\ude00"]}}`, `{"jsonrpc":"2.0","method":"x","params":{"a":{"A":1,"b":[[]]}}}`, `{"jsonrpc":"2.0","id":1,"error":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := wire.Parse(body)
		if (m == nil) == (err == nil) {
			t.Fatalf("%+v, %v", m, err)
		}
		if err != nil {
			return
		}
		out := m.Encode()
		again, err := wire.Parse(out)
		if err != nil || !bytes.Equal(again.Encode(), out) {
			t.Fatalf("%s is read as %+v, %v", out, again, err)
		}
		came, went := jsontext.Value(bytes.Clone(body)), jsontext.Value(out)
		if err := errors.Join(came.Canonicalize(), went.Canonicalize()); err != nil || !bytes.Equal(came, went) {
			t.Errorf("%s became %s, %v", came, went, err)
		}
		if p, err := again.Read(); err == nil {
			_, _ = wire.Binding{Arguments: p.Arguments}.Digest()
		}
	})
}

// A message that nests deeper than the parser of JSON goes is too deep as well, and no bad
// JSON: an answer like that says that the call was carried out.
func TestDeeperThanTheParser(t *testing.T) {
	deep := []byte(`{"jsonrpc":"2.0","id":7,"result":{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`)
	if _, err := wire.ParseReply(deep); !errors.Is(err, wire.ErrDepth) {
		t.Error(err)
	}
}
