package decisionlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// carriers put a secret into a member of a context, in all ways in which it is
// to be known for one. The second is the text of a request's member by which it
// can get elsewhere.
var carriers = map[string]func(secret string) (member, text string){
	"a name": func(s string) (string, string) { return `"password":` + quote(s), s },
	"a plural": func(s string) (string, string) {
		return `"passwords":[` + quote(s) + `],"user_tokens":{"a":` + quote(s) + `}`, s
	},
	"a short name": func(s string) (string, string) {
		return `"pass":` + quote(s) + `,"dbPass":` + quote(s) + `,"db_pass":` + quote(s), s
	},
	"a value in the name":   func(s string) (string, string) { return `"token_value":` + quote(s), s },
	"a list of tokens":      func(s string) (string, string) { return `"tokens":` + quote(s), s },
	"a pair":                func(s string) (string, string) { return `"headers":[{"name":"password","value":` + quote(s) + `}]`, s },
	"a pair the other way":  func(s string) (string, string) { return `"e":{"value":{"deep":[` + quote(s) + `]},"key":"API-Key"}`, s },
	"JSON in a string":      within("body", func(s string) string { return `{"a":1,"password":` + quote(s) + `}` }),
	"JSON in JSON":          within("body", func(s string) string { return `{"b":` + quote(`{"api_key":`+quote(s)+`}`) + `}` }),
	"JSON in a text":        within("body", func(s string) string { return `POST / {"token" : ` + quote(s) + `}` }),
	"a pair in a string":    within("body", func(s string) string { return `[{"name":"secret","value":` + quote(s) + `}]` }),
	"a URL":                 within("dsn", func(s string) string { return "postgres://u:" + safe(s) + "@h/db?x=1" }),
	"a URL's password":      func(s string) (string, string) { return `"dsn":` + quote("postgres://u:"+safe(s)+"@h/db?x=1"), safe(s) },
	"a URL in a text":       within("dsn", func(s string) string { return "see redis://:" + safe(s) + "@h:1 now" }),
	"a token":               within("x", func(s string) string { return "eyJ" + safe(s) + "." + safe(s) + ".sig" }),
	"a token behind a word": within("x", func(s string) string { return "tok_eyJ" + safe(s) + "." + safe(s) + ".sig" }),
	"a token for a name": func(s string) (string, string) {
		token := "eyJ" + safe(s) + "." + safe(s) + "."
		return `"x":{` + quote(token) + `:{"y":1}}`, token
	},
	"a name that is escaped": func(s string) (string, string) { return `"p\u0061ssword":` + quote(s), s },
}

// within puts a text with the secret into a member.
func within(name string, text func(string) string) func(string) (string, string) {
	return func(secret string) (string, string) { return quote(name) + ":" + quote(text(secret)), text(secret) }
}

func quote(s string) string {
	text, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// safe is a secret without what may not be in a URL or a token.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, s)
}

// No export format has a secret of the request, wherever the entry copied it.
func TestNoFormatHasTheSecret(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	r := rand.New(rand.NewPCG(1, 2))
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var hidden []string
	for name, carry := range carriers {
		for n := range 20 {
			secret := "s"
			for range 12 + r.IntN(40) {
				secret += string(letters[r.IntN(len(letters))])
			}
			hidden = append(hidden, secret)
			if n%4 == 3 { // what has to be escaped
				secret += "\"\\\n\u00e9<" + secret
			}
			member, text := carry(secret)
			e := withRequest(`{"subject":{"type":"user","id":"alice"},"context":{"n":1,` + member + `}}`)
			if n%2 == 1 {
				e = withRequest(`{"evaluations":[{"context":{` + member + `}},{}]}`)
			}
			e.Kind, e.Tenant = decisionlog.KindEvaluation, name
			result := decisionlog.Result{
				Errors: []decisionlog.PolicyError{{Message: fmt.Sprintf("must not be %q", text)}, {Policy: "p", Message: "no attribute"}},
				Obligations: []authzen.Obligation{
					{ID: "1", Type: "notification", Properties: jsontext.Value(`{"to":["ops"],"text":` + quote("with "+text+".") + `}`)},
					{ID: "2", Type: "custom"},
				},
			}
			shadow := result
			result.Shadow = &decisionlog.Shadow{Revision: "", Result: shadow}
			if e.Result = &result; n%2 == 1 {
				e.Kind, e.Result, e.Evaluations = decisionlog.KindEvaluations, nil, []decisionlog.Result{{}, result}
			}
			if n%5 == 0 {
				e.RequestID = "r-" + text
			}
			before, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, e)
			if after, err := json.Marshal(e); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s: the entry is changed, %v:\n%s\n%s", name, err, before, after)
			}
		}
	}
	wait(t, func() bool { return int(l.Head().Size) == len(hidden) })
	for _, format := range []string{decisionlog.FormatJSONL, decisionlog.FormatCSV, decisionlog.FormatOCSF} {
		var out bytes.Buffer
		encoder, err := decisionlog.NewEncoder(&out, format)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range selected(t, l.Reader, decisionlog.Filter{}) {
			out.Reset()
			if err := encoder.Encode(line); err != nil {
				t.Fatal(err)
			}
			if err := encoder.Flush(); err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(out.Bytes(), []byte(hidden[i])) {
				t.Fatalf("%s has %s: %s", format, hidden[i], &out)
			}
			if format == decisionlog.FormatJSONL {
				checkPointers(t, line)
			}
		}
	}
}

// checkPointers checks that each masked place is masked, and that other parts are kept.
func checkPointers(t *testing.T, line []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatal(err)
	}
	masked := v.(map[string]any)["masked"].([]any)
	if len(masked) == 0 {
		t.Errorf("nothing is masked: %s", line)
	}
	for _, pointer := range masked {
		at := v
		for token := range jsontext.Pointer(pointer.(string)).Tokens() {
			switch container := at.(type) {
			case map[string]any:
				at = container[token]
			case []any:
				var n int
				fmt.Sscan(token, &n)
				at = container[n]
			}
		}
		if text, ok := at.(string); !ok || !strings.HasPrefix(text, "masked:") {
			t.Errorf("%s is %v, not masked: %s", pointer, at, line)
		}
	}
	if !bytes.Contains(line, []byte("no attribute")) || !bytes.Contains(line, []byte(`"to":["ops"]`)) {
		t.Errorf("more is gone than has the secret: %s", line)
	}
}

// A token in the request id is masked; another id is not.
func TestRequestIDIsMasked(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for _, id := range []string{jwt, "tok_" + jwt, "https://u:hush@h/", "r-1", "https://h:1/x", "00-4bf92f-01"} {
		e := entry(0)
		e.RequestID = id
		mustAppend(t, l, e)
		all := lines(t, l.Reader)
		got := all[len(all)-1]
		want := strings.Contains(id, "eyJ") || strings.Contains(id, "hush")
		if masked := strings.HasPrefix(got.RequestID, "masked:"); masked != want || want != (len(got.Masked) == 1 && got.Masked[0] == "/request_id") || !want && got.RequestID != id {
			t.Errorf("%s is recorded as %s, masked %q", id, got.RequestID, got.Masked)
		}
	}
}

// An error of an item that quotes a masked number is masked.
func TestQuotedNumberIsMasked(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	e := withRequest(`{"evaluations":[{"context":{"token":1.234567,"max_tokens":4096}}]}`)
	e.Kind, e.Result = decisionlog.KindEvaluations, nil
	e.Evaluations = []decisionlog.Result{{Errors: []decisionlog.PolicyError{{Message: "/context/token must be a 64-bit integer: 1.234567"}}}}
	mustAppend(t, l, e)
	text := export(t, l.Reader)
	if bytes.Contains(text, []byte("1.234567")) || !bytes.Contains(text, []byte(`"/evaluations/0/errors/0/message"`)) || !bytes.Contains(text, []byte("4096")) {
		t.Errorf("%s", text)
	}
}

// Values that only resemble secrets are recorded.
func TestLookalikesAreNotMasked(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	requests := []string{
		`{"bypass":"a","compass":"b","boarding":{"trespass":1}}`,
		`{"max_tokens":512,"prompt_tokens":3}`,
		`{"url":"https://h:8080/a@b","mail":"mailto:u@h","git":"ssh://git@h/x","registry":"https://h:5000/@scope/pkg?x=y:z@w"}`,
		`{"action":{"name":"reset_password"},"note":"the \"password\" is not here"}`,
		`{"name":"password","title":"A form"}`,
		`{"name":"amount","value":"5"}`,
		`{"body":"{\"a\":[1,2,{\"b\":\"c\"}]}","odd":"{\"a\":"}`,
		`{"x":"eyJ","y":"eyJhbGci.x"}`,
	}
	for _, request := range requests {
		mustAppend(t, l, withRequest(request))
	}
	for i, got := range lines(t, l.Reader) {
		if got.Masked != nil || string(got.Request) != requests[i] {
			t.Errorf("%s is recorded as %s, masked %q", requests[i], got.Request, got.Masked)
		}
	}
}

// Encoding an entry without masked values allocates this much.
func TestEncodeAllocations(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	e := entry(1)
	e.RequestID = "4bf92f3577b34da6a3ce929d0e0e4736"
	e.Request = jsontext.Value(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"https://example.com/1"},"context":{"max_tokens":5}}`)
	if got := testing.AllocsPerRun(200, func() {
		if err := l.Encode(e); err != nil {
			t.Fatal(err)
		}
	}); got > 2 && !raceEnabled() {
		t.Errorf("%v allocations, want at most 2", got)
	}
}

// raceEnabled reports whether the race detector is on, under which pools drop items at random.
func raceEnabled() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}
