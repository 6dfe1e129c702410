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
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// errContentType is a body that is not declared to be JSON. AuthZEN asks for
	// 400 where HTTP would have 415.
	errContentType = errors.New("the Content-Type must be application/json")
	// errEncoding is a compressed body, whose size a limit on bytes would not
	// bound.
	errEncoding = errors.New("the body must not be compressed")
	// errBody is a body that breaks off, is framed wrongly or comes too slowly.
	errBody = errors.New("the body did not arrive whole and in time")
)

// retryAfter is the Retry-After, in seconds, of a failure that may pass.
const retryAfter = "1"

// describe says what a PEP is told of an error. The cause of a failure that is
// not the PEP's stays in the service's own log.
func describe(err error) *authzen.Error {
	var invalid *authzen.ValidationError
	var tooLarge *http.MaxBytesError
	var routing *echo.HTTPError
	switch {
	case errors.As(err, &invalid):
		return &authzen.Error{Status: http.StatusBadRequest, Message: invalid.Error()}
	case errors.Is(err, errContentType), errors.Is(err, errEncoding), errors.Is(err, evaluation.ErrTooManyItems):
		return &authzen.Error{Status: http.StatusBadRequest, Message: err.Error()}
	case errors.As(err, &tooLarge):
		return &authzen.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	case errors.Is(err, errBody):
		return &authzen.Error{Status: http.StatusBadRequest, Message: errBody.Error()}
	case errors.As(err, &routing):
		return &authzen.Error{Status: routing.Code, Message: http.StatusText(routing.Code)}
	case errors.Is(err, errOverload):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: errOverload.Error()}
	case errors.Is(err, errTenantRate):
		return &authzen.Error{Status: http.StatusTooManyRequests, Message: errTenantRate.Error()}
	case errors.Is(err, errIssuer):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: errIssuer.Error()}
	case errors.Is(err, errUnauthenticated):
		return &authzen.Error{Status: http.StatusUnauthorized, Message: errUnauthenticated.Error()}
	case errors.Is(err, errForbidden):
		return &authzen.Error{Status: http.StatusForbidden, Message: errForbidden.Error()}
	case errors.Is(err, approval.ErrNotRequestable), errors.Is(err, approval.ErrBinding), errors.Is(err, approval.ErrCallback):
		return &authzen.Error{Status: http.StatusBadRequest, Message: err.Error()}
	case errors.Is(err, approval.ErrActor), errors.Is(err, approval.ErrIneligible):
		return &authzen.Error{Status: http.StatusForbidden, Message: err.Error()}
	case errors.Is(err, approval.ErrUnknownTask), errors.Is(err, approval.ErrUnknownApproval):
		return &authzen.Error{Status: http.StatusNotFound, Message: err.Error()}
	case errors.Is(err, approval.ErrDuplicate), errors.Is(err, approval.ErrTaskState):
		return &authzen.Error{Status: http.StatusConflict, Message: err.Error()}
	case errors.Is(err, approval.ErrExpiredDenial), errors.Is(err, approval.ErrTaskExpired):
		return &authzen.Error{Status: http.StatusGone, Message: err.Error()}
	case errors.Is(err, approval.ErrTooMany):
		return &authzen.Error{Status: http.StatusTooManyRequests, Message: err.Error()}
	case errors.Is(err, evaluation.ErrUnknownTenant):
		return &authzen.Error{Status: http.StatusNotFound, Message: evaluation.ErrUnknownTenant.Error()}
	case errors.Is(err, evaluation.ErrNoSnapshot):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "no policies are loaded"}
	case errors.Is(err, decisionlog.ErrUnavailable), errors.Is(err, decisionlog.ErrFailed), errors.Is(err, context.DeadlineExceeded):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "the decision could not be recorded"}
	}
	return &authzen.Error{Status: http.StatusInternalServerError, Message: "internal error"}
}

// problemTypes are the problems that the Access Request Profile names.
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
}

// problem is what a PEP is told of an error by the Access Request API.
func problem(err error, told *authzen.Error) authzen.Problem {
	p := authzen.Problem{Type: "about:blank", Title: http.StatusText(told.Status), Status: told.Status, Detail: told.Message}
	for _, t := range problemTypes {
		if errors.Is(err, t.err) {
			p.Type = t.urn
		}
	}
	return p
}

// hasProblems reports whether errors at that path are problems (RFC 9457).
func hasProblems(path string) bool {
	if rest, ok := strings.CutPrefix(path, "/tenants/"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	for _, prefix := range []string{authzen.PathRequests, authzen.PathRequestSchemas, authzen.PathJWKS, authzen.PathApprovals} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}
