package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A call waits for people only where their approvals are all that it needs; what
// else there is to it refuses it (CZ-53). Items are
//
//	y  permitted
//	o  permitted, with an obligation
//	u  permitted, with one that nobody carries out
//	a  denied, until a person approves
//	n  denied
//	e  not decided, although there is something to approve
func TestDenials(t *testing.T) {
	const obliged = `{"decision":true,"context":{"obligations":[{"id":"1","type":%q,"properties":{}}]}}`
	const lifted = `{"decision":false,"context":{"reason_user":{"en":"ask first"},"access_request":{"template":"desk","expires_at":"2026-11-20T12:00:00Z"}%s}}`
	items := map[rune]string{
		'y': `{"decision":true}`,
		'o': fmt.Sprintf(obliged, "notification"),
		'u': fmt.Sprintf(obliged, "step_up"),
		'a': fmt.Sprintf(lifted, ""),
		'n': `{"decision":false,"context":{"reason_user":{"en":"never"}}}`,
		'e': fmt.Sprintf(lifted, `,"error":{"status":400,"message":"what is this"}`),
	}
	for _, test := range []struct {
		items   string
		waits   []int
		reason  string // of the refusal, or ""
		message string
		told    int // obligations that are carried out
	}{
		{"y", nil, "", "", 0},
		{"yo", nil, "", "", 1},
		{"oo", nil, "", "", 2},
		{"ou", nil, enforce.ReasonObligation, "", 1},
		{"a", []int{0}, "", "ask first", 0},
		{"ya", []int{1}, "", "ask first", 0},
		{"ay", []int{0}, "", "ask first", 0},
		{"aya", []int{0, 2}, "", "ask first", 0},
		{"oa", []int{1}, "", "ask first", 0}, // nothing is told of a call that does not go on
		{"an", nil, enforce.ReasonDenied, "never", 0},
		{"na", nil, enforce.ReasonDenied, "never", 0},
		{"on", nil, enforce.ReasonDenied, "never", 0},
		{"un", nil, enforce.ReasonDenied, "never", 0},
		{"e", nil, enforce.ReasonMapping, "what is this", 0},
		{"ae", nil, enforce.ReasonMapping, "what is this", 0},
		{"au", nil, enforce.ReasonObligation, "", 0},
		{"ua", nil, enforce.ReasonObligation, "", 0},
	} {
		t.Run(test.items, func(t *testing.T) {
			var answers, asked []string
			for i, item := range test.items {
				answers = append(answers, items[item])
				asked = append(asked, fmt.Sprintf(`{"resource":{"type":"a","id":"%d"}}`, i))
			}
			p := &pdp{status: 200, body: `{"evaluations":[` + strings.Join(answers, ",") + `]}`}
			told := 0
			var waits *enforce.DeniedCall
			v := gate(p, func(c *enforce.Config) {
				c.Map = func(*enforce.Call) (*enforce.Question, error) {
					q := &authzen.EvaluationsRequest{Subject: jsontext.Value(`{"type":"user","id":"alice"}`), Action: jsontext.Value(`{"name":"x"}`)}
					for _, item := range asked {
						q.Evaluations = append(q.Evaluations, jsontext.Value(item))
					}
					return &enforce.Question{Evaluations: q}, nil
				}
				c.Obligations = client.Obligations{"notification": func(context.Context, authzen.Obligation) error {
					told++
					return nil
				}}
				c.Approvals = suspend(func(_ context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
					waits = d
					return nil, d.Refusal
				})
			}).Judge(t.Context(), call(t, invoke))
			if told != test.told {
				t.Errorf("%d obligations are carried out, want %d", told, test.told)
			}
			if test.waits == nil && test.reason == "" {
				if v.Forward == nil {
					t.Errorf("%+v", v)
				}
				return
			}
			if message := string(v.Answer.Error); !strings.Contains(message, test.message) {
				t.Errorf("the client is told %s", message)
			}
			if waits == nil {
				if s := read(t, v); test.waits != nil || s.Data.Reason != test.reason {
					t.Errorf("refused: %+v", s)
				}
				return
			}
			if !slices.Equal(waits.Denials, test.waits) || len(waits.Answer.Decisions) != len(test.items) {
				t.Errorf("waits for %v", waits.Denials)
			}
		})
	}
}

// A batch that is cut short is no answer, whatever there is to approve in it.
func TestDenialsCutShort(t *testing.T) {
	const denied = `{"decision":false,"context":{"access_request":{"template":"desk","expires_at":"2026-11-20T12:00:00Z"}}}`
	for answers, reason := range map[string]string{
		denied + "," + denied:                "", // the control
		denied:                               enforce.ReasonPDP,
		denied + "," + denied + "," + denied: enforce.ReasonPDP,
		denied + `,{"context":{"access_request":{}}}`: enforce.ReasonPDP,
		denied + `,null`: enforce.ReasonPDP,
	} {
		waits := false
		s := read(t, gate(&pdp{status: 200, body: `{"evaluations":[` + answers + `]}`}, func(c *enforce.Config) {
			c.Map = batch
			c.Approvals = suspend(func(_ context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
				waits = true
				return nil, d.Refusal
			})
		}).Judge(t.Context(), call(t, invoke)))
		if waits != (reason == "") || reason != "" && s.Data.Reason != reason {
			t.Errorf("%s: waits %v: %+v", answers, waits, s)
		}
	}
}

// An approval is claimed by the evaluation that it is of, and by no other (AR-154); the
// question that was asked stays as it was.
func TestApproved(t *testing.T) {
	const (
		alice = `{"type":"user","id":"alice"}`
		whole = `"subject":{"type":"user","id":"alice"},"action":{"name":"x"}`
		claim = `"approval":{"id":"%s","approved_until":"0001-01-01T00:00:00Z"}`
	)
	question := func() *enforce.Question {
		return &enforce.Question{Evaluations: &authzen.EvaluationsRequest{
			Subject: jsontext.Value(alice), Action: jsontext.Value(`{"name":"x"}`), Context: jsontext.Value(`{"c":1}`),
			Evaluations: []jsontext.Value{
				jsontext.Value(`{"resource":{"type":"a","id":"0"}}`),
				jsontext.Value(`{"resource":{"type":"a","id":"1"},"context":{"own":2}}`),
			},
		}}
	}
	for _, test := range []struct {
		approved []int
		items    [2]string
		err      error
	}{
		{nil, [2]string{`{"resource":{"type":"a","id":"0"}}`, `{"resource":{"type":"a","id":"1"},"context":{"own":2}}`}, nil},
		{[]int{0}, [2]string{`{` + whole + `,"resource":{"type":"a","id":"0"},"context":{` + fmt.Sprintf(claim, "0") + `,"c":1}}`, `{"resource":{"type":"a","id":"1"},"context":{"own":2}}`}, nil},
		{[]int{1}, [2]string{`{"resource":{"type":"a","id":"0"}}`, `{` + whole + `,"resource":{"type":"a","id":"1"},"context":{` + fmt.Sprintf(claim, "1") + `,"own":2}}`}, nil},
		{[]int{0, 1}, [2]string{`{` + whole + `,"resource":{"type":"a","id":"0"},"context":{` + fmt.Sprintf(claim, "0") + `,"c":1}}`, `{` + whole + `,"resource":{"type":"a","id":"1"},"context":{` + fmt.Sprintf(claim, "1") + `,"own":2}}`}, nil},
		{[]int{2}, [2]string{}, enforce.ErrOtherQuestion},
		{[]int{-1}, [2]string{}, enforce.ErrOtherQuestion},
	} {
		q, approvals := question(), enforce.Approvals{}
		for _, n := range test.approved {
			approvals[n] = &authzen.Approval{ID: fmt.Sprint(n)}
		}
		again, err := q.Approved(approvals)
		if !errors.Is(err, test.err) {
			t.Errorf("%v: %v", test.approved, err)
		}
		if err != nil {
			continue
		}
		for n, want := range test.items {
			if got := string(again.Evaluations.Evaluations[n]); got != want {
				t.Errorf("%v: item %d is %s, want %s", test.approved, n, got, want)
			}
			if got, was := string(q.Evaluations.Evaluations[n]), string(question().Evaluations.Evaluations[n]); got != was {
				t.Errorf("%v: the question is now %s", test.approved, got)
			}
		}
		if got := string(again.Evaluations.Context); got != `{"c":1}` {
			t.Errorf("%v: the default context is %s", test.approved, got)
		}
	}
	single := &enforce.Question{Evaluation: &authzen.EvaluationRequest{Context: jsontext.Value(`{}`)}}
	again, err := single.Approved(enforce.Approvals{0: {ID: "x"}})
	if err != nil || !strings.Contains(string(again.Evaluation.Context), `"x"`) || string(single.Evaluation.Context) != `{}` {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := single.Approved(enforce.Approvals{1: {ID: "x"}}); !errors.Is(err, enforce.ErrOtherQuestion) {
		t.Errorf("an evaluation that was not asked: %v", err)
	}
}

// suspend is an [enforce.Approver].
type suspend func(context.Context, *enforce.DeniedCall) (*enforce.Disposition, error)

func (s suspend) Suspend(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
	return s(ctx, d)
}
