package pdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// headerDecisionID carries the id of the answer's log entry. It has the canonical spelling of
// net/http.
const headerDecisionID = "Decision-Id"

// A method of the API returns the response to a request.
type method[Request, Response any] func(context.Context, evaluation.Call, *Request) (*Response, error)

// handle returns the handler for one method of the API.
func handle[Request, Response any](limits *limiter, maxBody int64, answer method[Request, Response]) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err != nil {
			return err
		}
		var request Request
		admitted, err := limits.decode(c, maxBody, &request)
		if err != nil {
			return err
		}
		defer admitted.release()
		id := evaluation.NewDecisionID()
		call := evaluation.Call{
			ID:        id,
			Tenant:    tenant,
			Caller:    callerFrom(c.Request().Context()).ID,
			RequestID: requestID(c),
			TraceID:   traceID(c.Request().Context()),
			NoLabels:  !mayLabel(c.Request().Context()),
			Minimal:   prefersMinimal(c.Request().Header.Values(headerPrefer)),
		}
		response, err := answer(c.Request().Context(), call, &request)
		if err != nil {
			return err
		}
		return admitted.answer(c, id, response)
	}
}

// tenantOf returns the tenant that the path names, or else the caller's only tenant. "" means no
// tenant.
func tenantOf(c echo.Context) (string, error) {
	tenant := c.Param(paramTenant)
	if tenant != "" && !snapshot.ValidTenant(tenant) {
		return "", snapshot.ErrUnknownTenant
	}
	if who := callerFrom(c.Request().Context()); tenant == "" && len(who.Tenants) == 1 {
		tenant = who.Tenants[0]
	}
	return tenant, nil
}

// decodeKnown decodes a JSON body from an operator or approver. It refuses unknown members.
func decodeKnown(c echo.Context, v any) error {
	return withBody(c, defaultMaxBody, &admission.Reservation{}, func(body []byte) error { return authzen.UnmarshalKnown(body, v) })
}

// decodeNothing refuses a body that is not empty.
func decodeNothing(c echo.Context) error {
	if c.Request().ContentLength == 0 {
		return nil
	}
	return decodeKnown(c, &struct{}{})
}

// requestID returns the PEP's request id as the log records it. A header may contain any bytes, but
// a log entry is UTF-8.
func requestID(c echo.Context) string {
	return strings.ToValidUTF8(c.Request().Header.Get(echo.HeaderXRequestID), "\uFFFD")
}

// withBody reads a JSON body of at most limit bytes and calls use with it. It reserves memory from
// s. use must not keep the body.
func withBody(c echo.Context, limit int64, s *admission.Reservation, use func(body []byte) error) error {
	r := c.Request()
	if err := checkContentType(r.Header.Get(echo.HeaderContentType)); err != nil {
		return err
	}
	if r.Header.Get(echo.HeaderContentEncoding) != "" {
		return errEncoding
	}
	return withBuffer(func(room *bytes.Buffer) error {
		room.Grow(int(max(0, min(r.ContentLength, admission.RequestBytes-bytes.MinRead)) + bytes.MinRead))
		body, err := s.Read(http.MaxBytesReader(c.Response(), r.Body, limit), r.ContentLength, room.AvailableBuffer())
		switch {
		case errors.Is(err, admission.ErrMemory):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", errBody, err)
		}
		return use(body)
	})
}

// buffers pools buffers for bodies that are read or written. Large ones are not pooled.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// withBuffer calls use with an empty buffer.
func withBuffer(use func(*bytes.Buffer) error) error {
	b := buffers.Get().(*bytes.Buffer)
	err := use(b)
	if b.Cap() <= admission.PooledBytes {
		b.Reset()
		buffers.Put(b)
	}
	return err
}

// checkContentType refuses a content type other than JSON, or one with a charset other than UTF-8.
// It ignores other parameters.
func checkContentType(contentType string) error {
	if contentType == echo.MIMEApplicationJSON {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || media != echo.MIMEApplicationJSON {
		return errContentType
	}
	if charset, said := parameters["charset"]; said && !strings.EqualFold(charset, "utf-8") {
		return errCharset
	}
	return nil
}

// writeJSON writes a JSON answer with Cache-Control: no-store, because the next answer may differ.
func writeJSON(c echo.Context, status int, v any) error {
	return writeBody(c, status, echo.MIMEApplicationJSON, v)
}

// mimeProblem is the media type of a problem document (RFC 9457).
const mimeProblem = "application/problem+json"

// noStore is the Cache-Control value of an answer that must not be cached.
var noStore = []string{"no-store"}

// writeBody writes JSON of that media type with Cache-Control: no-store.
func writeBody(c echo.Context, status int, mediaType string, v any) error {
	return withBuffer(func(body *bytes.Buffer) error {
		if err := encode(body, v); err != nil {
			return err
		}
		return sendBody(c, status, mediaType, body.Bytes())
	})
}

func encode(body *bytes.Buffer, v any) error {
	if err := json.MarshalWrite(body, v, json.Deterministic(true)); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return nil
}

// sendBody writes an encoded body with Cache-Control: no-store.
func sendBody(c echo.Context, status int, mediaType string, body []byte) error {
	c.Response().Header()[echo.HeaderCacheControl] = noStore
	return c.Blob(status, mediaType, body)
}

// within applies a deadline to a method of the API.
func within[Request, Response any](d *admission.Deadline, answer method[Request, Response]) method[Request, Response] {
	return func(ctx context.Context, call evaluation.Call, req *Request) (response *Response, err error) {
		err = d.Run(ctx, func(ctx context.Context) error {
			response, err = answer(ctx, call, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return response, nil
	}
}
