package pdp

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Path parameters: a task or approval id, and a template name.
const (
	paramID       = "id"
	paramTemplate = "template"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerPrefer         = "Prefer"

	// pollAfter is the value of Retry-After for a pending task, in seconds.
	pollAfter = "5"
	// maxWait is the longest time a request waits for a vote.
	maxWait = time.Minute
)

// callerOf returns the caller as package approval knows it.
func callerOf(c echo.Context, tenant string) approval.Caller {
	who := callerFrom(c.Request().Context())
	return approval.Caller{Tenant: tenant, ID: who.ID, Names: who.Names, RequestID: requestID(c)}
}

// serveSubmit accepts an Access Request.
func serveSubmit(approvals *approval.Service, limits *limiter, maxBody int64) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err != nil {
			return err
		}
		var submission authzen.Submission
		admitted, err := limits.decode(c, maxBody, &submission)
		if err != nil {
			return err
		}
		defer admitted.release()
		return submit(c, approvals, limits.deadline, tenant, &submission)
	}
}

// serveApprovalRequest accepts an Access Request in the tenant, actor, action, resource format.
func serveApprovalRequest(engine *evaluation.Engine, approvals *approval.Service, limits *limiter, maxBody int64) echo.HandlerFunc {
	return func(c echo.Context) error {
		var request authzen.ApprovalRequest
		admitted, err := limits.decode(c, maxBody, &request)
		if err != nil {
			return err
		}
		defer admitted.release()
		if err := limits.admit(c.Request().Context(), request.Request.TenantID); err != nil {
			return err
		}
		if !engine.HasTenant(request.Request.TenantID) {
			return snapshot.ErrUnknownTenant
		}
		submission, err := request.Submission()
		if err != nil {
			return err
		}
		return submit(c, approvals, limits.deadline, request.Request.TenantID, submission)
	}
}

// submit writes the task: status 201 if it is already decided, otherwise 202.
func submit(c echo.Context, approvals *approval.Service, decisionDeadline *admission.Deadline, tenant string, submission *authzen.Submission) error {
	if err := callerFrom(c.Request().Context()).Unclear; err != nil {
		return err
	}
	key := c.Request().Header.Get(headerIdempotencyKey)
	var task *authzen.TaskResponse
	err := decisionDeadline.Run(c.Request().Context(), func(ctx context.Context) (err error) {
		task, err = approvals.Submit(ctx, callerOf(c, tenant), key, submission)
		return err
	})
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, task.Task.StatusEndpoint)
	if task.Task.Status == authzen.TaskPending {
		return writeTask(c, http.StatusAccepted, task)
	}
	return writeTask(c, http.StatusCreated, task)
}

func writeTask(c echo.Context, status int, task *authzen.TaskResponse) error {
	if task.Task.Status == authzen.TaskPending {
		c.Response().Header().Set(echo.HeaderRetryAfter, pollAfter)
	}
	return writeJSON(c, status, task)
}

// serveTask answers with the state of a task. With Prefer: wait=N it waits up to N seconds for a
// vote (RFC 7240, section 4.3).
func serveTask(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err != nil {
			return err
		}
		wait := preferredWait(c.Request().Header.Values(headerPrefer))
		if wait > 0 {
			if err := liftDeadlines(c); err != nil {
				return err
			}
		}
		task, err := approvals.Wait(c.Request().Context(), callerOf(c, tenant), c.Param(paramID), wait)
		if err != nil {
			return err
		}
		return writeTask(c, http.StatusOK, task)
	}
}

// preferredWait returns the preference wait, or 0.
func preferredWait(headers []string) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
		if seconds, err := strconv.Atoi(value); err == nil && strings.EqualFold(name, "wait") && seconds > 0 {
			return min(time.Duration(seconds)*time.Second, maxWait)
		}
	}
	return 0
}

// prefersMinimal reports the preference return=minimal (RFC 7240, section 4.2). A denial that an
// approval can lift then has its Decision-ID and no binding token.
func prefersMinimal(headers []string) bool {
	for preference := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(preference), "return=minimal") {
			return true
		}
	}
	return false
}

// liftDeadlines removes the listener's deadlines from an answer.
func liftDeadlines(c echo.Context) error {
	controller := http.NewResponseController(c.Response())
	if err := controller.SetReadDeadline(noDeadline); err != nil {
		return fmt.Errorf("lift read deadline: %w", err)
	}
	if err := controller.SetWriteDeadline(noDeadline); err != nil {
		return fmt.Errorf("lift write deadline: %w", err)
	}
	return nil
}

// serveCancel cancels a task for the PEP that submitted it. The body is optional.
func serveCancel(approvals *approval.Service, limits *limiter, maxBody int64) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err != nil {
			return err
		}
		var why authzen.Cancellation
		if c.Request().ContentLength != 0 {
			admitted, err := limits.decode(c, maxBody, &why)
			if err != nil {
				return err
			}
			defer admitted.release()
		}
		var task *authzen.TaskResponse
		err = limits.deadline.Run(c.Request().Context(), func(ctx context.Context) (err error) {
			task, err = approvals.Cancel(ctx, callerOf(c, tenant), c.Param(paramID), why)
			return err
		})
		if err != nil {
			return err
		}
		return writeTask(c, http.StatusOK, task)
	}
}

// serveRequestSchema serves the JSON Schema of a template's parameters.
func serveRequestSchema(engine *evaluation.Engine) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err != nil {
			return err
		}
		template, err := engine.ApprovalTemplate(tenant, c.Param(paramTemplate))
		switch {
		case err != nil:
			return err
		case template.Schema == nil:
			return echo.ErrNotFound
		}
		return writeBody(c, http.StatusOK, "application/schema+json", template.Schema)
	}
}

// serveJWKS serves the keys that sign binding tokens and approvals.
func serveJWKS(approvals *approval.Service) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderCacheControl, maxAge)
		return c.JSON(http.StatusOK, approvals.JWKS())
	}
}
