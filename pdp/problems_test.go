package pdp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Each problem type of the profile has its status, and every other problem is about:blank (AR-138
// in conformance/testdata/rows.txt). testdata/access-request-*.txtar provokes those that need no
// other clock.
func TestProblems(t *testing.T) {
	const blank, page = "about:blank", "https://github.com/policy-service/policy-service/blob/main/docs/pep-developer.md#"
	for _, test := range []struct {
		err    error
		status int
		kind   string
	}{
		{approval.ErrNotRequestable, http.StatusBadRequest, "urn:openid:authzen:access-request:error:not_requestable"},
		{approval.ErrBinding, http.StatusBadRequest, "urn:openid:authzen:access-request:error:invalid_denial_binding"},
		{approval.ErrExpiredDenial, http.StatusGone, "urn:openid:authzen:access-request:error:expired_denial"},
		{approval.ErrDuplicate, http.StatusConflict, "urn:openid:authzen:access-request:error:duplicate_request"},
		{approval.ErrUnknownTask, http.StatusNotFound, "urn:openid:authzen:access-request:error:unknown_task"},
		{approval.ErrTaskExpired, http.StatusGone, "urn:openid:authzen:access-request:error:task_expired"},
		{approval.ErrTaskState, http.StatusConflict, "urn:openid:authzen:access-request:error:invalid_task_state"},
		{approval.ErrActor, http.StatusForbidden, blank},
		{approval.ErrIneligible, http.StatusForbidden, blank},
		{approval.ErrCallback, http.StatusBadRequest, page + "callback-not-allowed"},
		{approval.ErrUnsupported, http.StatusBadRequest, page + "unsupported-member"},
		{approval.ErrTooMany, http.StatusTooManyRequests, blank},
		{approval.ErrTooManyKept, http.StatusTooManyRequests, blank},
		{authzen.Invalid("/subject", "is required"), http.StatusBadRequest, blank},
		{decisionlog.ErrUnavailable, http.StatusServiceUnavailable, blank},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, blank},
		{errors.New("bolt: page 7"), http.StatusInternalServerError, blank},
	} {
		got := pdp.Problem(fmt.Errorf("secret cause: %w", test.err)).(authzen.Problem)
		if got.Status != test.status || got.Type != test.kind || got.Title != http.StatusText(test.status) {
			t.Errorf("%v: %+v", test.err, got)
		}
		if test.status >= 500 && (strings.Contains(got.Detail, "secret") || strings.Contains(got.Detail, "bolt")) {
			t.Errorf("%v: the cause is told: %+v", test.err, got)
		}
	}
}

// An unsupported member of a companion profile is a problem with a type, and never ignored (AR-162
// in conformance/testdata/rows.txt).
func TestCompanionMembers(t *testing.T) {
	none := start(t, pdp.Config{Policies: docs(`{}`)})
	some := start(t, pdp.Config{Policies: docs(`{}`), Callbacks: []string{"https://pep.example.com/done"}, CallbackSecret: []byte(secret)})
	const items = `"items":[{"resource":{"type":"doc","id":"a"},"action":{"name":"read"}}]`
	for _, test := range []struct {
		to               *service
		members, problem string
	}{
		{none, items + `,"partial":true`, authzen.ProblemUnsupportedMember},
		{none, items + `,"partial":{}`, authzen.ProblemUnsupportedMember},
		{none, items + `,"callback":{"endpoint":"https://pep.example.com/done"}`, authzen.ProblemUnsupportedMember},
		{some, items + `,"callback":{"endpoint":"https://other.example.com/done"}`, authzen.ProblemCallbackNotAllowed},
		{none, `"items":[],"resource":{"type":"doc","id":"a"},"action":{"name":"read"}`, "about:blank"},
	} {
		response, body := post(t, http.DefaultClient, test.to.main+authzen.PathRequests, `{"subject":{"type":"user","id":"alice"},"denial":{"expires_at":"2026-01-01T00:00:00Z"},`+test.members+`}`)
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"type":"`+test.problem+`"`) {
			t.Errorf("%s: %s, %s", test.members, response.Status, body)
		}
	}
}
