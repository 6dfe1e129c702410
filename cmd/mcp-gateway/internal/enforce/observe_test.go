package enforce_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// observations is a trail that keeps the observations of forwarded calls.
type observations struct {
	enforce.NopTrail
	fails error
	seen  []*enforce.Observation
}

func (o *observations) Begin(e *enforce.Entry) (string, func(string), error) {
	o.seen = append(o.seen, e.Observed)
	return "id", func(string) {}, o.fails
}

// noApprovals are of a gate that must ask nobody.
type noApprovals struct{ t *testing.T }

func (n noApprovals) Suspend(context.Context, *enforce.DeniedCall) (*enforce.Disposition, error) {
	n.t.Error("a call in observe mode waits")
	return nil, errors.New("no")
}

// A call in observe mode is forwarded whatever the PDP answers, with the reason for
// which it would be refused. No obligation is carried out and nobody is asked.
func TestObserve(t *testing.T) {
	const requestable = `{"decision":false,"context":{"access_request":{"template":"t"}}}`
	for name, test := range map[string]struct {
		pdp  pdp
		map_ func(*enforce.Call) (*enforce.Question, error)
		want enforce.Observation
	}{
		"permit": {pdp: pdp{status: 200, body: `{"decision":true}`}},
		"deny": {
			pdp:  pdp{status: 200, body: `{"decision":false,"context":{"reason_admin":{"en":"closed"},"reason_user":{"en":"no"}}}`},
			want: enforce.Observation{Reason: enforce.ReasonDenied, Why: "closed"},
		},
		"a person may lift it": {
			pdp:  pdp{status: 200, body: requestable},
			want: enforce.Observation{Reason: enforce.ReasonPending, Why: "a person has to approve the call"},
		},
		"obligation": {
			pdp:  pdp{status: 200, body: `{"decision":true,"context":{"obligations":[{"id":"o","type":"notification","properties":{}}]}}`},
			want: enforce.Observation{NotCarriedOut: []string{"notification o"}},
		},
		"obligation of a denial": {
			pdp:  pdp{status: 200, body: `{"decision":false,"context":{"obligations":[{"id":"o","type":"notification","properties":{}}]}}`},
			want: enforce.Observation{Reason: enforce.ReasonDenied, Why: "access denied", NotCarriedOut: []string{"notification o"}},
		},
		"unknown obligation": {
			pdp: pdp{status: 200, body: `{"decision":true,"context":{"obligations":[{"id":"o","type":"other","properties":{}}]}}`},
			want: enforce.Observation{
				Reason: enforce.ReasonObligation, Why: `an obligation is not met: o: the gateway does not carry out the obligation "other"`, NotCarriedOut: []string{"other o"},
			},
		},
		"one denial in a batch": {
			pdp: pdp{status: 200, body: `{"evaluations":[{"decision":true},{"decision":false}]}`}, map_: batch,
			want: enforce.Observation{Reason: enforce.ReasonDenied, Why: "access denied"},
		},
		"no answer": {
			pdp:  pdp{fails: errors.New("down")},
			want: enforce.Observation{Reason: enforce.ReasonPDP, Why: "evaluate: Post \"https://pdp.example.com/access/v1/evaluation\": down"},
		},
		"not taken": {
			pdp:  pdp{status: 400, body: `{"error":{"status":400,"message":"odd"}}`},
			want: enforce.Observation{Reason: enforce.ReasonMapping},
		},
		"no mapping": {
			map_: func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrMapping },
			want: enforce.Observation{Reason: enforce.ReasonMapping, Why: "the call cannot be mapped"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kept := new(observations)
			observing := func(cfg *enforce.Config) {
				cfg.Observes, cfg.Trail, cfg.Approvals = func(server string) bool { return server == "files" }, kept, noApprovals{t}
				cfg.Obligations = client.Obligations{"notification": func(context.Context, authzen.Obligation) error {
					t.Error("an obligation is carried out")
					return nil
				}}
				if test.map_ != nil {
					cfg.Map = test.map_
				}
			}
			v := gate(&test.pdp, observing).Judge(t.Context(), call(t, invoke))
			if v.Forward == nil || len(kept.seen) != 1 {
				t.Fatalf("%+v: %v", v, kept.seen)
			}
			got := *kept.seen[0]
			if test.want.Why == "" {
				got.Why = ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			other := call(t, invoke)
			other.Server = "other"
			if name != "permit" && name != "a person may lift it" && name != "obligation" && name != "obligation of a denial" {
				if v := gate(&test.pdp, observing).Judge(t.Context(), other); v.Forward != nil {
					t.Errorf("a server that is not observed gets %+v", v)
				}
			}
		})
	}
}

// refusing are tools of which none may be called.
type refusing struct{ *enforce.Refusal }

func (refusing) CheckItem(*enforce.Call) error { return nil }

func (r refusing) FindTool(context.Context, *enforce.Call) (*enforce.Tool, error) {
	return nil, r.Refusal
}

func (r refusing) FilterList(context.Context, *enforce.Call, jsontext.Value, enforce.Ask) (jsontext.Value, error) {
	return nil, r.Refusal
}

func (r refusing) CheckOutput(string, string, jsontext.Value) error { return r.Refusal }

// moving maps a call, and changes its message.
func moving(c *enforce.Call) (*enforce.Question, error) {
	q, err := single(c)
	changed := *c.Message
	changed.Method = wire.MethodToolsList
	c.Message = &changed
	return q, err
}

// What is no decision refuses calls in observe mode, too.
func TestObserveRefuses(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		change func(*enforce.Config)
		body   string
		reason string
	}{
		"unknown method": {
			change: func(cfg *enforce.Config) {
				cfg.Map = func(*enforce.Call) (*enforce.Question, error) { return nil, enforce.ErrUnknownMethod }
			},
			reason: enforce.ReasonUnknownMethod,
		},
		"quarantine": {
			change: func(cfg *enforce.Config) {
				cfg.Tools = refusing{&enforce.Refusal{Message: "changed", Data: enforce.Data{Reason: enforce.ReasonQuarantined}}}
			},
			reason: enforce.ReasonQuarantined,
		},
		"number":                        {body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm","arguments":{"n":9007199254740993}}}`, reason: enforce.ReasonNumber},
		"undefined member":              {body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm","odd":1}}`, reason: enforce.ReasonInvalidMessage},
		"the client has gone":           {ctx: gone, reason: enforce.ReasonPDP},
		"the trail cannot be written":   {change: func(cfg *enforce.Config) { cfg.Trail = &observations{fails: errors.New("disk")} }, reason: enforce.ReasonPDP},
		"the message changed meanwhile": {change: func(cfg *enforce.Config) { cfg.Map = moving }, reason: enforce.ReasonPDP},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, body := test.ctx, test.body
			if ctx == nil {
				ctx = t.Context()
			}
			if body == "" {
				body = invoke
			}
			p := &pdp{status: 200, body: `{"decision":true}`}
			if ctx.Err() != nil {
				p.takes = time.Hour
			}
			g := gate(p, func(cfg *enforce.Config) {
				cfg.Observes = func(server string) bool { return server == "files" }
				if test.change != nil {
					test.change(cfg)
				}
			})
			if got := read(t, g.Judge(ctx, call(t, body))); got.Data.Reason != test.reason {
				t.Errorf("%+v", got)
			}
		})
	}
}
