package pdp

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An AccessRequest is an Access Request as approvers see it.
type AccessRequest struct {
	Status authzen.TaskStatus `json:"status"`
	approval.Request
}

// AccessRequests is a list of them.
type AccessRequests struct {
	Requests []AccessRequest `json:"requests"`
}

func shown(r *approval.Request) AccessRequest {
	out := AccessRequest{Status: r.Status(), Request: *r}
	out.Idempotency, out.Submission = nil, nil
	return out
}

// serveRequests lists the Access Requests of ?status=, or all of them.
func serveRequests(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		list, err := approvals.Requests(c.Request().Context(), authzen.TaskStatus(c.QueryParam("status")))
		if err != nil {
			return err
		}
		answer := AccessRequests{Requests: []AccessRequest{}}
		for _, r := range list {
			answer.Requests = append(answer.Requests, shown(r))
		}
		return writeJSON(c, http.StatusOK, answer)
	}
}

// serveRequest shows one Access Request.
func serveRequest(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		return show(c)(approvals.Request(c.Request().Context(), c.Param(paramID)))
	}
}

// serveDecision carries out what an approver says of a request.
func serveDecision(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		var decision approval.Decision
		if err := decodeBody(c, defaultMaxBody, &decision); err != nil {
			return err
		}
		return show(c)(approvals.Decide(c.Request().Context(), c.Param(paramID), decision))
	}
}

// serveRevocation ends an approval.
func serveRevocation(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		var revocation approval.Revocation
		if err := decodeBody(c, defaultMaxBody, &revocation); err != nil {
			return err
		}
		return show(c)(approvals.Revoke(c.Request().Context(), c.Param(paramID), revocation))
	}
}

// show answers with a request, or the error in its place.
func show(c echo.Context) func(*approval.Request, error) error {
	return func(r *approval.Request, err error) error {
		if err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, shown(r))
	}
}
