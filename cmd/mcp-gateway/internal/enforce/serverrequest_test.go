package enforce_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A request of a server goes on only with a whole permit. One that is refused is in
// the trail.
func TestServerRequests(t *testing.T) {
	mapped := func(of *enforce.Call, m *wire.Message) (*enforce.Question, error) {
		if m.Method != wire.MethodElicitation {
			return nil, enforce.ErrUnknownMethod
		}
		return &enforce.Question{Evaluation: &authzen.EvaluationRequest{
			Subject: of.Caller.Subject, Action: authzen.Action{Name: m.Method}, Resource: authzen.Resource{Type: "mcp_server", ID: of.Server},
		}}, nil
	}
	for _, test := range []struct {
		name, method string
		pdp          pdp
		reason       string // "" for a request that goes on
		asked        int
		labels       string
	}{
		{"a permit", wire.MethodElicitation, pdp{status: 200, body: `{"decision":true}`}, "", 1, ""},
		{"a denial", wire.MethodElicitation, pdp{status: 200, body: `{"decision":false}`}, enforce.ReasonDenied, 1, ""},
		{"one that a person could lift", wire.MethodElicitation, pdp{status: 200, body: `{"decision":false,"context":{"access_request":{"template":"desk"}}}`}, enforce.ReasonDenied, 1, ""},
		{"an unknown action", wire.MethodElicitation, pdp{status: 400, body: `{}`}, enforce.ReasonMapping, 1, ""},
		{"no PDP", wire.MethodElicitation, pdp{fails: errors.New("down")}, enforce.ReasonPDP, 1, ""},
		{"an obligation", wire.MethodElicitation, pdp{status: 200, body: `{"decision":true,"context":{"obligations":[{"id":"1","type":"step-up","properties":{}}]}}`}, enforce.ReasonObligation, 1, ""},
		{"a label", wire.MethodElicitation, pdp{status: 200, body: custom(`{"action":"label","labels":["asked"]}`)}, "", 1, "asked"},
		{"a bound", wire.MethodElicitation, pdp{status: 200, body: custom(`{"action":"max_bytes","bytes":100000}`)}, enforce.ReasonObligation, 1, ""},
		{"redaction", wire.MethodElicitation, pdp{status: 200, body: custom(redactSSN)}, enforce.ReasonObligation, 1, ""},
		{"another method", "secrets/list", pdp{status: 200, body: `{"decision":true}`}, enforce.ReasonUnknownMethod, 0, ""},
		{"a ping", "ping", pdp{}, "", 0, ""},
		{"the task of a former request", "tasks/result", pdp{}, "", 0, ""},
	} {
		kept, labels := new(trail), new(noted)
		g := gate(&test.pdp, func(c *enforce.Config) {
			c.Obligations = client.Obligations{"custom": enforce.OnResult}
			c.MapServerRequest, c.Trail, c.Labels, c.Approvals = mapped, kept, labels, nobody{t}
		})
		request := &wire.Message{ID: jsontext.Value("1"), Method: test.method, Params: jsontext.Value(`{"message":"?"}`)}
		err := g.AllowServerRequest(t.Context(), call(t, invoke), request)
		var refused *enforce.Refusal
		if errors.As(err, &refused) != (test.reason != "") || refused != nil && refused.Data.Reason != test.reason {
			t.Errorf("%s: %v", test.name, err)
		}
		if want := map[bool]string{true: "refuse " + test.reason}[test.reason != ""]; strings.Join(*kept, ", ") != want || test.pdp.asked != test.asked {
			t.Errorf("%s: kept %q, asked %d times", test.name, *kept, test.pdp.asked)
		}
		if strings.Join(labels.names, " ") != test.labels {
			t.Errorf("%s: labelled %q", test.name, labels.names)
		}
		if test.asked > 0 && !strings.Contains(test.pdp.sent, `"session":{"labels":[]}`) {
			t.Errorf("%s: %s", test.name, test.pdp.sent)
		}
	}
}

// Where nothing maps requests of servers, none goes on. In observe mode all do.
func TestServerRequestsUnmapped(t *testing.T) {
	request := &wire.Message{ID: jsontext.Value("1"), Method: wire.MethodElicitation}
	of := &enforce.Call{Server: "files", Caller: &enforce.Caller{}} // no call is known
	if err := gate(new(pdp), nil).AllowServerRequest(context.Background(), of, request); err == nil {
		t.Error("the request goes on")
	}
	observing := gate(&pdp{status: 200, body: `{"decision":false}`}, func(c *enforce.Config) { c.Observes = func(server string) bool { return server == "files" } })
	if err := observing.AllowServerRequest(context.Background(), of, request); err != nil {
		t.Error(err)
	}
}
