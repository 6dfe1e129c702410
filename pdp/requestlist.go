package pdp

import (
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Default and maximum number of requests on a page, and the size in bytes after which a page ends
// early.
const (
	someRequests = 100
	mostRequests = 1000
	pageBytes    = 4 << 20
)

// mostLookedAt is the number of requests that are looked at for one page of a list for a person. Such a
// page may have fewer requests than there is room for, and is not the last one.
const mostLookedAt = 1000

// statusDecided selects all requests that are not pending.
const statusDecided = "decided"

// listQuery parses the query of a list: status, tenant, limit, page token, and the person whom it is for.
// It selects only requests of the caller's tenants.
func (d *approvalsHandler) listQuery(c echo.Context) (q approval.Query, limit int, err error) {
	if err := knownQuery(c, "status", "tenant", "limit", "token", "for", paramAs); err != nil {
		return q, 0, err
	}
	q = approval.Query{Status: authzen.TaskStatus(c.QueryParam("status")), After: c.QueryParam("token")}
	if q.Status == statusDecided {
		q.Status, q.Decided = "", true
	}
	if q.Status != "" && !slices.Contains(approval.TaskStatuses, q.Status) {
		return q, 0, authzen.Invalid("", "has a status that is none of %v and %s: %q", approval.TaskStatuses, statusDecided, q.Status)
	}
	if q.Tenants, limit, err = listBounds(c); err == nil {
		err = d.forPerson(c, &q)
	}
	return q, limit, err
}

// forPerson selects pending requests on which the caller may decide, or may not, if the query asks so.
func (d *approvalsHandler) forPerson(c echo.Context, q *approval.Query) (err error) {
	switch whom := c.QueryParam("for"); {
	case whom == "":
		return nil
	case whom != "me" && whom != "others":
		return authzen.Invalid("", "has a for that is neither me nor others: %q", whom)
	case q.Decided || q.Status != "" && q.Status != authzen.TaskPending:
		return authzen.Invalid("", "has for with a status other than pending")
	default:
		q.Status, q.Others = authzen.TaskPending, whom == "others"
	}
	if q.For, err = d.viewer(c); err == nil && q.For == nil {
		err = authzen.Invalid("", "has for without a person: callers are not known, so say who looks (as=TYPE:ID)")
	}
	return err
}

// listBounds returns the tenants and the limit that the query of a list selects. The tenants are at
// most the caller's; nil means all.
func listBounds(c echo.Context) (tenants []string, limit int, err error) {
	tenants = callerFrom(c.Request().Context()).Tenants
	if tenant := c.QueryParam("tenant"); tenant != "" {
		if tenants == nil || slices.Contains(tenants, tenant) {
			tenants = []string{tenant}
		} else {
			tenants = []string{} // selects nothing
		}
	}
	n, err := indexParam(c, "limit", someRequests)
	if err == nil && (n < 1 || n > mostRequests) {
		err = authzen.Invalid("", "has a limit that is not 1 to %d", mostRequests)
	}
	return tenants, int(n), err
}

// list answers with a page of the Access Requests that the query selects. It writes one request at
// a time, so the complete page is never in memory.
func (d *approvalsHandler) list(c echo.Context) error {
	q, limit, err := d.listQuery(c)
	if err != nil {
		return err
	}
	if same, err := d.isListUnchanged(c, q.Tenants); same || err != nil {
		return err
	}
	page := requestPage{handler: d, to: c.Response(), limit: limit}
	for r, err := range d.approvals.List(c.Request().Context(), q) {
		if errors.Is(err, approval.ErrPage) {
			err = authzen.Invalid("", "has a token that is none of a page of this list")
		}
		if err != nil {
			return err
		}
		if page.full() {
			return page.end(page.last)
		}
		if r.Request == nil {
			page.skip(r.Token)
			continue
		}
		if err := page.add(r); err != nil {
			return err
		}
	}
	return page.end("")
}

// A requestPage is an answer that is being written.
type requestPage struct {
	handler *approvalsHandler
	to      *echo.Response
	limit   int

	count, bytes int
	skipped      int    // requests that the query does not select
	last         string // token of the last request that was looked at
}

func (p *requestPage) full() bool {
	return p.count == p.limit || p.bytes >= pageBytes || p.count+p.skipped >= mostLookedAt
}

// skip notes a request that is not on the page.
func (p *requestPage) skip(token string) { p.skipped, p.last = p.skipped+1, token }

// write writes text and, on the first call, the header of the answer.
func (p *requestPage) write(text []byte) error {
	if !p.to.Committed {
		p.to.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		p.to.Header()[echo.HeaderCacheControl] = noStore
		p.to.WriteHeader(http.StatusOK)
		if _, err := p.to.Write([]byte(`{"requests":[`)); err != nil {
			return err
		}
	}
	p.bytes += len(text)
	_, err := p.to.Write(text)
	return err
}

// add writes a request.
func (p *requestPage) add(r approval.Listed) error {
	text, err := p.handler.shownInList(r.Request, r.Allowed)
	if err != nil {
		return err
	}
	if p.count > 0 {
		text = append(jsontext.Value{','}, text...)
	}
	p.count, p.last = p.count+1, r.Token
	return p.write(text)
}

// end writes the token of the next page.
func (p *requestPage) end(next string) error {
	rest := []byte("]}")
	if next != "" {
		page, err := json.Marshal(authzen.Page{NextToken: next, Count: p.count})
		if err != nil {
			return err
		}
		rest = append(append([]byte(`],"page":`), page...), '}')
	}
	return p.write(rest)
}
