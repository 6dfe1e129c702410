package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
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
	case errors.Is(err, errIssuer):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: errIssuer.Error()}
	case errors.Is(err, errUnauthenticated):
		return &authzen.Error{Status: http.StatusUnauthorized, Message: errUnauthenticated.Error()}
	case errors.Is(err, errForbidden):
		return &authzen.Error{Status: http.StatusForbidden, Message: errForbidden.Error()}
	case errors.Is(err, evaluation.ErrUnknownTenant):
		return &authzen.Error{Status: http.StatusNotFound, Message: evaluation.ErrUnknownTenant.Error()}
	case errors.Is(err, evaluation.ErrNoSnapshot):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "no policies are loaded"}
	case errors.Is(err, decisionlog.ErrUnavailable), errors.Is(err, decisionlog.ErrFailed), errors.Is(err, context.DeadlineExceeded):
		return &authzen.Error{Status: http.StatusServiceUnavailable, Message: "the decision could not be recorded"}
	}
	return &authzen.Error{Status: http.StatusInternalServerError, Message: "internal error"}
}
