package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A server asks its clients what the operator lets it, in whatever way it asks: by
// a request, by a result that wants another call, by an error.
func TestRequestPolicy(t *testing.T) {
	const (
		form   = `{"message":"x","requestedSchema":{}}`
		page   = `{"mode":"url","message":"x","url":"https://auth.example.com/a?b"}`
		others = `{"mode":"url","message":"x","url":"https://auth.example.com.evil.example/"}`
		hidden = `{"message":"x","url":"https://evil.example/"}` // of no mode that it says
	)
	for _, test := range []struct {
		settings, method, params string
		want                     bool
	}{
		{"", "elicitation/create", form, true},
		{"", "elicitation/create", others, true},
		{"", "sampling/createMessage", "{}", true},
		{"requests: []", "elicitation/create", form, false},
		{"requests: []", "ping", "", false},
		{"requests: [elicitation/create]", "elicitation/create", form, true},
		{"requests: [elicitation/create]", "elicitation/create", others, true},
		{"requests: [elicitation/create]", "sampling/createMessage", "{}", false},
		{"requests: [elicitation/create]", "Elicitation/create", form, false},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", form, true},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", page, true},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", others, false},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", hidden, false},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", strings.Replace(page, "https", "http", 1), false},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", strings.Replace(page, "auth.example.com", "auth.example.com@evil.example", 1), false},
		{`pages: ["https://auth.example.com"]`, "elicitation/create", strings.Replace(page, `"https://auth.example.com/a?b"`, "1", 1), false},
		{`pages: ["https://auth.example.com"]`, "roots/list", "", true},
		{`pages: []`, "elicitation/create", page, false},
		{"", "elicitation/create", `{"mode":"url","message":"x"}`, false}, // a client may read another member
		{`pages: ["https://auth.example.com"]`, "elicitation/create", `{"mode":"url","message":"x","url":""}`, false},
		{"", "elicitation/create", `{"mode":"app","message":"x"}`, false},
		{"", "elicitation/create", `{"mode":"form","message":"x","requestedSchema":{}}`, true},
	} {
		c := decoded(t, "servers:\n  - name: crm\n    "+test.settings+"\n")
		policy := &c.Servers[0].RequestPolicy
		var params jsontext.Value
		if test.params != "" {
			params = jsontext.Value(test.params)
		}
		if got := policy.allowsMethod(test.method, params); got != test.want {
			t.Errorf("%s: %s %s: %v", test.settings, test.method, test.params, got)
		}
		if params == nil {
			continue
		}
		for _, m := range []*wire.Message{
			{Result: fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{"a":{"method":"x/y"},"b":{"method":%q,"params":%s}}}`, test.method, params)},
			{Result: fmt.Appendf(nil, `{"inputRequests":{"b":{"method":%q,"params":%s}}}`, test.method, params)},
			{Error: fmt.Appendf(nil, `{"code":-32042,"message":"x","data":{"elicitations":[%s]}}`, params)},
			{Result: fmt.Appendf(nil, `{"status":"failed","error":{"code":-32042,"message":"x","data":{"elicitations":[%s]}}}`, params)},
		} {
			want := test.want
			if m.Error != nil || strings.HasPrefix(string(m.Result), `{"status"`) {
				want = policy.allowsMethod("elicitation/create", params)
			} else if policy.Requests != nil && strings.Contains(string(m.Result), "x/y") {
				want = false
			}
			if err := policy.checkResponse(m, nil); (err == nil) != want {
				t.Errorf("%s: %s%s: %v", test.settings, m.Result, m.Error, err)
			}
			if got := policy.allowsNotification(&wire.Message{Method: "notifications/tasks", Params: m.Result}); m.Result != nil && got != want {
				t.Errorf("%s: told %s: %v", test.settings, m.Result, got)
			}
		}
	}
	for _, code := range []string{"-32042.0", "-3.2042e4", "-32042E0"} { // numbers that a client takes for the code
		m := &wire.Message{Error: fmt.Appendf(nil, `{"code":%s,"message":"x","data":{"elicitations":[%s]}}`, code, others)}
		if err := (&requestPolicy{Pages: []string{"https://auth.example.com"}}).checkResponse(m, nil); err == nil {
			t.Errorf("an error of the code %s leads anywhere", code)
		}
	}
	for _, plain := range []string{`{"content":[]}`, `{}`, `{"tools":[]}`} {
		if err := (&requestPolicy{Requests: []string{}}).checkResponse(&wire.Message{Result: jsontext.Value(plain)}, nil); err != nil {
			t.Errorf("%s: %v", plain, err)
		}
	}
	for _, odd := range []string{`{"inputRequests":[]}`, `{"inputRequests":{"a":1}}`, `{"inputRequests":{"a":{"method":1}}}`} {
		if err := (&requestPolicy{}).checkResponse(&wire.Message{Result: jsontext.Value(odd)}, nil); err == nil {
			t.Errorf("%s is passed on", odd)
		}
	}
}

func decoded(t *testing.T, text string) *Config {
	t.Helper()
	document, err := yamldoc.Parse("gateway.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := NewConfig()
	if err := yamldoc.Errors(document.Settings(document.Decode(c), nil)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Where the PDP is asked, it is asked about every request that a response carries, in
// whatever way, and about none that the configuration does not allow. A notification
// that carries requests waits for the client to poll.
func TestAskRequests(t *testing.T) {
	const (
		inResult = `{"result":{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"},"a":{"method":"elicitation/create","params":{"message":"x"}}}}}`
		inTask   = `{"result":{"taskId":"t","status":"input_required","inputRequests":{"a":{"method":"roots/list"}}}}`
		inError  = `{"error":{"code":-32042,"message":"x","data":{"elicitations":[{"mode":"url","url":"https://a.example/","message":"x"}]}}}`
		inFailed = `{"result":{"taskId":"t","error":{"code":-32042,"message":"x","data":{"elicitations":[{"mode":"url","url":"https://a.example/","message":"x"}]}}}}`
		none     = `{"result":{"content":[]}}`
	)
	for _, test := range []struct {
		policy   requestPolicy
		response string
		want     string // asked
	}{
		{requestPolicy{Ask: true}, inResult, "elicitation/create roots/list"},
		{requestPolicy{Ask: true}, inTask, "roots/list"},
		{requestPolicy{Ask: true}, inError, "elicitation/create"},
		{requestPolicy{Ask: true}, inFailed, "elicitation/create"},
		{requestPolicy{Ask: true}, none, ""},
		{requestPolicy{}, inResult, ""},
		{requestPolicy{Ask: true, Requests: []string{"elicitation/create"}}, inResult, ""},
	} {
		m, err := wire.ParseReply([]byte(`{"jsonrpc":"2.0","id":1,` + test.response[1:]))
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		answer := func(no error) func(*wire.Message) error {
			return func(r *wire.Message) error {
				asked = append(asked, r.Method)
				return no
			}
		}
		_ = test.policy.checkResponse(m, answer(nil)) // without the PDP, the other tests say what it is
		if got := strings.Join(asked, " "); got != test.want {
			t.Errorf("%+v of %s: asked about %q", test.policy, test.response, got)
		}
		if no := errors.New("no"); test.want != "" && !errors.Is(test.policy.checkResponse(m, answer(no)), no) {
			t.Errorf("%+v: %s passes", test.policy, test.response)
		}
		if m.Result != nil && test.want != "" && test.policy.allowsNotification(&wire.Message{Method: "notifications/tasks", Params: m.Result}) {
			t.Errorf("%s passes as a notification", test.response)
		}
	}
	if (&requestPolicy{Ask: true}).allowsNotification(&wire.Message{Params: jsontext.Value(`{"progress":1}`)}) != true {
		t.Error("a notification without requests does not pass")
	}
}
