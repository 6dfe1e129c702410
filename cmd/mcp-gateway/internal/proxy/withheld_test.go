package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

// An answer that cannot be passed on says that the call was carried out, and the
// trail knows how it ended.
func TestWithheldAnswers(t *testing.T) {
	const (
		jsonType, events = "application/json", "text/event-stream"
		large            = "the server carried out the call, but its answer is larger than max_reply: 1024 bytes"
		deep             = "the server carried out the call, but its answer nests deeper than 64 levels"
		failed           = "the server answered with an error, but its answer is larger than max_reply: 1024 bytes"
		none             = "the server did not answer"
	)
	huge, nested := strings.Repeat("x", 2000), strings.Repeat("[", 100)+strings.Repeat("]", 100)
	for _, test := range []struct {
		name, kind, body string
		status           int
		want, outcome    string
	}{
		{"a large result", jsonType, `{"jsonrpc":"2.0","id":7,"result":{"content":["` + huge + `"]}}`, 200, large, enforce.Succeeded},
		{"a large result, TypeScript", jsonType, `{"result":{"content":["` + huge + `"]},"jsonrpc":"2.0","id":7}`, 200, large, enforce.Succeeded},
		{"a large result on a stream", events, "data: {\"result\":{\"content\":[\"" + huge + "\"]},\"jsonrpc\":\"2.0\",\"id\":7}\n\n", 200, large, enforce.Succeeded},
		{"a large result on lines of a stream", events, "data: {\"result\":{\"content\":[\"\ndata: " + strings.Repeat("x\ndata: ", 1000) + "\"]},\"jsonrpc\":\"2.0\",\"id\":7}\n\n", 200, large, enforce.Succeeded},
		{"a large error", jsonType, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"` + huge + `"}}`, 200, failed, enforce.Failed},
		{"a deep result", jsonType, `{"jsonrpc":"2.0","id":7,"result":{"content":` + nested + `}}`, 200, deep, enforce.Succeeded},
		{"a deep result on a stream", events, "data: {\"result\":{\"content\":" + nested + "},\"jsonrpc\":\"2.0\",\"id\":7}\n\n", 200, deep, enforce.Succeeded},
		{"a large result of another call", jsonType, `{"jsonrpc":"2.0","id":8,"result":{"content":["` + huge + `"]}}`, 502, none, enforce.Unknown},
		{"a large notification", events, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"" + huge + "\"}}\n\n", 200, none, enforce.Unknown},
		{"a large page", jsonType, huge, 502, none, enforce.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept := new(outcomes)
			g := newGateway(t, newUpstream(t, answering(200, test.kind, test.body)), func(c *proxy.Config) {
				kept.keep(t)(c)
				c.MaxReply = 1024
			})
			status, _, body := g.send(t, post{body: legacy})
			if status != test.status || !strings.Contains(body, test.want) || strings.Contains(body, "xx") || strings.Contains(body, "[[") {
				t.Errorf("%d %s", status, body)
			}
			if (test.want != none) != strings.Contains(body, `"reason_code":"answer_withheld"`) || test.status == http.StatusBadGateway != (status == http.StatusBadGateway) {
				t.Errorf("%d %s", status, body)
			}
			if got := kept.take(); got != test.outcome {
				t.Errorf("the trail says %q, want %q", got, test.outcome)
			}
		})
	}
}
