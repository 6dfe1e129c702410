package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// onResults are the obligations of a gateway.
func onResults(c *enforce.Config) {
	c.Obligations = client.Obligations{"custom": enforce.OnResult}
}

// custom is a permit with obligations of these properties.
func custom(properties ...string) string {
	var all []string
	for i, p := range properties {
		all = append(all, fmt.Sprintf(`{"id":"%d","type":"custom","properties":%s}`, i, p))
	}
	return `{"decision":true,"context":{"obligations":[` + strings.Join(all, ",") + `]}}`
}

const redactSSN = `{"action":"redact","paths":["/ssn"]}`

// The client gets a result with the obligations of all permits carried out, or an
// error that says that the call was carried out. The trail says so either way.
func TestResultObligations(t *testing.T) {
	const why = `"reason_code":"answer_withheld"`
	for _, test := range []struct {
		name, answer, response string
		mapping                func(*enforce.Call) (*enforce.Question, error)
		want                   string
	}{
		{"redacted", custom(redactSSN), `"result":{"structuredContent":{"ssn":1,"n":2}}`, single, `"result":{"structuredContent":{"n":2}}`},
		{"of two permits", `{"evaluations":[` + custom(redactSSN) + `,` + custom(`{"action":"redact","paths":["/n"]}`) + `]}`, `"result":{"structuredContent":{"ssn":1,"n":2}}`, batch, `"result":{"structuredContent":{}}`},
		{"withheld", custom(redactSSN), `"result":{"content":[{"type":"text","text":"ssn 1"}]}`, single,
			`"error":{"code":-32603,"message":"the server carried out the call, but an obligation of the permit could not be carried out on its answer: a text is no JSON object or array of at most 64 levels","data":{"reason_code":"answer_withheld"}}`},
		{"an error", custom(redactSSN), `"error":{"code":-32000,"message":"ssn 1"}`, single, `"message":"the server answered with an error, but an obligation of the permit could not be carried out on its answer: paths do not apply to errors","data":{` + why},
		{"too large", custom(`{"action":"max_bytes","bytes":20}`), `"result":{"structuredContent":{"a":1}}`, single, why},
		{"none", `{"decision":true}`, `"result":{"structuredContent":{"ssn":1}}`, single, `"result":{"structuredContent":{"ssn":1}}`},
	} {
		kept := new(trail)
		v := gate(&pdp{status: 200, body: test.answer}, func(c *enforce.Config) {
			onResults(c)
			c.Map, c.Trail = test.mapping, kept
		}).Judge(t.Context(), call(t, invoke))
		if v.Forward == nil {
			t.Errorf("%s: %s", test.name, v.Answer.Encode())
			continue
		}
		m, err := wire.ParseReply([]byte(`{"jsonrpc":"2.0","id":1,` + test.response + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(v.Finish(t.Context(), m).Encode()); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.name, got)
		}
		if want := "intend entry-1, " + map[bool]string{true: enforce.Failed, false: enforce.Succeeded}[m.Error != nil]; strings.Join(*kept, ", ") != want {
			t.Errorf("%s: kept %q", test.name, *kept)
		}
	}
}

// A call whose result nobody could change is refused before it runs, and so is one
// with an obligation that is not understood. No person is asked for it.
func TestResultObligationsRefused(t *testing.T) {
	requestable := `{"decision":false,"context":{"access_request":{"template":"desk","expires_at":"2026-11-20T12:00:00Z"}}}`
	list := strings.Replace(invoke, "tools/call", "completion/complete", 1)
	list = strings.Replace(list, `"params":{"name":"rm","arguments":{"path":"/"}}`, `"params":{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"a","value":"b"}}`, 1)
	for name, test := range map[string]struct {
		answer, body string
		mapping      func(*enforce.Call) (*enforce.Question, error)
	}{
		"another method":      {custom(redactSSN), list, single},
		"another action":      {custom(`{"action":"watermark"}`), invoke, single},
		"no action":           {custom(`{}`), invoke, single},
		"no paths":            {custom(`{"action":"redact"}`), invoke, single},
		"a bad pattern":       {custom(`{"action":"mask","pattern":"("}`), invoke, single},
		"one of two":          {custom(redactSSN, `{"action":"label"}`), invoke, single},
		"beside an approval":  {`{"evaluations":[` + custom(`{"action":"redact"}`) + `,` + requestable + `]}`, invoke, batch},
		"of a second permit":  {`{"evaluations":[{"decision":true},` + custom(`{"action":"redact"}`) + `]}`, invoke, batch},
		"with a member twice": {custom(`{"action":"max_bytes","bytes":1,"most":2}`), invoke, single},
	} {
		v := gate(&pdp{status: 200, body: test.answer}, func(c *enforce.Config) {
			onResults(c)
			c.Map, c.Approvals = test.mapping, nobody{t}
		}).Judge(t.Context(), call(t, test.body))
		if s := read(t, v); s.Data.Reason != enforce.ReasonObligation || s.Code != 4030 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// nobody is asked to approve.
type nobody struct{ t *testing.T }

func (n nobody) Suspend(context.Context, *enforce.DeniedCall) (*enforce.Disposition, error) {
	n.t.Error("a person is asked")
	return nil, errors.New("nobody")
}

// A permit that waits for an approval is a denial that people may lift, with what it
// takes to ask them; its other obligations are those of a denial.
func TestApprovalObligation(t *testing.T) {
	const offer = `{"template":"desk","expires_at":"2026-11-20T12:00:00Z","endpoint":"https://pdp.example.com/access/v1/requests"}`
	for _, test := range []struct {
		answer string
		asks   bool
	}{
		{custom(`{"action":"approval_required","template":"desk","evaluation_id":"entry-1","access_request":` + offer + `}`), true},
		{custom(redactSSN, `{"action":"approval_required","template":"desk","evaluation_id":"entry-1","access_request":`+offer+`}`), true},
		{custom(`{"action":"approval_required","template":"desk"}`), false},
	} {
		asked := new(suspended)
		v := gate(&pdp{status: 200, body: test.answer}, func(c *enforce.Config) {
			onResults(c)
			c.Approvals = asked
		}).Judge(t.Context(), call(t, invoke))
		switch {
		case v.Forward != nil:
			t.Errorf("%s: the call runs", test.answer)
		case test.asks != (asked.call != nil):
			t.Errorf("%s: asked %v", test.answer, asked.call)
		case test.asks:
			if c := asked.call.Answer.Decisions[0].Context; c.AccessRequest.Endpoint == "" || c.EvaluationID != "entry-1" || c.Reason != "approval_required" {
				t.Errorf("%+v", c)
			}
		}
	}
}

// A suspended call is one that people are asked about.
type suspended struct{ call *enforce.DeniedCall }

func (s *suspended) Suspend(_ context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
	s.call = d
	return &enforce.Disposition{Answer: &wire.Message{ID: d.Message.ID}}, nil
}

// Redacted structured content fits the output schema of the tool, or is withheld.
func TestOutputSchemaOfRedacted(t *testing.T) {
	for _, invalid := range []error{nil, errors.New("ssn is missing")} {
		var of string
		v := gate(&pdp{status: 200, body: custom(redactSSN)}, func(c *enforce.Config) {
			onResults(c)
			c.Tools = enforcetest.Tools{Output: func(server, tool string, structured jsontext.Value) error {
				of = server + " " + tool + " " + string(structured)
				return invalid
			}}
		}).Judge(t.Context(), call(t, invoke))
		got := v.Finish(t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"structuredContent":{"ssn":1}}`)})
		if of != "files rm {}" || (got.Result != nil) != (invalid == nil) || strings.Contains(string(got.Encode()), "ssn") {
			t.Errorf("%v: %s of %s", invalid, got.Encode(), of)
		}
	}
}

// A response that comes once the disposition is gone has the obligations that were
// kept for it.
func TestResumedObligations(t *testing.T) {
	for result, kept := range map[string]results.Rules{
		`"result":{"structuredContent":{}}`: {Custom: []jsontext.Value{jsontext.Value(redactSSN)}},
		`"reason_code":"answer_withheld"`:   {Lost: true},
	} {
		c := call(t, invoke)
		c.Results = kept
		got := gate(new(pdp), onResults).Resume(t.Context(), c, "", &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"structuredContent":{"ssn":1}}`)})
		if !strings.Contains(string(got.Encode()), result) {
			t.Errorf("%s, want %s", got.Encode(), result)
		}
	}
}

// noted are labels in memory.
type noted struct {
	names []string
	fails error
}

func (n *noted) Of(*enforce.Call) ([]string, error) {
	return append([]string{}, n.names...), n.fails
}

func (n *noted) Add(_ *enforce.Call, names []string) error {
	if n.fails == nil {
		n.names = append(n.names, names...)
	}
	return n.fails
}

// The caller has the labels of a result before it has the result, and every question
// after that says so: about calls, about each evaluation of a batch, and about the
// items of lists.
func TestLabels(t *testing.T) {
	const label = `{"action":"label","labels":["untrusted","web"]}`
	kept := new(noted)
	p := &pdp{status: 200, body: custom(label)}
	labelled := func(c *enforce.Config) {
		onResults(c)
		c.Labels = kept
	}
	v := gate(p, labelled).Judge(t.Context(), call(t, invoke))
	if !strings.Contains(p.sent, `"session":{"labels":[]}`) || kept.names != nil {
		t.Errorf("before: %s, %q", p.sent, kept.names)
	}
	response := &wire.Message{ID: jsontext.Value("1"), Error: jsontext.Value(`{"code":1,"message":"a page"}`)} // an error is content, too
	if got := v.Finish(t.Context(), response); got.Error == nil || strings.Join(kept.names, " ") != "untrusted web" {
		t.Errorf("%s, %q", got.Encode(), kept.names)
	}
	const want = `"session":{"labels":["untrusted","web"]}`
	gate(p, labelled).Judge(t.Context(), call(t, invoke))
	if !strings.Contains(p.sent, want) {
		t.Errorf("after: %s", p.sent)
	}
	p.body = `{"evaluations":[{"decision":true},{"decision":true}]}`
	gate(p, func(c *enforce.Config) {
		labelled(c)
		c.Map = func(c *enforce.Call) (*enforce.Question, error) {
			q, err := batch(c)
			q.Evaluations.Evaluations[1] = jsontext.Value(`{"context":{"session":{"labels":["forged"]}}}`)
			return q, err
		}
	}).Judge(t.Context(), call(t, invoke))
	if strings.Count(p.sent, want) != 2 || strings.Contains(p.sent, "forged") {
		t.Errorf("a batch: %s", p.sent)
	}
	asked := ""
	p.body = `{"decision":true}`
	v = gate(p, func(c *enforce.Config) {
		labelled(c)
		c.Tools = enforcetest.Tools{Filter: func(ctx context.Context, _ *enforce.Call, result jsontext.Value, ask enforce.Ask) (jsontext.Value, error) {
			p.body = `{"evaluations":[{"decision":true}]}`
			_, err := ask(ctx, &authzen.EvaluationsRequest{Evaluations: []jsontext.Value{jsontext.Value(`{"resource":{"type":"tool","id":"a"}}`)}})
			asked = p.sent
			return result, err
		}}
	}).Judge(t.Context(), call(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if v.Finish(t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"tools":[]}`)}); !strings.Contains(asked, want) {
		t.Errorf("a list: %s", asked)
	}
}

// In observe mode the result stays as it is, and gives its labels: decisions on calls
// to other servers depend on them.
func TestLabelsOfObserved(t *testing.T) {
	kept := new(noted)
	p := &pdp{status: 200, body: custom(redactSSN, `{"action":"label","labels":["untrusted"]}`, `{"action":"watermark"}`)}
	v := gate(p, func(c *enforce.Config) {
		onResults(c)
		c.Labels, c.Observes = kept, func(server string) bool { return server == "files" }
	}).Judge(t.Context(), call(t, invoke))
	got := string(v.Finish(t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"structuredContent":{"ssn":1}}`)}).Encode())
	if !strings.Contains(got, `"ssn":1`) || strings.Join(kept.names, " ") != "untrusted" {
		t.Errorf("%s, %q", got, kept.names)
	}
}

// A label that cannot be kept withholds the result, and one that cannot be read
// refuses the call.
func TestLabelsFail(t *testing.T) {
	const label = `{"action":"label","labels":["untrusted"]}`
	kept := new(noted)
	for name, labels := range map[string]enforce.Labels{"none": nil, "failing": kept} {
		kept.fails = nil
		p := &pdp{status: 200, body: custom(label)}
		g := gate(p, func(c *enforce.Config) {
			onResults(c)
			c.Labels = labels
		})
		v := g.Judge(t.Context(), call(t, invoke))
		kept.fails = errors.New("the disk is full")
		got := string(v.Finish(t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"content":[]}`)}).Encode())
		if !strings.Contains(got, "answer_withheld") || strings.Contains(got, "disk") {
			t.Errorf("%s: %s", name, got)
		}
		if labels == nil {
			continue
		}
		if asked := p.asked; read(t, g.Judge(t.Context(), call(t, invoke))).Code != -32603 || p.asked != asked {
			t.Errorf("%s: a call goes on", name)
		}
	}
}
