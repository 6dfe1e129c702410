package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
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
		presented, without, err := read(t, c.method, c.params).TakeCapability()
		if err != nil || presented.Capability != c.id || presented.Proof != nil {
			t.Errorf("%s %s: %+v %v", c.method, c.params, presented, err)
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
		{"tools/call", `{"_meta":{` + key + `:{"capability":"cap_1","other":1}}}`},
		{"tools/call", `{"_meta":{` + key + `:{"proof":` + proof + `}}}`},
		{"tools/call", `{"capability":"cap_1","proof":"x"}`},
		{"tools/call", `{"capability":"cap_1","proof":null}`},
		{"tools/call", `{"capability":"cap_1","proof":` + proof + `,"_meta":{` + key + `:{"capability":"cap_1","proof":` + otherProof + `}}}`},
		{"tools/call", `{"capability":"` + strings.Repeat("c", 8193) + `"}`},
		{"tools/list", `{"_meta":{` + key + `:"cap_1"}}`},
	} {
		if presented, _, err := read(t, c.method, c.params).TakeCapability(); err == nil {
			t.Errorf("%s %s: %+v", c.method, c.params, presented)
		}
	}
}

const (
	proof      = `{"timestamp":"t","nonce":"n","signature":"s"}`
	otherProof = `{"timestamp":"t","nonce":"m","signature":"s"}`
)

// A proof goes no further either, wherever it is.
func TestTakeProof(t *testing.T) {
	const key = `"io.github.policy-service/capability"`
	for _, params := range []string{
		`{"name":"a","capability":"cap_1","proof":` + proof + `}`,
		`{"name":"a","_meta":{` + key + `:{"capability":"cap_1","proof":` + proof + `}}}`,
		`{"name":"a","capability":"cap_1","_meta":{` + key + `:{"capability":"cap_1","proof":` + proof + `}}}`,
		`{"name":"a","capability":"cap_1","proof":` + proof + `,"_meta":{` + key + `:"cap_1"}}`,
	} {
		presented, without, err := read(t, "tools/call", params).TakeCapability()
		if err != nil || presented.Capability != "cap_1" || string(presented.Proof) != `{"nonce":"n","signature":"s","timestamp":"t"}` {
			t.Errorf("%s: %+v %v", params, presented, err)
			continue
		}
		if want := read(t, "tools/call", `{"name":"a"}`); string(without.Encode()) != string(want.Encode()) {
			t.Errorf("%s: %s", params, without.Encode())
		}
	}
	if _, m, err := read(t, "tools/call", `{"name":"a","proof":`+proof+`}`).TakeCapability(); err != nil || m.UndefinedParam() != "proof" {
		t.Errorf("a proof alone: %v", err)
	}
}

// A message presents in _meta what was taken out of it, wherever that was.
func TestWithCapability(t *testing.T) {
	const key = `"io.github.policy-service/capability"`
	for params, want := range map[string]string{
		`{"name":"a","capability":"cap_1","proof":` + proof + `}`: `{"_meta":{` + key + `:{"capability":"cap_1","proof":` + proof + `}},"name":"a"}`,
		`{"name":"a","_meta":{"x":1,` + key + `:"cap_1"}}`:        `{"_meta":{"x":1,` + key + `:{"capability":"cap_1"}},"name":"a"}`,
		`{"capability":"a.b.c","_meta":null}`:                     `{"_meta":{` + key + `:{"capability":"a.b.c"}}}`,
	} {
		presented, without, err := read(t, "tools/call", params).TakeCapability()
		if err != nil {
			t.Fatal(err)
		}
		with, err := without.WithCapability(presented)
		if err != nil || !jsonobject.Equal(with.Params, jsontext.Value(want)) {
			t.Errorf("%s: %s %v", params, with.Encode(), err)
		}
		if bytes.Contains(without.Encode(), []byte(presented.Capability)) {
			t.Errorf("%s: %s", params, without.Encode())
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
