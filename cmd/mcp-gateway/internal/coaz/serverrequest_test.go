package coaz_test

import (
	"errors"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A request of a server asks about the method at the server, with the call in whose
// course it came. Nothing that the server says is beside what is named here.
func TestMapServerRequest(t *testing.T) {
	m, err := coaz.New(map[string]coaz.Upstream{"crm": {Resource: "crm"}})
	if err != nil {
		t.Fatal(err)
	}
	caller := coaz.Call{Server: "crm", Subject: authzen.Subject{Type: "user", ID: "alice"}, Claims: map[string]any{"client_id": "desktop"}}

	for _, test := range []struct {
		request coaz.ServerRequest
		want    string // the context
	}{
		{coaz.ServerRequest{Method: "sampling/createMessage", Params: jsontext.Value(`{"messages":[],"session":{"labels":["x"]},"during":{"method":"forged"}}`), During: "tools/call", Name: "fetch"},
			`{"agent":"desktop","during":{"method":"tools/call","name":"fetch"},"gateway":{"dialect":"default","server":"crm","tool":"fetch"}}`},
		{coaz.ServerRequest{Method: "roots/list"}, `{"agent":"desktop","gateway":{"dialect":"default","server":"crm"}}`},
		{coaz.ServerRequest{Method: "elicitation/create", Params: jsontext.Value(`{"message":"?"}`), During: "prompts/get", Name: "p"},
			`{"agent":"desktop","during":{"method":"prompts/get","name":"p"},"gateway":{"dialect":"default","server":"crm"},"mode":"form"}`},
		{coaz.ServerRequest{Method: "elicitation/create", Params: jsontext.Value(`{"mode":"url","url":"https://a.example/b"}`), During: "initialize"},
			`{"agent":"desktop","during":{"method":"initialize"},"gateway":{"dialect":"default","server":"crm"},"mode":"url","url":"https://a.example/b"}`},
	} {
		got, err := m.MapServerRequest(caller, test.request)
		if err != nil {
			t.Errorf("%+v: %v", test.request, err)
			continue
		}
		if err := got.Context.Canonicalize(); err != nil || string(got.Context) != test.want || got.Action.Name != test.request.Method || got.Resource.Type != "mcp_server" || got.Resource.ID != "crm" || got.Subject.ID != "alice" {
			text, _ := json.Marshal(got)
			t.Errorf("%s, want the context %s", text, test.want)
		}
	}
	if _, err := m.MapServerRequest(caller, coaz.ServerRequest{Method: "tools/call"}); !errors.Is(err, coaz.ErrUnknownMethod) {
		t.Error(err)
	}
	var unmapped *coaz.MappingError
	if _, err := m.MapServerRequest(caller, coaz.ServerRequest{Method: "elicitation/create", Params: jsontext.Value(`{"mode":1}`)}); !errors.As(err, &unmapped) {
		t.Error(err)
	}
}
