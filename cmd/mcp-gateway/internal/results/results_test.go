package results_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// rules returns the rules of these properties.
func rules(properties ...string) (r results.Rules) {
	for _, p := range properties {
		r.Custom = append(r.Custom, jsontext.Value(p))
	}
	return r
}

const (
	ssn     = `{"action":"redact","paths":["/ssn"]}`
	deepSSN = `{"action":"redact","paths":["/people/*/ssn"]}`
	gone    = `{"action":"redact","paths":["/ssn"],"with":"gone"}`
	must    = `{"action":"redact","paths":["/ssn"],"required":true}`
	cards   = `{"action":"mask","pattern":"[0-9]{4}-[0-9]{4}"}`
	note    = `{"action":"mask","pattern":"[0-9]{4}-[0-9]{4}","paths":["/note"],"with":"#"}`
)

// text is a tool's result of one text, which is quoted here.
func text(s string) string {
	quoted, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
}

// apply returns the result of a method, or why it is withheld.
func apply(t *testing.T, r results.Rules, method, result string) (string, error) {
	t.Helper()
	m, err := wire.ParseReply([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
	if err != nil {
		return "", err
	}
	out, err := r.Apply(method, m, nil)
	if err != nil {
		var withheld *results.WithheldError
		if !errors.As(err, &withheld) {
			t.Errorf("%s: %v", result, err)
		}
		return "", err
	}
	return string(out.Result), nil
}

// The patterns of the reference mask prose, and the example there is a policy's obligations.
func TestDocumentedPatterns(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/mcp-gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	const prose = "Eve (eve.o+x@mail.example.com) has 123-45-6789, paid with 4111 1111 1111 1111 or 5500-0000-0000-0004, order 12345, version 1.2."
	for kind, want := range map[string]string{
		"e-mail addresses":                      "Eve (***) has 123-45-6789, paid with 4111 1111 1111 1111 or 5500-0000-0000-0004, order 12345, version 1.2.",
		"payment cards, with spaces or hyphens": "Eve (eve.o+x@mail.example.com) has 123-45-6789, paid with *** or ***, order 12345, version 1.2.",
		"social security numbers of the USA":    "Eve (eve.o+x@mail.example.com) has ***, paid with 4111 1111 1111 1111 or 5500-0000-0000-0004, order 12345, version 1.2.",
	} {
		row := regexp.MustCompile("(?m)^\\| " + kind + " \\| `(.+)` \\|$").FindSubmatch(page)
		if row == nil {
			t.Errorf("the reference has no pattern for %s", kind)
			continue
		}
		pattern, err := json.Marshal(string(row[1]))
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(t, rules(`{"action":"mask","pattern":`+string(pattern)+`}`), "tools/call", text(prose))
		if err != nil || !strings.Contains(got, `"text":"`+want+`"`) {
			t.Errorf("%s: %s, %v", kind, got, err)
		}
	}
}

// What is delivered has every obligation carried out, in structured content and in
// the text that mirrors it.
func TestApply(t *testing.T) {
	for _, test := range []struct {
		name         string
		rules        results.Rules
		method       string
		result, want string
	}{
		{"nothing", rules(), "tools/call", `{"content":[{"type":"image"}],"x":1}`, `{"content":[{"type":"image"}],"x":1}`},
		{"a member", rules(ssn), "tools/call", `{"structuredContent":{"ssn":"1","name":"a"},"isError":false}`, `{"isError":false,"structuredContent":{"name":"a"}}`},
		{"its mirror", rules(ssn), "tools/call", text(`{"ssn":"1","name":"a"}`), text(`{"name":"a"}`)},
		{"with a replacement", rules(gone), "tools/call", `{"structuredContent":{"ssn":{"a":[1]}}}`, `{"structuredContent":{"ssn":"gone"}}`},
		{"an absent member", rules(ssn), "tools/call", `{"structuredContent":{"name":"a"}}`, `{"structuredContent":{"name":"a"}}`},
		{"every element", rules(deepSSN), "tools/call", text(`{"people":[{"ssn":1,"n":2},{"SSN":1},7]}`), text(`{"people":[{"n":2},{},7]}`)},
		{"every member", rules(`{"action":"redact","paths":["/people/*/ssn"]}`), "tools/call", text(`{"people":{"a":{"ssn":1},"b":[]}}`), text(`{"people":{"a":{},"b":[]}}`)},
		{"an element", rules(`{"action":"redact","paths":["/1"]}`), "tools/call", text(`[1,2,3]`), text(`[1,3]`)},
		{"all elements", rules(`{"action":"redact","paths":["/*"]}`), "tools/call", text(`[1,2,3]`), text(`[]`)},
		{"a key in another case", rules(ssn), "tools/call", `{"structuredContent":{"SSN":"1","Ssn":"2","\u017fsn":"3","name":"a"}}`, `{"structuredContent":{"name":"a"}}`},
		{"a key in escapes", rules(ssn), "tools/call", text(`{"\u0073s\u006e":"1","name":"a"}`), text(`{"name":"a"}`)},
		{"a name with a slash", rules(`{"action":"redact","paths":["/a~1b"]}`), "tools/call", text(`{"a/b":1,"a":{"b":2}}`), text(`{"a":{"b":2}}`)},
		{"two paths, one in the other", rules(`{"action":"redact","paths":["/a/b","/a"]}`), "tools/call", text(`{"a":{"b":1},"c":2}`), text(`{"c":2}`)},
		{"a number beyond a double", rules(ssn), "tools/call", text(`{"n":123456789012345678901234567890e400,"ssn":1}`), text(`{"n":123456789012345678901234567890e400}`)},
		{"several texts", rules(ssn), "tools/call", `{"content":[{"type":"text","text":"{\"ssn\":1}"},{"type":"text","text":"[]","annotations":{"audience":["user"]}}]}`,
			`{"content":[{"text":"{}","type":"text"},{"annotations":{"audience":["user"]},"text":"[]","type":"text"}]}`},
		{"meta", rules(ssn), "tools/call", `{"content":[],"_meta":{"ssn":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}}}`, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"content":[]}`},

		{"free text", rules(cards), "tools/call", text("pay 1234-5678 and 1111-2222"), text("pay *** and ***")},
		{"text in JSON", rules(cards), "tools/call", text(`{"a": ["1234-5678", {"b":"x1234-56789"}], "c": 1}`), text(`{"a":["***",{"b":"x***9"}],"c":1}`)},
		{"JSON without it keeps its form", rules(cards), "tools/call", text("{\"a\": 1 }\n"), text("{\"a\": 1 }\n")},
		{"escapes in JSON", rules(cards), "tools/call", text(`{"a":"\u0031234-5678"}`), text(`{"a":"***"}`)},
		{"JSON that is ambiguous is text", rules(cards), "tools/call", text(`{"a":"1234-5678","a":1}`), text(`{"a":"***","a":1}`)},
		{"a number", rules(`{"action":"mask","pattern":"^[0-9]{16}$","with":"card"}`), "tools/call", `{"structuredContent":{"card":1234567812345678,"n":12}}`, `{"structuredContent":{"card":"card","n":12}}`},
		{"at a path only", rules(note), "tools/call", text(`{"note":"1234-5678","id":"1234-5678"}`), text(`{"note":"#","id":"1234-5678"}`)},
		{"below a path", rules(note), "tools/call", text(`{"note":["1234-5678"]}`), text(`{"note":["#"]}`)},
		{"both", rules(cards, ssn), "tools/call", text(`{"ssn":"1234-5678","note":"1234-5678"}`), text(`{"note":"***"}`)},

		{"a resource", rules(ssn), "resources/read", `{"contents":[{"uri":"file:///a","mimeType":"application/json","text":"{\"ssn\":1}"}],"cacheScope":"public","ttlMs":5}`,
			`{"cacheScope":"private","contents":[{"mimeType":"application/json","text":"{}","uri":"file:///a"}],"ttlMs":5}`},
		{"a prompt", rules(cards), "prompts/get", `{"description":"of 1234-5678","messages":[{"role":"user","content":{"type":"text","text":"1234-5678"}}]}`,
			`{"description":"of ***","messages":[{"content":{"text":"***","type":"text"},"role":"user"}]}`},
		{"a task's result", rules(ssn), "tasks/result", text(`{"ssn":1}`), text(`{}`)},
		{"a task that has ended", rules(ssn), "tasks/get", `{"taskId":"t","status":"completed","statusMessage":"of 1","result":` + text(`{"ssn":1}`) + `}`, `{"result":` + text(`{}`) + `,"status":"completed","taskId":"t"}`},
		{"a task that begins", rules(ssn), "tools/call", `{"task":{"taskId":"t","status":"working"}}`, `{"task":{"status":"working","taskId":"t"}}`},
		{"requests of the server", rules(ssn), "tools/call", `{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"roots/list"}}}`, `{"inputRequests":{"a":{"method":"roots/list"}},"requestState":"s","resultType":"input_required"}`},

		{"as large as it may be", rules(`{"action":"max_bytes","bytes":14}`), "tools/call", `{"content":[]}`, `{"content":[]}`},
		{"as large after redaction", rules(`{"action":"max_bytes","bytes":40}`, ssn), "tools/call", `{"structuredContent":{"ssn":"` + strings.Repeat("1", 100) + `"}}`, `{"structuredContent":{}}`},
		{"the status of a task", rules(`{"action":"max_bytes","bytes":14}`), "tasks/get", `{"taskId":"a-long-name-of-a-task","status":"completed","result":{"content":[]}}`, `{"taskId":"a-long-name-of-a-task","status":"completed","result":{"content":[]}}`},
		{"a task that begins, with a bound", rules(`{"action":"max_bytes","bytes":14}`), "tools/call", `{"resultType":"task","taskId":"a-long-name-of-a-task"}`, `{"resultType":"task","taskId":"a-long-name-of-a-task"}`},
		{"a list", rules(`{"action":"max_bytes","bytes":14}`), "tools/list", `{"tools":[]}`, `{"tools":[]}`},
	} {
		got, err := apply(t, test.rules, test.method, test.result)
		if err != nil {
			t.Errorf("%s: withheld: %v", test.name, err)
			continue
		}
		a, b := jsontext.Value(got), jsontext.Value(test.want)
		if err := errors.Join(a.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)), b.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))); err != nil || string(a) != string(b) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// A response on which an obligation cannot be carried out reaches nobody.
func TestWithheld(t *testing.T) {
	for _, test := range []struct {
		name   string
		rules  results.Rules
		method string
		result string
	}{
		{"text that is not JSON", rules(ssn), "tools/call", text("ssn: 1")},
		{"JSON and more", rules(ssn), "tools/call", text(`{"ssn":1} {"ssn":2}`)},
		{"JSON after a byte order mark", rules(ssn), "tools/call", text("\ufeff" + `{"ssn":1}`)},
		{"JSON that is a number", rules(ssn), "tools/call", text(`42`)},
		{"a name twice", rules(ssn), "tools/call", text(`{"ssn":1,"a":2,"a":3}`)},
		{"a name twice in escapes", rules(ssn), "tools/call", text(`{"a":2,"\u0061":3}`)},
		{"a lone surrogate", rules(ssn), "tools/call", text(`{"a":"\ud800"}`)},
		{"NaN", rules(ssn), "tools/call", text(`{"a":NaN}`)},
		{"Infinity", rules(ssn), "tools/call", text(`{"a":-Infinity}`)},
		{"65 levels", rules(ssn), "tools/call", text(strings.Repeat("[", 65) + strings.Repeat("]", 65))},
		{"JSON with a comment", rules(ssn), "tools/call", text("{} // ssn")},
		{"an absent path that is required", rules(must), "tools/call", `{"structuredContent":{"name":"a"}}`},
		{"an absent path in the mirror", rules(must), "tools/call", `{"structuredContent":{"ssn":"1"},"content":[{"type":"text","text":"{\"id\":1}"}]}`},
		{"an image", rules(ssn), "tools/call", `{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`},
		{"an image that is to be masked", rules(cards), "tools/call", `{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`},
		{"an embedded resource", rules(ssn), "tools/call", `{"content":[{"type":"resource","resource":{"uri":"a","text":"{}"}}]}`},
		{"a link", rules(ssn), "tools/call", `{"content":[{"type":"resource_link","uri":"a","name":"ssn 1"}]}`},
		{"content of no type", rules(ssn), "tools/call", `{"content":[{"text":"{}"}]}`},
		{"content that is no array", rules(ssn), "tools/call", `{"content":{"type":"text","text":"{}"}}`},
		{"a text with more", rules(ssn), "tools/call", `{"content":[{"type":"text","text":"{}","data":"1"}]}`},
		{"a text that is none", rules(ssn), "tools/call", `{"content":[{"type":"text","text":7}]}`},
		{"an annotation with more", rules(ssn), "tools/call", `{"content":[{"type":"text","text":"{}","annotations":{"ssn":1}}]}`},
		{"a member of another protocol", rules(ssn), "tools/call", `{"toolResult":{"ssn":1}}`},
		{"content beside a task", rules(ssn), "tools/call", `{"task":{"taskId":"t"},"content":[{"type":"text","text":"ssn"}]}`},
		{"content beside requests", rules(ssn), "tools/call", `{"resultType":"input_required","inputRequests":{},"structuredContent":{"ssn":1}}`},
		{"a blob", rules(ssn), "resources/read", `{"contents":[{"uri":"a","blob":"AAAA"}]}`},
		{"a prompt with an image", rules(cards), "prompts/get", `{"messages":[{"role":"user","content":{"type":"image","data":"AA","mimeType":"x"}}]}`},
		{"a result without a shape", rules(ssn), "tools/list", `{"tools":[]}`},
		{"a name that is a card", rules(cards), "tools/call", text(`{"1234-5678":1}`)},
		{"a card in escapes", rules(cards), "tools/call", text(`see {"a":"\u0031234-5678"}`)},
		{"a card in escapes within JSON", rules(cards), "tools/call", text(`{"a":"{\"b\":\"\\u0031234-5678\"}"}`)},
		{"a free text at a path", rules(note), "tools/call", text("note 1234-5678")},
		{"a byte too many", rules(`{"action":"max_bytes","bytes":13}`), "tools/call", `{"content":[]}`},
		{"a byte too many of a task's result", rules(`{"action":"max_bytes","bytes":13}`), "tasks/get", `{"taskId":"t","result":{"content":[]}}`},
		{"a byte too many of tasks/result", rules(`{"action":"max_bytes","bytes":13}`), "tasks/result", `{"content":[]}`},
		{"content beside a task, with a bound", rules(`{"action":"max_bytes","bytes":13}`), "tools/call", `{"resultType":"task","taskId":"t","content":["` + strings.Repeat("x", 20) + `"]}`},
		{"the smaller limit", rules(`{"action":"max_bytes","bytes":1000}`, `{"action":"max_bytes","bytes":13}`), "tools/call", `{"content":[]}`},
		{"rules that are lost", results.Rules{Lost: true}, "tools/call", `{"content":[]}`},
	} {
		if got, err := apply(t, test.rules, test.method, test.result); err == nil {
			t.Errorf("%s: %s", test.name, got)
		} else if strings.Contains(err.Error(), "1234") {
			t.Errorf("%s: it is told: %v", test.name, err)
		}
	}
}

// A result may be as large as a message, and is changed within its size.
func TestHuge(t *testing.T) {
	var people strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&people, `{"ssn":"%d","name":"a%d"},`, i, i)
	}
	got, err := apply(t, rules(deepSSN), "tools/call", text(`{"people":[`+people.String()+`0]}`))
	if err != nil || strings.Contains(got, "ssn") || strings.Count(got, "name") != 50_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// An error of the server is masked. Paths do not apply to it.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules results.Rules
		is    string
		want  string // "" is withheld
	}{
		{"masked", rules(cards), `{"code":-32602,"message":"not 1234-5678","data":{"a":"1234-5678"}}`, `{"code":-32602,"data":{"a":"***"},"message":"not ***"}`},
		{"redacted", rules(ssn), `{"code":-32602,"message":"not 1"}`, ""},
		{"masked at a path", rules(note), `{"code":-32602,"message":"not 1"}`, ""},
		{"with more", rules(cards), `{"code":1,"message":"a","cause":"1234-5678"}`, ""},
		{"one that leads to a page", rules(ssn), `{"code":-32042,"message":"log in","data":{"elicitations":[]}}`, `{"code":-32042,"message":"log in","data":{"elicitations":[]}}`},
		{"too large", rules(`{"action":"max_bytes","bytes":10}`), `{"code":-32602,"message":"not 1"}`, ""},
	} {
		m, err := wire.ParseReply([]byte(`{"jsonrpc":"2.0","id":1,"error":` + test.is + `}`))
		if err != nil {
			t.Fatal(err)
		}
		out, err := test.rules.Apply("tools/call", m, nil)
		switch {
		case test.want == "" && err == nil:
			t.Errorf("%s: %s", test.name, out.Error)
		case test.want != "" && (err != nil || string(out.Error) != test.want):
			t.Errorf("%s: %v, %v", test.name, out, err)
		}
	}
}

// Structured content that was changed has to fit the output schema, and only that.
func TestOutputSchema(t *testing.T) {
	invalid := func(jsontext.Value) error { return errors.New("ssn is missing") }
	m := &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"structuredContent":{"ssn":1}}`)}
	if out, err := rules(ssn).Apply("tools/call", m, invalid); err == nil {
		t.Errorf("%s", out.Result)
	}
	if _, err := rules(cards).Apply("tools/call", m, invalid); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

// An obligation that cannot be carried out on any result of the method is known
// before the call runs.
func TestCheck(t *testing.T) {
	for properties, methods := range map[string]map[string]bool{
		ssn:                                 {"tools/call": true, "resources/read": true, "prompts/get": true, "tasks/result": true, "tasks/get": true, "tools/list": false, "completion/complete": false, "initialize": false},
		`{"action":"max_bytes","bytes":1}`:  {"tools/call": true, "tools/list": true, "completion/complete": true},
		`{"action":"label","labels":["a"]}`: {"tools/call": true, "initialize": true},
		`{"action":"redact"}`:               {"tools/call": false},
		`{"action":"watermark"}`:            {"tools/call": false},
		`{"action":"approval_required"}`:    {"tools/call": false},
	} {
		for method, want := range methods {
			if err := results.Check(method, jsontext.Value(properties)); (err == nil) != want {
				t.Errorf("%s of %s: %v", properties, method, err)
			}
		}
	}
}

// Whatever a text is, what is left of it has the redacted member for no parser: not
// for one that is case-blind, nor for one that takes the first or the last of two.
func FuzzRedact(f *testing.F) {
	for _, text := range []string{
		`{"ssn":1,"a":[{"ssn":2}]}`, `{"SSN":1}`, `{"\u0073sn":1,"n":1e400}`, `{"a":1,"a":{"ssn":1}}`, `[{"ssn":1}]`, `{"ssn":1}{}`, `{"ſsn":1}`, "{\"ssn\\u0000\":1}", `x`, `{"a":NaN}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, plain string) {
		quoted, err := jsontext.AppendQuote(nil, plain)
		if err != nil {
			return
		}
		m := &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"content":[{"type":"text","text":` + string(quoted) + `}]}`)}
		out, err := rules(ssn).Apply("tools/call", m, nil)
		if err != nil {
			return
		}
		var left struct {
			Content []struct{ Text string }
		}
		if err := json.Unmarshal(out.Result, &left); err != nil || len(left.Content) != 1 {
			t.Fatalf("%s: %v", out.Result, err)
		}
		text := left.Content[0].Text
		var blind struct{ SSN any } // encoding/json reads names without case
		var members map[string]any
		_ = json.Unmarshal([]byte(text), &blind) // arrays have no members
		_ = json.Unmarshal([]byte(text), &members)
		for name := range members {
			if strings.EqualFold(name, "ssn") {
				t.Errorf("%q is left of %q", text, plain)
			}
		}
		if blind.SSN != nil {
			t.Errorf("%q is left of %q", text, plain)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("%q is no JSON", text)
		}
	})
}
