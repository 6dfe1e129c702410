package enforce_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// told returns what a client is told, and the line of the program's log.
func told(t *testing.T, p *pdp, change func(*enforce.Config)) (message string, s said, line map[string]any) {
	t.Helper()
	var log bytes.Buffer
	v := gate(p, func(c *enforce.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
		if change != nil {
			change(c)
		}
	}).Judge(t.Context(), call(t, invoke))
	s = read(t, v)
	var answer struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(v.Answer.Error, &answer); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("the log has %d lines:\n%s", lines, &log)
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	return answer.Message, s, line
}

// What the PDP does not take is the fault of what was asked: its sentence says
// what, and the client is not told to try again. What it cannot answer now is an
// outage. Only the operator is told the rest.
func TestUndecided(t *testing.T) {
	const sentence = `{"error":{"status":400,"message":"/context/gateway is not declared by the schema"}}`
	const unaskable, none = "the policy decision point cannot take what the call asks", "the policy decision point gave no decision"
	for _, test := range []struct {
		status  int
		body    string
		message string
		reason  string
		again   int
		level   string
	}{
		{400, sentence, unaskable + ": /context/gateway is not declared by the schema", enforce.ReasonMapping, 0, "WARN"},
		{422, `{}`, unaskable, enforce.ReasonMapping, 0, "WARN"},
		{400, `{"error":{"message":"` + strings.Repeat("x", 4096) + `"}}`, unaskable, enforce.ReasonMapping, 0, "WARN"},
		{401, `{"error":{"message":"the key is not known"}}`, none, enforce.ReasonPDP, 0, "WARN"},
		{403, `{"error":{"message":"the caller has no tenant acme"}}`, none, enforce.ReasonPDP, 0, "WARN"},
		{404, `{"error":{"message":"there is no tenant acme"}}`, none, enforce.ReasonPDP, 0, "WARN"},
		{408, `{}`, none, enforce.ReasonPDP, 1, "WARN"},
		{429, `{}`, none, enforce.ReasonPDP, 1, "WARN"},
		{500, `{"error":{"message":"disk full"}}`, none, enforce.ReasonPDP, 1, "WARN"},
		{302, ``, none, enforce.ReasonPDP, 1, "WARN"},
	} {
		p := &pdp{status: test.status, body: test.body}
		message, s, line := told(t, p, nil)
		if message != test.message || s.Data.Reason != test.reason || s.Data.RetryAfter != test.again {
			t.Errorf("%d: %q %+v", test.status, message, s)
		}
		if p.asked != 1 {
			t.Errorf("%d: the PDP is asked %d times", test.status, p.asked)
		}
		if reason, _ := line["reason"].(string); line["level"] != test.level || !strings.Contains(reason, "the PDP answered") {
			t.Errorf("%d: the log says %v", test.status, line)
		}
	}
}

// Each denial is a line of the log, with what is about the call and the policies'
// words for the operator.
func TestDenialIsLogged(t *testing.T) {
	_, _, line := told(t, &pdp{status: 200, body: `{"decision":false,"context":{"reason_user":{"en":"not today"},"reason_admin":{"en":"the tool has no label\u202e"}}}`}, nil)
	delete(line, "time")
	want := map[string]any{
		"level": "INFO", "msg": "call refused", "server": "files", "method": "tools/call", "tool": "rm", "subject": "user::alice",
		"reason_code": "denied", "reason": `the tool has no label\u{202E}`, "decision_id": "entry-1", "request_id": "r-1",
	}
	for name, value := range want {
		if line[name] != value {
			t.Errorf("%s is %q, want %q", name, line[name], value)
		}
	}
	if len(line) != len(want) {
		t.Errorf("%v", line)
	}
}

// What a client writes cannot make a line of the log long, or look like another.
func TestLoggedNames(t *testing.T) {
	var log bytes.Buffer
	g := gate(&pdp{status: 200, body: `{"decision":false}`}, func(c *enforce.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	g.Judge(t.Context(), call(t, strings.Replace(invoke, `"rm"`, `"a\nlevel=INFO \u202e`+strings.Repeat("x", 4096)+`"`, 1)))
	if text := log.String(); strings.Count(text, "\n") != 1 || len(text) > 1024 || strings.Contains(text, "\u202e") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
