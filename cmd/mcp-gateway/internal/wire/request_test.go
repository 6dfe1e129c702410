package wire_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Which request a call fulfils goes no further, and is said whole or not at all.
func TestTakeFulfilment(t *testing.T) {
	for _, c := range []struct{ method, params, whose, which, rest string }{
		{"tools/call", `{"name":"a"}`, "", "", `{"name":"a"}`},
		{"tools/call", `{"name":"a","arguments":{"onBehalfOf":"x","requestId":"y"}}`, "", "", `{"name":"a","arguments":{"onBehalfOf":"x","requestId":"y"}}`},
		{"tools/call", `{"name":"a","onBehalfOf":"x","requestId":"y"}`, "x", "y", `{"name":"a"}`},
		{"tools/call", `{"name":"a","\u006fnBehalfOf":"x","request\u0049d":"y"}`, "x", "y", `{"name":"a"}`},
		{"prompts/get", `{"name":"a","onBehalfOf":"x","requestId":"y"}`, "", "", `{"name":"a","onBehalfOf":"x","requestId":"y"}`}, // they are not defined there
	} {
		f, without, err := read(t, c.method, c.params).TakeFulfilment()
		if err != nil || (f == nil) != (c.which == "") || f != nil && (f.OnBehalfOf != c.whose || f.RequestID != c.which) {
			t.Errorf("%s %s: %+v %v", c.method, c.params, f, err)
			continue
		}
		if want := read(t, c.method, c.rest); string(without.Encode()) != string(want.Encode()) {
			t.Errorf("%s %s: %s", c.method, c.params, without.Encode())
		}
	}
	for _, params := range []string{
		`{"onBehalfOf":"x"}`, `{"requestId":"y"}`, `{"onBehalfOf":"","requestId":"y"}`, `{"onBehalfOf":"x","requestId":""}`, `{"onBehalfOf":null,"requestId":"y"}`,
		`{"onBehalfOf":"x","requestId":1}`, `{"onBehalfOf":["x"],"requestId":"y"}`,
	} {
		if f, _, err := read(t, "tools/call", params).TakeFulfilment(); err == nil {
			t.Errorf("%s: %+v", params, f)
		}
	}
}

// A request is the call that it asks for, without its reason.
func TestRequestedCall(t *testing.T) {
	m, reason, err := read(t, "tools/request", `{"name":"a","arguments":{"reason":"b"},"reason":"c"}`).RequestedCall()
	if want := read(t, "tools/call", `{"arguments":{"reason":"b"},"name":"a"}`); err != nil || reason != "c" || string(m.Encode()) != string(want.Encode()) {
		t.Errorf("%s %q %v", m.Encode(), reason, err)
	}
	for _, params := range []string{`{"reason":1}`, `{"reason":null}`, `{"reason":"` + strings.Repeat("r", 4097) + `"}`, `{"task":{}}`} {
		if _, _, err := read(t, "tools/request", params).RequestedCall(); err == nil {
			t.Error(params[:min(len(params), 40)])
		}
	}
}

// A server does not greet in the stead of the gateway.
func TestWithWelcome(t *testing.T) {
	const forged = `{"_meta":{"io.github.policy-service/welcome":{"tokenType":"full"},"x":1},"cacheScope":"public"}`
	for _, c := range []struct{ welcome, want string }{
		{"", `{"_meta":{"x":1},"cacheScope":"public"}`},
		{`{"tokenType":"restricted"}`, `{"_meta":{"io.github.policy-service/welcome":{"tokenType":"restricted"},"x":1},"cacheScope":"private"}`},
	} {
		var welcome jsontext.Value
		if c.welcome != "" {
			welcome = jsontext.Value(c.welcome)
		}
		if got, err := wire.WithWelcome(jsontext.Value(forged), welcome); err != nil || string(got) != c.want {
			t.Errorf("%s, %v", got, err)
		}
	}
}
