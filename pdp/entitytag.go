package pdp

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/approval"
)

// Headers of conditional requests (RFC 9110, section 13).
const (
	headerETag        = "Etag" // the canonical spelling of net/http
	headerIfNoneMatch = "If-None-Match"
)

// isUnchanged sets the entity tag of a request for a person. It answers 304 if the caller has that state already,
// without the cost of the whole answer. Callers who are not known get no tag.
func (d *approvalsHandler) isUnchanged(c echo.Context, by *approval.Approver) (bool, error) {
	if by == nil {
		return false, nil
	}
	tag, tenant, err := d.approvals.Tag(c.Request().Context(), c.Param(paramID), *by)
	if err == nil && !callerFrom(c.Request().Context()).MayAsk(tenant) {
		err = approval.ErrUnknownTask
	}
	if err != nil {
		return false, err
	}
	return answerTag(c, tag)
}

// isListUnchanged is isUnchanged for a list of the tenants.
func (d *approvalsHandler) isListUnchanged(c echo.Context, tenants []string) (bool, error) {
	tag, err := d.approvals.ListTag(tenants)
	if err != nil {
		return false, err
	}
	return answerTag(c, tag)
}

// answerTag sets an entity tag, and answers 304 if the caller has sent it. The tag is weak: it is about the state,
// and not about the bytes of the answer.
func answerTag(c echo.Context, tag string) (bool, error) {
	tag = `W/"` + tag + `"`
	c.Response().Header().Set(headerETag, tag)
	if c.Request().Header.Get(headerIfNoneMatch) != tag {
		return false, nil
	}
	c.Response().Header()[echo.HeaderCacheControl] = noStore
	return true, c.NoContent(http.StatusNotModified)
}
