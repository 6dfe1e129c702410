package wire_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A server cannot say anything under a name that a parser which ignores case
// takes for one of the protocol, except in content.
func TestReplyNames(t *testing.T) {
	for _, test := range []struct {
		name, reply string
		refused     string // the name
	}{
		{"requests of another case", `"result":{"resultType":"input_required","InputRequests":{"x":{"method":"elicitation/create"}}}`, "InputRequests"},
		{"a page of another case in a request", `"result":{"inputRequests":{"x":{"method":"elicitation/create","params":{"mode":"url","Url":"https://evil.example"}}}}`, "Url"},
		{"a page beside a page", `"result":{"inputRequests":{"x":{"method":"elicitation/create","params":{"mode":"url","url":"https://auth.example","URL":"https://evil.example"}}}}`, "URL"},
		{"a case beyond ASCII", `"result":{"ta\u017fkId":"1"}`, "ta\u017fkId"},
		{"a name that the server has chosen hides nothing", `"result":{"inputRequests":{"content":{"Method":"elicitation/create"}}}`, "Method"},
		{"in a row", `"result":{"tools":[{"name":"a"},{"Name":"b"}]}`, "Name"},
		{"in a task", `"result":{"TaskId":"1"}`, "TaskId"},
		{"a page in an error", `"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","Url":"https://evil.example"}]}}`, "Url"},
		{"a page in an error whose code is written otherwise", `"error":{"code":-32042.0,"message":"m","data":{"elicitations":[{"mode":"url","Url":"https://evil.example"}]}}`, "Url"},
		{"a page in the error of a task", `"result":{"status":"failed","error":{"code":-32042,"message":"m","data":{"Elicitations":[]}}}`, "Elicitations"},
		{"names that the server has chosen", `"result":{"inputRequests":{"URL":{"method":"roots/list"}}}`, ""},
		{"structured content", `"result":{"structuredContent":{"URL":"https://example.com","Method":"GET"}}`, ""},
		{"content", `"result":{"content":[{"type":"text","text":"x","Text":"y"}]}`, ""},
		{"a schema", `"result":{"tools":[{"name":"a","inputSchema":{"properties":{"Name":{"type":"string"},"URL":{}}}}]}`, ""},
		{"data of an error", `"error":{"code":-32000,"message":"m","data":{"Message":"x"}}`, ""},
		{"metadata of others", `"result":{"_meta":{"Name":"x"}}`, ""},
		{"names that the protocol does not have", `"result":{"Vendor":{"Thing":1}}`, ""},
	} {
		_, err := wire.ParseReply([]byte(`{"jsonrpc":"2.0","id":1,` + test.reply + `}`))
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: %v", test.name, err)
		}
	}
	const params = `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","Url":"https://evil.example"}}`
	if _, err := wire.ParseReply([]byte(params)); err == nil {
		t.Error("a request of the server may lead to a page that is not seen")
	}
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"Level":"x","Message":"y"}}}`
	if _, err := wire.ParseReply([]byte(log)); err != nil {
		t.Error(err)
	}
}

// Only members that the protocol defines for a method are those of its params.
func TestUndefinedParam(t *testing.T) {
	for _, test := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"a","arguments":{"onBehalfOf":"x"},"_meta":{"x":1},"task":{"ttl":1},"inputResponses":{},"requestState":"s"}`, ""},
		{"tools/call", `{"name":"a","onBehalfOf":"root-admin"}`, "onBehalfOf"},
		{"tools/call", `{"name":"a","Arguments":{}}`, "Arguments"},
		{"tools/call", `{"name":"a","task":{"ttl":1,"onBehalfOf":"x"}}`, "task/onBehalfOf"},
		{"tools/call", `{"name":"a","uri":"file:///etc/passwd"}`, "uri"},
		{"tools/list", `{"capability":"cap_1"}`, "capability"},
		{"ping", `{"a":1}`, "a"},
		{"notifications/initialized", `{"a":1}`, "a"},
		{"vendor/method", `{"a":1}`, ""},
		{"tools/list", ``, ""},
	} {
		m := wire.Message{Method: test.method, Params: jsontext.Value(test.params)}
		if test.params == "" {
			m.Params = nil
		}
		if got := m.UndefinedParam(); got != test.want {
			t.Errorf("%s %s: %q", test.method, test.params, got)
		}
	}
}

// The protocol's own metadata are of the message, all others of the call.
func TestSplitMeta(t *testing.T) {
	const params = `{"name":"a","_meta":{"progressToken":1,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","onBehalfOf":"x","vendor/id":"7","io.modelcontextprotocol/clientInfo":{}}}`
	message, call, err := wire.SplitMeta(jsontext.Value(params), []string{"vendor/id"})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{string(message), string(call)}
	want := []string{`{"io.modelcontextprotocol/clientInfo":{},"progressToken":1,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","vendor/id":"7"}`, `{"onBehalfOf":"x"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	const forms = `{"_meta":{"progressToken":{"onBehalfOf":"x"},"traceparent":"root","tracestate":"a=b\u0020c","baggage":"onBehalfOf=x"}}`
	if message, call, err = wire.SplitMeta(jsontext.Value(forms), nil); message != nil || err != nil || !strings.Contains(string(call), "traceparent") {
		t.Errorf("of another form than the protocol's: %s, %s, %v", message, call, err)
	}
	const traced = `{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}}`
	if message, call, err = wire.SplitMeta(jsontext.Value(traced), nil); message == nil || call != nil || err != nil {
		t.Errorf("a trace: %s, %s, %v", message, call, err)
	}
	if message, call, err = wire.SplitMeta(jsontext.Value(`{"_meta":{}}`), nil); message != nil || call != nil || err != nil {
		t.Errorf("an empty one: %s, %s, %v", message, call, err)
	}
}
