package wire_test

import (
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// The capability that a call presents, and all else of _meta that is for the gateway, go
// no further.
func TestTakeCapability(t *testing.T) {
	const key = `"io.github.policy-service/capability"`
	for _, c := range []struct{ method, params, id, rest string }{
		{"tools/call", `{"name":"a"}`, "", `{"name":"a"}`},
		{"tools/call", `{"name":"a","arguments":{"capability":"x"}}`, "", `{"name":"a","arguments":{"capability":"x"}}`},
		{"tools/call", `{"name":"a","capability":"cap_1"}`, "cap_1", `{"name":"a"}`},
		{"tools/call", `{"name":"a","\u0063apability":"cap_1"}`, "cap_1", `{"name":"a"}`},
		{"tools/call", `{"_meta":{` + key + `:"cap_1"},"name":"a"}`, "cap_1", `{"name":"a"}`},
		{"tools/call", `{"_meta":{"io.github.policy-\u0073ervice/capability":"cap_1","x":1},"name":"a"}`, "cap_1", `{"_meta":{"x":1},"name":"a"}`},
		{"tools/call", `{"_meta":{` + key + `:"cap_1"},"capability":"cap_1"}`, "cap_1", `{}`},
		{"tools/list", `{"_meta":{"io.github.policy-service/other":1,"x":1}}`, "", `{"_meta":{"x":1}}`},
		{"notifications/initialized", `{"_meta":{"io.github.policy-service/other":1}}`, "", `{}`},
		{"prompts/get", `{"name":"a","capability":"cap_1"}`, "", `{"name":"a","capability":"cap_1"}`}, // it is not defined there
	} {
		id, without, err := read(t, c.method, c.params).TakeCapability()
		if err != nil || id != c.id {
			t.Errorf("%s %s: %q %v", c.method, c.params, id, err)
			continue
		}
		if want := read(t, c.method, c.rest); string(without.Encode()) != string(want.Encode()) {
			t.Errorf("%s %s: %s", c.method, c.params, without.Encode())
		}
	}
	for _, c := range []struct{ method, params string }{
		{"tools/call", `{"capability":"cap_1","_meta":{` + key + `:"cap_2"}}`},
		{"tools/call", `{"capability":""}`},
		{"tools/call", `{"capability":null}`},
		{"tools/call", `{"capability":{"id":"cap_1"}}`},
		{"tools/call", `{"_meta":{` + key + `:1}}`},
		{"tools/list", `{"_meta":{` + key + `:"cap_1"}}`},
	} {
		if id, _, err := read(t, c.method, c.params).TakeCapability(); err == nil {
			t.Errorf("%s %s: %q", c.method, c.params, id)
		}
	}
}

func read(t *testing.T, method, params string) *wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
