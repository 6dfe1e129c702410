package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A capabilitiesHandler serves PEPs that ask for capabilities.
type capabilitiesHandler struct {
	issuer  *capabilityIssuer
	limits  *limiter
	maxBody int64

	endpoint func(tenant string) string
}

// pepOf returns the PEP as package capability knows it.
func pepOf(c echo.Context, tenant string) capability.Caller {
	return capability.Caller{Tenant: tenant, ID: callerFrom(c.Request().Context()).ID, RequestID: requestID(c)}
}

// request answers 201 with an active capability, or 202 with one that waits for people.
func (h *capabilitiesHandler) request(c echo.Context) error {
	tenant, err := tenantOf(c)
	if err != nil {
		return err
	}
	var sub authzen.CapabilitySubmission
	admitted, err := h.limits.decode(c, h.maxBody, &sub)
	if err != nil {
		return err
	}
	defer admitted.release()
	if err := callerFrom(c.Request().Context()).Unclear; err != nil {
		return err
	}
	call := evaluation.Call{
		ID: evaluation.NewDecisionID(), Tenant: tenant, Caller: callerFrom(c.Request().Context()).ID,
		RequestID: requestID(c), TraceID: traceID(c.Request().Context()),
	}
	var made *issued
	err = h.limits.deadline.Run(c.Request().Context(), func(ctx context.Context) (err error) {
		made, err = h.issuer.request(ctx, call, callerOf(c, tenant), c.Request().Header.Get(headerIdempotencyKey), &sub)
		return err
	})
	c.Response().Header().Set(headerDecisionID, call.ID)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, h.endpoint(tenant)+"/"+made.ID)
	if made.State == capability.Pending {
		return h.answer(c, http.StatusAccepted, made)
	}
	return h.answer(c, http.StatusCreated, made)
}

// answer writes a capability with its token.
func (h *capabilitiesHandler) answer(c echo.Context, status int, made *issued) error {
	if made.State == capability.Pending {
		c.Response().Header().Set(echo.HeaderRetryAfter, pollAfter)
	}
	shown := shownCapability(made.Capability)
	var err error
	if shown.Token, err = h.issuer.store.Token(made.Capability); err != nil {
		return err
	}
	return writeJSON(c, status, authzen.CapabilityResponse{Capability: shown, Task: made.task, EvaluationID: made.evaluationID})
}

// shownCapability returns a capability as its holder sees it.
func shownCapability(c *capability.Capability) authzen.Capability {
	out := authzen.Capability{
		ID: c.ID, Status: string(c.State), Holder: c.Holder, Tools: c.Tools, Bound: c.Bound, Issuer: c.Issuer,
		Parent: c.Parent, Refreshes: c.Refreshes, Depth: c.Depth, Created: c.Created, Duration: int64(c.Duration.Seconds()), Reason: c.EndReason,
	}
	if c.Key != nil {
		out.HolderKey, out.JKT = c.Key.JWK, c.Key.JKT
	}
	if !c.Issued.IsZero() {
		out.Expires = c.Constraints.ValidUntil
	}
	limits := authzen.CapabilityConstraints{MaxUses: authzen.MaxUses(c.Constraints.MaxUses), ArgumentsSchema: c.Constraints.ArgumentsSchema}
	if c.Constraints.ValidFrom.After(c.Issued) {
		limits.ValidFrom = c.Constraints.ValidFrom
	}
	if len(c.Constraints.Arguments) > 0 {
		limits.Arguments, _ = c.Constraints.Arguments.Encode() // it was parsed from JSON
	}
	if !reflect.ValueOf(limits).IsZero() {
		out.Constraints = &limits
	}
	if most := c.Constraints.MaxUses; most > 0 {
		left := max(most-c.Used, 0)
		out.UsesLeft = &left
	}
	return out
}

// show answers with a capability, to the PEP that asked for it. With Prefer: wait=N it waits up to N
// seconds for the decision.
func (h *capabilitiesHandler) show(c echo.Context) error {
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
	found, err := h.issuer.store.Wait(c.Request().Context(), pepOf(c, tenant), c.Param(paramID), wait)
	if err != nil {
		return err
	}
	made, err := h.issuer.withTask(c.Request().Context(), callerOf(c, tenant), &issued{Capability: found})
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, made)
}

// list answers with the live capabilities of a holder that this PEP asked for.
func (h *capabilitiesHandler) list(c echo.Context) error {
	if err := knownQuery(c, "holder"); err != nil {
		return err
	}
	tenant, err := tenantOf(c)
	if err != nil {
		return err
	}
	holder, err := holderParam(c)
	if err != nil {
		return err
	}
	pep := pepOf(c, tenant)
	out := authzen.CapabilityList{Capabilities: []authzen.Capability{}}
	for _, state := range []capability.State{capability.Pending, capability.Active} {
		for found, err := range h.issuer.store.List(c.Request().Context(), capability.Query{Tenants: []string{tenant}, Holder: holder, State: state, Caller: &pep.ID}) {
			if err != nil {
				return err
			}
			out.Capabilities = append(out.Capabilities, shownCapability(found.Capability))
		}
	}
	return writeJSON(c, http.StatusOK, out)
}

// holderParam returns the entity that the parameter holder names, as TYPE:ID or TYPE::ID. A type may
// have a namespace.
func holderParam(c echo.Context) (*authzen.Subject, error) {
	name := c.QueryParam("holder")
	at, size := singleColon(name), 1
	if at < 0 {
		at, size = strings.LastIndex(name, "::"), 2
	}
	if at <= 0 || at+size >= len(name) {
		return nil, authzen.Invalid("", "needs the parameter holder, as TYPE:ID")
	}
	return &authzen.Subject{Type: name[:at], ID: name[at+size:]}, nil
}

// singleColon returns the index of the first colon without another one beside it, or -1.
func singleColon(name string) int {
	for i := range len(name) {
		if name[i] == ':' && (i == 0 || name[i-1] != ':') && (i+1 == len(name) || name[i+1] != ':') {
			return i
		}
	}
	return -1
}

// revoke gives a capability back. A pending one withdraws its Access Request.
func (h *capabilitiesHandler) revoke(c echo.Context) error {
	tenant, err := tenantOf(c)
	if err != nil {
		return err
	}
	var why authzen.Cancellation
	if c.Request().ContentLength != 0 {
		admitted, err := h.limits.decode(c, h.maxBody, &why)
		if err != nil {
			return err
		}
		defer admitted.release()
	}
	pep := pepOf(c, tenant)
	return h.limits.deadline.Run(c.Request().Context(), func(ctx context.Context) error {
		found, err := h.issuer.store.Own(ctx, pep, c.Param(paramID))
		if err != nil {
			return err
		}
		if _, err := h.issuer.endApprovals(ctx, found, approval.Approver{Caller: pep.ID}, why.Comment); err != nil {
			return err
		}
		ended, err := h.issuer.store.Revoke(ctx, found.ID, capability.Actor{Caller: pep.ID, RequestID: pep.RequestID}, why.Comment)
		if err != nil {
			return err
		}
		if err := h.issuer.withdraw(ctx, callerOf(c, tenant), ended, why); err != nil {
			return err
		}
		return h.answer(c, http.StatusOK, &issued{Capability: ended})
	})
}

// withdraw cancels the Access Request of a capability that ended before it was issued. The capability
// ends first: nobody refuses it again for its cancelled request.
func (i *capabilityIssuer) withdraw(ctx context.Context, by approval.Caller, ended *capability.Capability, why authzen.Cancellation) error {
	if !ended.Issued.IsZero() || ended.Task == "" {
		return nil
	}
	_, err := i.approvals.Cancel(ctx, by, ended.Task, why)
	if errors.Is(err, approval.ErrTaskState) || errors.Is(err, approval.ErrUnknownTask) || errors.Is(err, approval.ErrTaskExpired) {
		return nil // people have decided meanwhile, which changes nothing
	}
	if err != nil {
		return fmt.Errorf("withdraw access request: %w", err)
	}
	return nil
}
