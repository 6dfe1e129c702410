package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// errContentType rejects a body that is not declared as JSON. AuthZEN requires status 400 where
	// HTTP would suggest 415.
	errContentType = errors.New("the Content-Type must be application/json")
	// errCharset rejects a body in a character set other than UTF-8 (RFC 8259, section 8.1). An
	// intermediary might decode the body in that character set.
	errCharset = errors.New("the charset of the Content-Type must be utf-8")
	// errEncoding rejects a compressed body, because the limit on bytes would not bound its
	// decompressed size.
	errEncoding = errors.New("the body must not be compressed")
	// errBody rejects a body that is incomplete, framed wrongly or too slow.
	errBody = errors.New("the body is incomplete or arrived too late")
)

// retryAfter is the value of Retry-After, in seconds, for a temporary failure.
const retryAfter = "1"

// describe returns the error that a PEP receives. The cause of a server error appears only in the
// service's own log.
func describe(err error) *authzen.Error {
	var invalid *authzen.ValidationError
	var tooLarge *http.MaxBytesError
	var routing *echo.HTTPError
	switch {
	case errors.Is(err, admission.ErrDeadline):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: admission.ErrDeadline.Error()}
	case errors.As(err, &invalid):
		return &authzen.Error{Status: http.StatusBadRequest, Message: invalid.Error()}
	case errors.As(err, &tooLarge):
		return &authzen.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	case errors.As(err, &routing):
		return &authzen.Error{Status: routing.Code, Message: http.StatusText(routing.Code)}
	case errors.Is(err, snapshot.ErrNoSnapshot):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "no policies are loaded"}
	case errors.Is(err, decisionlog.ErrUnavailable), errors.Is(err, decisionlog.ErrFailed), errors.Is(err, context.DeadlineExceeded):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "the decision could not be recorded"}
	}
	for _, t := range publicErrors {
		if !errors.Is(err, t.err) {
			continue
		}
		message := t.err.Error()
		if t.whole {
			message = err.Error()
		}
		return &authzen.Error{Status: t.status, Message: message}
	}
	return &authzen.Error{Status: http.StatusInternalServerError, Message: "internal error"}
}

// publicErrors lists the errors that PEPs may see: either the sentinel's text or the complete error text.
var publicErrors = []struct {
	err    error
	status int
	whole  bool
}{
	{errContentType, http.StatusBadRequest, true},
	{errCharset, http.StatusUnsupportedMediaType, true},
	{errEncoding, http.StatusBadRequest, true},
	{errBody, http.StatusBadRequest, false},
	{evaluation.ErrTooManyItems, http.StatusBadRequest, true},
	{evaluation.ErrLargeAnswer, http.StatusBadRequest, true},
	{snapshot.ErrTooLong, http.StatusServiceUnavailable, false},
	{snapshot.ErrUnknownTenant, http.StatusNotFound, false},
	{errSeveralTenants, http.StatusBadRequest, false},

	{errNoReload, http.StatusNotFound, false},
	{errNoReplay, http.StatusNotFound, false},
	{errReplayRuns, http.StatusConflict, false},
	{errReplaysBusy, http.StatusServiceUnavailable, false},
	{errNoZip, http.StatusUnsupportedMediaType, false},
	{errNoRevision, http.StatusNotFound, false},
	{errTryRate, http.StatusTooManyRequests, false},
	{policytest.ErrNoTest, http.StatusUnprocessableEntity, true},
	{decisionlog.ErrNoEntry, http.StatusNotFound, false},
	{decisionlog.ErrPruned, http.StatusGone, false},
	{errHost, http.StatusMisdirectedRequest, true},
	{errCrossSite, http.StatusForbidden, true},
	{callers.ErrUnauthenticated, http.StatusUnauthorized, false},
	{callers.ErrForbidden, http.StatusForbidden, false},
	{callers.ErrActors, http.StatusForbidden, true},
	{errOtherApprover, http.StatusForbidden, true},
	{jwks.ErrUnavailable, http.StatusServiceUnavailable, false},
	{errTenantRate, http.StatusTooManyRequests, false},
	{errManyStreams, http.StatusServiceUnavailable, false},
	{errOverload, http.StatusServiceUnavailable, false},
	{admission.ErrMemory, http.StatusServiceUnavailable, false},

	{approval.ErrNotRequestable, http.StatusBadRequest, true},
	{approval.ErrBinding, http.StatusBadRequest, true},
	{approval.ErrCallback, http.StatusBadRequest, true},
	{approval.ErrUnsupported, http.StatusBadRequest, true},
	{approval.ErrActor, http.StatusForbidden, true},
	{approval.ErrIneligible, http.StatusForbidden, true},
	{approval.ErrUnknownTask, http.StatusNotFound, true},
	{approval.ErrUnknownApproval, http.StatusNotFound, true},
	{approval.ErrDuplicate, http.StatusConflict, true},
	{approval.ErrTaskState, http.StatusConflict, true},
	{approval.ErrSheet, http.StatusConflict, false},
	{approval.ErrPolicies, http.StatusConflict, false},
	{approval.ErrUndecidable, http.StatusConflict, true},
	{approval.ErrExpiredDenial, http.StatusGone, true},
	{approval.ErrTaskExpired, http.StatusGone, true},
	{approval.ErrTooMany, http.StatusTooManyRequests, true},
	{approval.ErrTooManyKept, http.StatusTooManyRequests, true},

	{errMayNot, http.StatusForbidden, true},
	{errCapabilityDenied, http.StatusForbidden, true},
	{capability.ErrUnknown, http.StatusNotFound, true},
	{capability.ErrState, http.StatusConflict, true},
	{capability.ErrDuplicate, http.StatusConflict, true},
	{capability.ErrPage, http.StatusBadRequest, true},
	{capability.ErrTooMany, http.StatusTooManyRequests, true},
	{capability.ErrTooManyProofs, http.StatusServiceUnavailable, true},
	{capability.ErrTooManyStored, http.StatusTooManyRequests, true},
}

// problemTypes lists the problem types that the Access Request Profile defines.
var problemTypes = []struct {
	err error
	urn string
}{
	{approval.ErrNotRequestable, authzen.ProblemNotRequestable},
	{approval.ErrBinding, authzen.ProblemInvalidDenialBinding},
	{approval.ErrExpiredDenial, authzen.ProblemExpiredDenial},
	{approval.ErrDuplicate, authzen.ProblemDuplicateRequest},
	{approval.ErrUnknownTask, authzen.ProblemUnknownTask},
	{approval.ErrTaskExpired, authzen.ProblemTaskExpired},
	{approval.ErrTaskState, authzen.ProblemInvalidTaskState},
	{approval.ErrUnsupported, authzen.ProblemUnsupportedMember},
	{approval.ErrCallback, authzen.ProblemCallbackNotAllowed},
	{errCapabilityDenied, authzen.ProblemCapabilityDenied},
}

// problem returns the problem document of the Access Request API for an error.
func problem(err error, public *authzen.Error) any {
	p := authzen.Problem{Type: "about:blank", Title: http.StatusText(public.Status), Status: public.Status, Detail: public.Message}
	for _, t := range problemTypes {
		if errors.Is(err, t.err) {
			p.Type = t.urn
		}
	}
	var denial *capabilityDenial
	if errors.As(err, &denial) {
		return authzen.CapabilityProblem{Problem: p, EvaluationID: denial.evaluationID}
	}
	return p
}

// hasProblems reports whether errors of that path are problem documents (RFC 9457).
func hasProblems(path string) bool {
	if rest, ok := strings.CutPrefix(path, "/tenants/"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	for _, prefix := range []string{authzen.PathRequests, authzen.PathRequestSchemas, authzen.PathJWKS, authzen.PathApprovals, authzen.PathCapabilities} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}
