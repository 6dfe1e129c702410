package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A pdp answers every question alike, without a network.
type pdp struct {
	status int
	body   string
	takes  time.Duration // of the test's own clock
	fails  error
	asked  int
	sent   string
}

func (p *pdp) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked++
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.sent = string(body)
	if p.takes > 0 {
		select {
		case <-time.After(p.takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if p.fails != nil {
		return nil, p.fails
	}
	return &http.Response{
		StatusCode: p.status, Header: http.Header{"Content-Type": {"application/json"}, "Decision-Id": {"entry-1"}},
		Body: io.NopCloser(strings.NewReader(p.body)), Request: r,
	}, nil
}

var discard = slog.New(slog.DiscardHandler)

func gate(p *pdp, change func(*enforce.Config)) *enforce.Gate {
	cfg := enforce.Config{
		PDP: enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p, Timeout: 500 * time.Millisecond}}),
		Map: single, Log: discard,
	}
	if change != nil {
		change(&cfg)
	}
	return enforce.New(cfg)
}

func single(c *enforce.Call) (*enforce.Question, error) {
	return &enforce.Question{Evaluation: &authzen.EvaluationRequest{
		Subject: c.Caller.Subject, Action: authzen.Action{Name: c.Message.Method}, Resource: authzen.Resource{Type: "tool", ID: c.Params.Name},
		Context: jsontext.Value(`{"gateway":{"call_digest":"forged","dialect":"default"},"supported_obligations":["everything"]}`),
	}}, nil
}

func batch(*enforce.Call) (*enforce.Question, error) {
	return &enforce.Question{Evaluations: &authzen.EvaluationsRequest{
		Subject: jsontext.Value(`{"type":"user","id":"alice"}`), Action: jsontext.Value(`{"name":"x"}`),
		Evaluations: []jsontext.Value{jsontext.Value(`{"resource":{"type":"a","id":"1"}}`), jsontext.Value(`{"resource":{"type":"a","id":"2"},"context":{"a":1}}`)},
	}}, nil
}

func call(t *testing.T, body string) *enforce.Call {
	t.Helper()
	m, err := wire.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	params, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	return &enforce.Call{Server: "files", Caller: &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: "alice"}}, Message: m, Params: params, RequestID: "r-1"}
}

const invoke = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm","arguments":{"path":"/"}}}`

// said is what a client is told.
type said struct {
	Code int          `json:"code"`
	Data enforce.Data `json:"data"`
}

func read(t *testing.T, v *enforce.Disposition) (s said) {
	t.Helper()
	if v.Answer == nil || v.Forward != nil {
		t.Fatalf("%+v", v)
	}
	if err := json.Unmarshal(v.Answer.Error, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Only a whole permit lets a call through (CZ-22, CZ-23, CZ-53 to CZ-59, CZ-78).
func TestJudge(t *testing.T) {
	const denied = `{"decision":false,"context":{"reason_user":{"en":"not today"}}}`
	notify := client.Obligations{"notification": func(context.Context, authzen.Obligation) error { return nil }}
	fails := client.Obligations{"notification": func(context.Context, authzen.Obligation) error { return errors.New("no") }}
	const obliged = `{"decision":true,"context":{"obligations":[{"id":"1","type":"notification","properties":{}}]}}`
	for _, test := range []struct {
		name        string
		status      int
		body        string
		mapping     func(*enforce.Call) (*enforce.Question, error)
		obligations client.Obligations
		code        int // 0 for a call that goes on
		reason      string
	}{
		{"a permit", 200, `{"decision":true}`, single, nil, 0, ""},
		{"a denial", 200, denied, single, nil, 4030, enforce.ReasonDenied},
		{"a permit in text", 200, `{"decision":"true"}`, single, nil, -32603, enforce.ReasonPDP},
		{"a permit that is 1", 200, `{"decision":1}`, single, nil, -32603, enforce.ReasonPDP},
		{"no decision", 200, `{}`, single, nil, -32603, enforce.ReasonPDP},
		{"a decision twice", 200, `{"decision":false,"decision":true}`, single, nil, -32603, enforce.ReasonPDP},
		{"nothing", 200, ``, single, nil, -32603, enforce.ReasonPDP},
		{"a permit with another status", 500, `{"decision":true}`, single, nil, -32603, enforce.ReasonPDP},
		{"a request that the PDP does not take", 400, `{}`, single, nil, -32602, enforce.ReasonMapping},
		{"a request that is too large for the PDP", 413, `{}`, single, nil, -32602, enforce.ReasonMapping},
		{"a credential that the PDP does not take", 401, `{}`, single, nil, -32603, enforce.ReasonPDP},
		{"a PDP with too much to do", 429, `{}`, single, nil, -32603, enforce.ReasonPDP},
		{"one of two questions that the PDP does not take", 200, `{"evaluations":[{"decision":true},{"decision":false,"context":{"error":{"status":400,"message":"no"}}}]}`, batch, nil, -32602, enforce.ReasonMapping},
		{"an obligation that is carried out", 200, obliged, single, notify, 0, ""},
		{"an obligation that fails", 200, obliged, single, fails, 4030, enforce.ReasonObligation},
		{"an obligation that nobody knows", 200, obliged, single, nil, 4030, enforce.ReasonObligation},
		{"two permits", 200, `{"evaluations":[{"decision":true},{"decision":true}]}`, batch, nil, 0, ""},
		{"a permit and a denial", 200, `{"evaluations":[{"decision":true},{"decision":false}]}`, batch, nil, 4030, enforce.ReasonDenied},
		{"one permit for two questions", 200, `{"evaluations":[{"decision":true}]}`, batch, nil, -32603, enforce.ReasonPDP},
		{"three permits for two questions", 200, `{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`, batch, nil, -32603, enforce.ReasonPDP},
		{"one decision for two questions", 200, `{"decision":true}`, batch, nil, -32603, enforce.ReasonPDP},
		{"nothing asked", 200, `{"decision":true}`, func(*enforce.Call) (*enforce.Question, error) { return new(enforce.Question), nil }, nil, -32603, enforce.ReasonPDP},
		{"an empty batch", 200, `{"decision":true}`, func(*enforce.Call) (*enforce.Question, error) {
			return &enforce.Question{Evaluations: new(authzen.EvaluationsRequest)}, nil
		}, nil, -32603, enforce.ReasonPDP},
		{"a method that nobody knows", 200, `{"decision":true}`, func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrUnknownMethod }, nil, -32601, enforce.ReasonUnknownMethod},
		{"a call that cannot be mapped", 200, `{"decision":true}`, func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrMapping }, nil, -32602, enforce.ReasonMapping},
		{"a bug", 200, `{"decision":true}`, func(*enforce.Call) (*enforce.Question, error) { panic("bug") }, nil, -32603, enforce.ReasonPDP},
		{"an older dialect", 200, denied, func(c *enforce.Call) (*enforce.Question, error) {
			q, err := single(c)
			q.OlderDialect = true
			return q, err
		}, nil, -32401, enforce.ReasonDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept := new(trail)
			p := &pdp{status: test.status, body: test.body}
			v := gate(p, func(c *enforce.Config) {
				c.Map, c.Obligations = test.mapping, test.obligations
				c.Trail = kept
			}).Judge(t.Context(), call(t, invoke))
			if test.code == 0 {
				if v.Forward == nil || v.Answer != nil || string(v.Forward.Encode()) != invoke {
					t.Fatalf("%+v", v)
				}
				if v.Finish(t.Context(), nil); strings.Join(*kept, ", ") != "intend entry-1, unknown" {
					t.Errorf("kept %q", *kept)
				}
				return
			}
			s := read(t, v)
			if s.Code != test.code || s.Data.Reason != test.reason || v.Status != 200 {
				t.Errorf("%+v, status %d", s, v.Status)
			}
			if s.Data.Reason == enforce.ReasonDenied && s.Data.EvaluationID != "entry-1" {
				t.Errorf("the denial does not say which: %+v", s)
			}
			if strings.Join(*kept, ", ") != "refuse "+test.reason {
				t.Errorf("kept %q", *kept)
			}
		})
	}
}

// Where it is concealed which tools there are, who may not call one is told what
// is told of a tool that there is not; why the trail says.
func TestConceal(t *testing.T) {
	const unknown = `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the tool is not known","data":{"reason_code":"unknown_tool"}}}`
	tool := func(err error) func(context.Context, *enforce.Call) (*enforce.Tool, error) {
		return func(context.Context, *enforce.Call) (*enforce.Tool, error) { return new(enforce.Tool), err }
	}
	refusal := func(code int, reason string) error {
		return &enforce.Refusal{Code: code, Status: 400, Message: "no", Data: enforce.Data{Reason: reason}}
	}
	unmapped := func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrMapping }
	for _, test := range []struct {
		name, decision, body string
		tool                 error
		mapping              func(*enforce.Call) (*enforce.Question, error)
		reason               string
		concealed            bool
	}{
		{"a denial", `{"decision":false,"context":{"reason_user":{"en":"not today"}}}`, invoke, nil, single, enforce.ReasonDenied, true},
		{"quarantine", `{"decision":true}`, invoke, refusal(4030, enforce.ReasonQuarantined), single, enforce.ReasonQuarantined, true},
		{"arguments", `{"decision":true}`, invoke, refusal(-32602, enforce.ReasonArguments), single, enforce.ReasonArguments, true},
		{"headers", `{"decision":true}`, invoke, refusal(-32020, enforce.ReasonInvalidMessage), single, enforce.ReasonInvalidMessage, true},
		{"a mapping", `{"decision":true}`, invoke, nil, unmapped, enforce.ReasonMapping, true},
		{"a tool that there is not", `{"decision":true}`, invoke, enforce.NoSuchTool(), single, enforce.ReasonUnknownTool, true},
		{"no decision", ``, invoke, nil, single, enforce.ReasonPDP, false},
		{"another method", `{"decision":false}`, strings.Replace(invoke, "tools/call", "prompts/get", 1), nil, single, enforce.ReasonDenied, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, conceal := range []bool{true, false} {
				kept := new(trail)
				v := gate(&pdp{status: 200, body: test.decision}, func(c *enforce.Config) {
					c.Map, c.Tools, c.Trail = test.mapping, enforcetest.Tools{Find: tool(test.tool)}, kept
					c.Denial = enforce.Denial{}
					c.Denial.Conceal = conceal
				}).Judge(t.Context(), call(t, test.body))
				is := v.Answer != nil && string(v.Answer.Encode()) == unknown && v.Status == 200
				if want := test.concealed && conceal || test.reason == enforce.ReasonUnknownTool; is != want {
					t.Errorf("concealed %v: %s, status %d", conceal, v.Answer.Encode(), v.Status)
				}
				if strings.Join(*kept, ", ") != "refuse "+test.reason {
					t.Errorf("kept %q", *kept)
				}
			}
		})
	}
}

// A fault of arguments is a result of the tool where the server's clients are told
// so, a fault of a task-augmented call or of anything else is an error, and what is
// concealed is told as of a tool that there is not.
func TestTells(t *testing.T) {
	const unknown = `{"content":[{"text":"the tool is not known\nList the tools, and call one of them.","type":"text"}],"isError":true}`
	arguments := &enforce.Refusal{Code: -32602, Message: "arguments/a no", Data: enforce.Data{Reason: enforce.ReasonArguments}, Advice: "Correct it."}
	task := strings.Replace(invoke, `"name"`, `"task":{},"name"`, 1)
	for _, test := range []struct {
		name, body string
		stateless  bool
		tool       error
		tells      bool
		conceal    bool
		want       string // of the result, "" for an error
	}{
		{"arguments", invoke, false, arguments, true, false, `{"content":[{"text":"arguments/a no\nCorrect it.","type":"text"}],"isError":true}`},
		{"without sessions", invoke, true, arguments, true, false, `{"content":[{"text":"arguments/a no\nCorrect it.","type":"text"}],"isError":true,"resultType":"complete"}`},
		{"a tool that there is not", invoke, false, enforce.NoSuchTool(), true, false, unknown},
		{"concealed", invoke, false, arguments, true, true, unknown},
		{"a denial, concealed", invoke, false, nil, true, true, unknown},
		{"a denial", invoke, false, nil, true, false, ""},
		{"another server", invoke, false, arguments, false, false, ""},
		{"a call that becomes a task", task, false, arguments, true, false, ""},
	} {
		c := call(t, test.body)
		c.Stateless = test.stateless
		v := gate(&pdp{status: 200, body: `{"decision":false}`}, func(c *enforce.Config) {
			c.Tools = enforcetest.Tools{Find: func(context.Context, *enforce.Call) (*enforce.Tool, error) { return new(enforce.Tool), test.tool }}
			c.Tells, c.Denial.Conceal = func(string) bool { return test.tells }, test.conceal
		}).Judge(t.Context(), c)
		if v.Answer == nil || string(v.Answer.Result) != test.want || (v.Answer.Error == nil) != (test.want != "") || v.Status != 200 {
			t.Errorf("%s: %s", test.name, v.Answer.Encode())
		}
	}
}

// The arguments that are decided on, bound and forwarded are those that the tool has
// coerced; the transport's headers are held against those that came.
func TestCoerced(t *testing.T) {
	p := &pdp{status: 200, body: `{"decision":true}`}
	var mapped, checked string
	c := call(t, invoke)
	c.CheckTool = func(*enforce.Tool) error {
		checked = string(c.Params.Arguments)
		return nil
	}
	v := gate(p, func(cfg *enforce.Config) {
		cfg.Tools = enforcetest.Tools{Find: func(context.Context, *enforce.Call) (*enforce.Tool, error) {
			return &enforce.Tool{Coerced: jsontext.Value(`{"path":1}`)}, nil
		}}
		cfg.Map = func(c *enforce.Call) (*enforce.Question, error) {
			mapped = string(c.Params.Arguments)
			return single(c)
		}
	}).Judge(t.Context(), c)
	if mapped != `{"path":1}` || checked != `{"path":"/"}` || v.Forward == nil || string(v.Forward.Params) != `{"arguments":{"path":1},"name":"rm"}` || string(c.Params.Arguments) != mapped {
		t.Errorf("mapped %s, checked %s, forwarded %s", mapped, checked, v.Forward.Encode())
	}
	coerced := p.sent
	gate(p, func(cfg *enforce.Config) {
		cfg.Tools = enforcetest.Tools{Find: func(context.Context, *enforce.Call) (*enforce.Tool, error) { return new(enforce.Tool), nil }}
	}).Judge(t.Context(), call(t, strings.Replace(invoke, `"/"`, `1`, 1)))
	if p.sent != coerced || !strings.Contains(coerced, `"call_digest":"sha256:`) {
		t.Errorf("an approval binds %s, and without coercion %s", coerced, p.sent)
	}
}

// The codes of the binding have a denial for a method without a mapping (CZ-64).
// Whatever the code, the PDP is not asked and the call goes nowhere.
func TestUnknownMethodOfBinding(t *testing.T) {
	for codes, want := range map[enforce.Codes]int{enforce.CodesCOAZ: -32001, enforce.CodesApplication: -32601, enforce.CodesMCPX: -32601, "": -32601} {
		p := &pdp{status: 200, body: `{"decision":true}`}
		v := gate(p, func(c *enforce.Config) {
			c.Map = func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrUnknownMethod }
			c.Denial = enforce.Denial{Codes: codes}
		}).Judge(t.Context(), call(t, invoke))
		if s := read(t, v); s.Code != want || s.Data.Reason != enforce.ReasonUnknownMethod || v.Forward != nil {
			t.Errorf("%q: %+v", codes, s)
		}
	}
}

// A trail keeps in a list what it is told.
type trail []string

func (k *trail) Begin(e *enforce.Entry) (string, func(string), error) {
	*k = append(*k, "intend "+strings.Join(e.Decisions, " "))
	return "entry", func(how string) { *k = append(*k, how) }, nil
}

func (k *trail) EndLate(id string, _ *enforce.Call, how string) { *k = append(*k, id+" "+how) }

func (k *trail) Refuse(_ *enforce.Entry, reason string) { *k = append(*k, "refuse "+reason) }

// A lost trail can keep nothing.
type lost struct{ trail }

func (*lost) Begin(*enforce.Entry) (string, func(string), error) {
	return "", nil, errors.New("disk full")
}

// What cannot be kept does not go on.
func TestJudgeUnkept(t *testing.T) {
	v := gate(&pdp{status: 200, body: `{"decision":true}`}, func(c *enforce.Config) { c.Trail = new(lost) }).Judge(t.Context(), call(t, invoke))
	if s := read(t, v); s.Code != -32603 {
		t.Errorf("%+v", s)
	}
}

// A decision covers the message that was evaluated: one that changes before it is
// forwarded goes no further (COAZ-MCP binding).
func TestChangedAfterDecision(t *testing.T) {
	for _, changes := range []bool{false, true} {
		p := &pdp{status: 200, body: `{"decision":true}`}
		var call *enforce.Call
		g := gate(p, func(c *enforce.Config) {
			c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: changing(func(r *http.Request) (*http.Response, error) {
				if changes {
					copy(call.Message.Params, strings.Replace(string(call.Message.Params), "dev", "prd", 1))
				}
				return p.RoundTrip(r)
			})}})
		})
		m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"to":"dev"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		params, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		call = &enforce.Call{Server: "s", Caller: &enforce.Caller{}, Message: m, Params: params}
		if v := g.Judge(t.Context(), call); (v.Forward != nil) == changes {
			t.Errorf("changes: %v: %+v", changes, v)
		}
	}
}

// A list is what its caller may see of it, or an error.
func TestFilter(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	listed := &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"tools":["all"]}`)}
	for _, test := range []struct {
		body   string
		fails  error
		want   string
		wanted bool
	}{
		{list, nil, `{"tools":[]}`, true},
		{list, errors.New("no"), `"reason_code":"upstream_unavailable"`, true},
		{invoke, nil, `{"tools":["all"]}`, false},
	} {
		asked := false
		v := gate(&pdp{status: 200, body: `{"decision":true}`}, func(c *enforce.Config) {
			c.Tools = enforcetest.Tools{Filter: func(context.Context, *enforce.Call, jsontext.Value, enforce.Ask) (jsontext.Value, error) {
				asked = true
				return jsontext.Value(`{"tools":[]}`), test.fails
			}}
		}).Judge(t.Context(), call(t, test.body))
		if got := string(v.Finish(t.Context(), listed).Encode()); !strings.Contains(got, test.want) || asked != test.wanted {
			t.Errorf("%s: %s", test.body, got)
		}
	}
}

// limits counts calls. It refuses the third.
type limits struct{ n int }

func (l *limits) Take(*enforce.Call) (func(), error) {
	if l.n == 2 {
		return nil, enforce.TooOften("the limit is 2 calls", 90*time.Second)
	}
	l.n++
	return func() { l.n-- }, nil
}

// A call counts for limits if it is forwarded. A call beyond a limit is refused
// before the PDP is asked.
func TestLimits(t *testing.T) {
	l, p := new(limits), &pdp{status: 200}
	g := gate(p, func(c *enforce.Config) { c.Limits = l })
	for _, body := range []string{`{"decision":true}`, `{"decision":false}`, `{}`, `{"decision":true}`} {
		p.body = body
		g.Judge(t.Context(), call(t, invoke))
	}
	if l.n != 2 {
		t.Errorf("%d calls are counted, want 2", l.n)
	}
	p.body, p.sent = `{"decision":true}`, ""
	v := g.Judge(t.Context(), call(t, invoke))
	if v.Forward != nil || !strings.Contains(string(v.Answer.Encode()), `"reason_code":"too_many_calls","retry_after":90`) || p.sent != "" {
		t.Errorf("%+v, and the PDP was asked %q", v, p.sent)
	}
}

// A notification that is refused goes nowhere, and is not answered (CZ-63).
func TestJudgeNotification(t *testing.T) {
	v := gate(&pdp{status: 200, body: `{"decision":false}`}, nil).Judge(t.Context(), call(t, strings.Replace(invoke, `"id":1,`, "", 1)))
	if v.Forward != nil || v.Answer != nil {
		t.Errorf("%+v", v)
	}
}

// What a mapping says of the call's digest and of what the gateway can do is not
// what counts.
func TestDeclared(t *testing.T) {
	p := &pdp{status: 200, body: `{"decision":true}`}
	gate(p, nil).Judge(t.Context(), call(t, invoke))
	if !strings.Contains(p.sent, `"supported_obligations":[]`) || !strings.Contains(p.sent, `"dialect":"default"`) ||
		strings.Contains(p.sent, "forged") || !strings.Contains(p.sent, `"call_digest":"sha256:`) {
		t.Errorf("sent %s", p.sent)
	}
	p.body = `{"evaluations":[{"decision":true},{"decision":true}]}`
	gate(p, func(c *enforce.Config) { c.Map = batch }).Judge(t.Context(), call(t, invoke))
	if strings.Count(p.sent, `"supported_obligations":[]`) != 2 || strings.Count(p.sent, `"call_digest":"sha256:`) != 2 ||
		!strings.Contains(p.sent, `"options":{"evaluations_semantic":"execute_all"}`) {
		t.Errorf("sent %s", p.sent)
	}
}

// A PDP that is slow or gone costs its deadline, and after that nothing; a
// denial is no failure; one question finds out that it is back.
func TestBreaker(t *testing.T) {
	for _, test := range []struct {
		name string
		pdp  pdp
		took time.Duration
	}{
		{"slow", pdp{status: 200, body: `{"decision":true}`, takes: time.Minute}, 500 * time.Millisecond},
		{"gone", pdp{fails: errors.New("connection refused")}, 0},
		{"failing", pdp{status: 503}, 0},
		{"lying", pdp{status: 200, body: `{"decision":"true"}`}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := test.pdp
				var states []string
				g := gate(&p, func(c *enforce.Config) {
					c.PDP = enforce.NewPDP(enforce.PDPConfig{
						URL: "https://pdp.example.com", Client: client.Config{Transport: &p, Timeout: 500 * time.Millisecond},
						Failures: 3, Pause: time.Second, OnBreak: func(_, s, _ string) { states = append(states, s) },
					})
				})
				judge := func() *enforce.Disposition { return g.Judge(t.Context(), call(t, invoke)) }
				for range 3 {
					begun := time.Now()
					if s := read(t, judge()); s.Data.Reason != enforce.ReasonPDP || s.Data.RetryAfter == 0 {
						t.Errorf("%+v", s)
					}
					if took := time.Since(begun); took != test.took {
						t.Errorf("refused after %s", took)
					}
				}
				begun, asked := time.Now(), p.asked
				for range 10 {
					read(t, judge())
				}
				if p.asked != asked || time.Since(begun) != 0 {
					t.Errorf("open, it is asked %d times", p.asked-asked)
				}
				time.Sleep(time.Second + 1) // of the test's own clock
				read(t, judge())
				if read(t, judge()); p.asked != asked+1 {
					t.Errorf("half open, it is asked %d times", p.asked-asked)
				}
				time.Sleep(2 * time.Second)
				p = pdp{status: 200, body: `{"decision":true}`}
				if v := judge(); v.Forward == nil {
					t.Errorf("it is back: %s", v.Answer.Error)
				}
				if got := strings.Join(states, " "); got != "open half-open open half-open closed" {
					t.Errorf("the breaker was %s", got)
				}
			})
		})
	}
}

// A tenant about which the PDP fails, because its policies do not load or it asks too
// often, does not stop calls of others, nor the gateway. Its own calls pause.
func TestBreakerOfTenant(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		var asked atomic.Int64 // about the tenant
		decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasPrefix(r.URL.Path, "/tenants/broken/") {
				asked.Add(1)
				w.WriteHeader(status)
				return
			}
			fmt.Fprint(w, `{"decision":true}`)
		}))
		defer decides.Close()
		var most []string
		p := enforce.NewPDP(enforce.PDPConfig{
			URL: decides.URL, Failures: 3, Pause: time.Hour,
			OnBreak: func(tenant, _, state string) { most = append(most, tenant+" "+state) },
		})
		g := gate(new(pdp), func(c *enforce.Config) { c.PDP = p })
		judge := func(tenant string) *enforce.Disposition {
			c := call(t, invoke)
			c.Caller.Tenant = tenant
			return g.Judge(t.Context(), c)
		}
		for range 10 {
			read(t, judge("broken"))
		}
		if v := judge("good"); v.Forward == nil {
			t.Errorf("%d: another tenant: %s", status, v.Answer.Error)
		}
		if n := asked.Load(); n != 3 {
			t.Errorf("%d: the PDP is asked %d times about the tenant, want 3", status, n)
		}
		if h := p.Health(); h.Err != nil || h.Breaker != "open" {
			t.Errorf("%d: %+v", status, h)
		}
		if got := strings.Join(most, ", "); got != "broken open" {
			t.Errorf("%d: %s", status, got)
		}
	}
}

// Neither a denial nor a request that the PDP refuses nor a client that goes
// away is a reason not to ask about other calls.
func TestBreakerStaysClosed(t *testing.T) {
	for _, p := range []*pdp{{status: 200, body: `{"decision":false}`}, {status: 400}, {status: 403}} {
		g := gate(p, nil)
		for range 20 {
			g.Judge(t.Context(), call(t, invoke))
		}
		if p.asked != 20 {
			t.Errorf("%d: asked %d times", p.status, p.asked)
		}
	}
	p := &pdp{takes: time.Minute}
	g := gate(p, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		g.Judge(gone, call(t, invoke))
	}
	p.takes, p.status, p.body = 0, 200, `{"decision":true}`
	if v := g.Judge(t.Context(), call(t, invoke)); v.Forward == nil {
		t.Errorf("%s", v.Answer.Error)
	}
}

// The PDP is asked within the trace of the call, if that is one.
func TestTrace(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var asked string
	g := gate(&pdp{}, func(c *enforce.Config) {
		c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: roundTrip(func(r *http.Request) { asked = r.Header.Get("Traceparent") })}})
	})
	of := call(t, invoke)
	of.TraceParent = enforce.TraceParent("", "nonsense", trace)
	g.Judge(t.Context(), of)
	if asked != trace || of.TraceID() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("asked within %q, kept as %q", asked, of.TraceID())
	}
}

// A caller of a tenant is decided on by the tenant's policies.
func TestTenant(t *testing.T) {
	var asked string
	g := gate(&pdp{}, func(c *enforce.Config) {
		c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: roundTrip(func(r *http.Request) { asked = r.URL.Path })}})
	})
	of := call(t, invoke)
	of.Caller.Tenant = "acme"
	g.Judge(t.Context(), of)
	if asked != "/tenants/acme/access/v1/evaluation" {
		t.Errorf("asked %s", asked)
	}
}

type roundTrip func(*http.Request)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, errors.New("nobody there")
}

// A changing transport does something on the way to the PDP.
type changing func(*http.Request) (*http.Response, error)

func (f changing) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
