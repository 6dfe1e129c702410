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

// AR-138: each problem that the profile names, and its status; every other is
// about:blank. testdata/access-request-*.txtar provokes those that need no
// other clock.
func TestProblems(t *testing.T) {
	const blank = "about:blank"
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
		{approval.ErrCallback, http.StatusBadRequest, blank},
		{approval.ErrTooMany, http.StatusTooManyRequests, blank},
		{authzen.Invalid("/subject", "is required"), http.StatusBadRequest, blank},
		{decisionlog.ErrUnavailable, http.StatusServiceUnavailable, blank},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, blank},
		{errors.New("bolt: page 7"), http.StatusInternalServerError, blank},
	} {
		got := pdp.Problem(fmt.Errorf("secret cause: %w", test.err))
		if got.Status != test.status || got.Type != test.kind || got.Title != http.StatusText(test.status) {
			t.Errorf("%v: %+v", test.err, got)
		}
		if test.status >= 500 && (strings.Contains(got.Detail, "secret") || strings.Contains(got.Detail, "bolt")) {
			t.Errorf("%v: the cause is told: %+v", test.err, got)
		}
	}
}
