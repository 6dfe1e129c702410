package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The next action follows from next_action, from the reason, or from the access request, in this
// order (AR-155 in conformance/testdata/rows.txt).
func TestNextAction(t *testing.T) {
	for _, test := range []struct {
		action, reason string
		offered        bool
		want           string
	}{
		{"request", "", true, "request"},
		{"request", "", false, "none"},
		{"request", "policy_denied", true, "request"},
		{"retry", "", false, "retry"},
		{"retry", "policy_denied", true, "retry"},
		{"none", "approval_expired", true, "none"},
		{"", "approval_expired", true, "request"},
		{"", "approval_expired", false, "none"},
		{"", "out_of_scope", true, "request"},
		{"", "grant_pending", false, "retry"},
		{"", "policy_denied", true, "none"},
		{"", "approval_unverifiable", true, "none"},
		{"pray", "grant_pending", false, "retry"},
		{"pray", "stars", true, "request"},
		{"pray", "stars", false, "none"},
		{"", "", true, "request"},
		{"", "", false, "none"},
	} {
		denied := &authzen.Decision{Context: &authzen.DecisionContext{NextAction: test.action, Reason: test.reason}}
		if test.offered {
			denied.Context.AccessRequest = &authzen.AccessRequest{}
		}
		if got := client.Next(denied); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
		denied.Decision = true
		if got := client.Next(denied); got != "none" {
			t.Errorf("a permit with %+v: %s", test, got)
		}
	}
	if got := client.Next(&authzen.Decision{}); got != "none" {
		t.Errorf("a bare denial: %s", got)
	}
}

// answered returns the bodies in order and repeats the last, each after a delay.
type answered struct {
	bodies []string
	takes  time.Duration
	asked  []string
}

func (a *answered) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	time.Sleep(a.takes) // of the test's own clock
	a.asked = append(a.asked, string(body))
	answer := a.bodies[min(len(a.asked), len(a.bodies))-1]
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// An approval is used while it is valid. Retries are bounded, and nothing is permitted after its
// end (AR-154 to AR-156 in conformance/testdata/rows.txt).
func TestReevaluate(t *testing.T) {
	const (
		permit  = `{"decision":true,"context":{"approval":{"id":"apr_1","approved_until":"2026-04-30T20:25:00Z"}}}`
		retry   = `{"decision":false,"context":{"reason":"grant_pending","next_action":"retry","retry_after":5}}`
		refused = `{"decision":false,"context":{"reason":"approval_unverifiable","next_action":"none"}}`
	)
	for _, test := range []struct {
		name    string
		stands  time.Duration
		takes   time.Duration
		bodies  []string
		permits bool
		want    error
		asked   int
	}{
		{"a permit", time.Minute, 0, []string{permit}, true, nil, 1},
		{"a denial", time.Minute, 0, []string{refused}, false, nil, 1},
		{"a permit after a while", time.Minute, 0, []string{retry, retry, permit}, true, nil, 3},
		{"a denial after a while", time.Minute, 0, []string{retry, refused}, false, nil, 2},
		{"never", time.Minute, 0, []string{retry}, false, client.ErrNotApproved, 6},
		{"an approval that has ended", 0, 0, []string{permit}, false, client.ErrNotApproved, 0},
		{"an approval that ends on the way", time.Second, 2 * time.Second, []string{permit}, false, client.ErrNotApproved, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answered{bodies: test.bodies, takes: test.takes}
				pdp := client.New("https://pdp.example.com", client.Config{Transport: a, Timeout: time.Minute})
				until := time.Now().Add(test.stands)
				got, err := pdp.Reevaluate(t.Context(), request, &authzen.Approval{ID: "apr_1", ApprovedUntil: until})
				if !errors.Is(err, test.want) || (got != nil) != (err == nil) || got != nil && got.Decision != test.permits {
					t.Errorf("%+v, %v", got, err)
				}
				if len(a.asked) != test.asked {
					t.Errorf("asked %d times", len(a.asked))
				}
				for _, body := range a.asked {
					if !strings.Contains(body, `"approval":{"id":"apr_1"`) {
						t.Errorf("asked %s", body)
					}
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.New("https://pdp.example.com", client.Config{}).Reevaluate(ctx, request, &authzen.Approval{ID: "a", ApprovedUntil: time.Now().Add(time.Hour)}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
