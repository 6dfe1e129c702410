package pdp

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// headerDecisionID carries the id of the answer's entry in the decision log.
const headerDecisionID = "Decision-ID"

// handle serves one method of the API.
func handle[Request, Response any](maxBody int64, call func(context.Context, *Request) (*Response, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant := c.Param(paramTenant)
		if tenant != "" && !evaluation.ValidTenant(tenant) {
			return evaluation.ErrUnknownTenant
		}
		who := callerFrom(c.Request().Context())
		if tenant == "" && len(who.Tenants) == 1 {
			tenant = who.Tenants[0]
		}
		body, err := readBody(c, maxBody)
		if err != nil {
			return err
		}
		var request Request
		if err := authzen.Unmarshal(body, &request); err != nil {
			return err
		}
		id := evaluation.NewDecisionID()
		ctx := evaluation.WithCall(c.Request().Context(), evaluation.Call{
			ID:        id,
			Tenant:    tenant,
			Caller:    who.id,
			RequestID: requestID(c),
		})
		response, err := call(ctx, &request)
		if err != nil {
			return err
		}
		c.Response().Header().Set(headerDecisionID, id)
		return writeJSON(c, http.StatusOK, response)
	}
}

// requestID is the PEP's identifier as the log has it. A header may hold any
// bytes, and a log entry is UTF-8.
func requestID(c echo.Context) string {
	return strings.ToValidUTF8(c.Request().Header.Get(echo.HeaderXRequestID), "\uFFFD")
}

// readBody reads a JSON body of at most limit bytes.
func readBody(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if media, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType)); err != nil || media != echo.MIMEApplicationJSON {
		return nil, errContentType
	}
	if r.Header.Get(echo.HeaderContentEncoding) != "" {
		return nil, errEncoding
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return body, nil
}

// writeJSON writes an answer that nobody may keep: the next one may differ.
func writeJSON(c echo.Context, status int, v any) error {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.Blob(status, echo.MIMEApplicationJSON, body)
}
