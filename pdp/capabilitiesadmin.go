package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A CapabilityGrant is a person's grant of a capability that nobody asked for.
type CapabilityGrant struct {
	Approver *Approver `json:"approver,omitzero"`
	Tenant   string    `json:"tenant,omitzero"`
	authzen.CapabilityTerms
}

// A CapabilityRevocation is a person's request to end all capabilities of a holder.
type CapabilityRevocation struct {
	Approver *Approver       `json:"approver,omitzero"`
	Tenant   string          `json:"tenant,omitzero"`
	Holder   authzen.Subject `json:"holder"`
	Reason   string          `json:"reason,omitzero"`
}

// A capabilityAdmin serves operators and approvers.
type capabilityAdmin struct {
	issuer *capabilityIssuer
	people *approvalsHandler
}

// list answers with a page of capabilities of the caller's tenants.
func (h *capabilityAdmin) list(c echo.Context) error {
	q, limit, err := capabilityQuery(c)
	if err != nil {
		return err
	}
	out := authzen.CapabilityList{Capabilities: []authzen.Capability{}}
	for found, err := range h.issuer.store.List(c.Request().Context(), q) {
		if err != nil {
			return err
		}
		out.Capabilities = append(out.Capabilities, adminCapability(found.Capability))
		if len(out.Capabilities) == limit {
			out.Page = &authzen.Page{NextToken: found.Token}
			break
		}
	}
	return h.answer(c, http.StatusOK, out)
}

// capabilityQuery parses the query of a list. It selects only capabilities of the caller's tenants.
func capabilityQuery(c echo.Context) (q capability.Query, limit int, err error) {
	if err := knownQuery(c, "status", "holder", "server", "tenant", "limit", "token"); err != nil {
		return q, 0, err
	}
	if q.Tenants, limit, err = listBounds(c); err != nil {
		return q, 0, err
	}
	q.State, q.Server, q.After = capability.State(c.QueryParam("status")), c.QueryParam("server"), c.QueryParam("token")
	if q.State != "" && !slices.Contains(capability.States, q.State) {
		return q, 0, authzen.Invalid("", "has a status that is none of %v: %q", capability.States, q.State)
	}
	if c.QueryParams().Has("holder") {
		q.Holder, err = holderParam(c)
	}
	return q, limit, err
}

// adminCapability returns a capability as operators see it.
func adminCapability(c *capability.Capability) authzen.Capability {
	out := shownCapability(c)
	out.Tenant, out.Reason = c.Tenant, cmp.Or(c.EndReason, c.Reason)
	out.Approvers, out.Template, out.Task, out.EndedBy = c.Approvers, c.Template, c.Task, c.EndedBy
	out.ApprovalIDs = c.ApprovalIDs
	return out
}

// answer writes what operators see, with values masked that look like secrets.
func (h *capabilityAdmin) answer(c echo.Context, status int, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	masked, err := h.people.mask(text)
	if err != nil {
		return err
	}
	return writeJSON(c, status, masked)
}

// show answers with one capability.
func (h *capabilityAdmin) show(c echo.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, authzen.CapabilityResponse{Capability: adminCapability(found)})
}

// find returns the capability of the path. To callers of other tenants it does not exist.
func (h *capabilityAdmin) find(c echo.Context) (*capability.Capability, error) {
	found, err := h.issuer.store.Get(c.Request().Context(), c.Param(paramID))
	if err == nil && !callerFrom(c.Request().Context()).MayAsk(found.Tenant) {
		return nil, capability.ErrUnknown
	}
	return found, err
}

// issue grants a capability, if policies let this person.
func (h *capabilityAdmin) issue(c echo.Context) error {
	var body CapabilityGrant
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	by, call, err := h.person(c, body.Approver, body.Tenant)
	if err != nil {
		return err
	}
	terms, err := termsOf(&body.CapabilityTerms)
	if err != nil {
		return err
	}
	made, err := h.issuer.grant(c.Request().Context(), call, by, c.Request().Header.Get(headerIdempotencyKey), terms)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusCreated, authzen.CapabilityResponse{Capability: adminCapability(made), EvaluationID: call.ID})
}

// person returns the caller as the person who acts, and the call that asks policies about it.
func (h *capabilityAdmin) person(c echo.Context, named *Approver, tenant string) (by approval.Approver, call evaluation.Call, err error) {
	if by, err = h.people.approver(c, named); err != nil {
		return by, call, err
	}
	who := callerFrom(c.Request().Context())
	if tenant == "" && len(who.Tenants) == 1 {
		tenant = who.Tenants[0]
	}
	if !who.MayAsk(tenant) || !h.issuer.engine.HasTenant(tenant) && tenant != "" {
		return by, call, snapshot.ErrUnknownTenant
	}
	return by, evaluation.Call{
		ID: evaluation.NewDecisionID(), Tenant: tenant, Caller: by.Caller, RequestID: requestID(c), TraceID: traceID(c.Request().Context()),
	}, nil
}

// revoke ends a capability, if policies let this person.
func (h *capabilityAdmin) revoke(c echo.Context) error {
	var body Revocation
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	found, err := h.find(c)
	if err != nil {
		return err
	}
	by, call, err := h.person(c, body.Approver, found.Tenant)
	if err != nil {
		return err
	}
	ended, approvals, err := h.issuer.end(c.Request().Context(), call, by, found, body.Reason)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, authzen.CapabilityResponse{Capability: adminCapability(ended), EvaluationID: call.ID, RevokedApprovals: approvals})
}

// revokeHolder ends all capabilities of a holder, if policies let this person end each of them.
func (h *capabilityAdmin) revokeHolder(c echo.Context) error {
	var body CapabilityRevocation
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	by, call, err := h.person(c, body.Approver, body.Tenant)
	if err != nil {
		return err
	}
	ended, err := h.issuer.endAll(c.Request().Context(), call, by, body.Holder, body.Reason)
	if err != nil {
		return err
	}
	out := authzen.CapabilityList{Capabilities: []authzen.Capability{}}
	for _, one := range ended {
		out.Capabilities = append(out.Capabilities, adminCapability(one))
	}
	return h.answer(c, http.StatusOK, out)
}

// errMayNot means that policies do not let this person issue or end a capability.
var errMayNot = errors.New("policies do not let this person do this with the capability")

// newCapability is the id of the resource in the question whether a person may grant a capability.
const newCapability = "new"

// grant issues a capability, if policies let this person. A person may not grant one to himself.
func (i *capabilityIssuer) grant(ctx context.Context, call evaluation.Call, by approval.Approver, key string, terms capability.Terms) (*capability.Capability, error) {
	who := capability.Caller{Tenant: call.Tenant, ID: by.Caller, RequestID: call.RequestID, AnyTool: true}
	known, err := i.store.Known(ctx, who, key, terms)
	if err != nil || known != nil {
		return known, err
	}
	if err := i.store.CheckIssue(who, terms); err != nil {
		return nil, err
	}
	if err := i.engine.CheckSubject(call.Tenant, "/subject", terms.Holder); err != nil {
		return nil, err
	}
	if err := i.mayGrant(ctx, call, by, &terms, ""); err != nil {
		return nil, err
	}
	return i.store.Issue(ctx, who, key, terms, capability.Grant{
		Issuer: &by.Subject, Approvers: []authzen.Subject{by.Subject}, EvaluationIDs: []string{call.ID}, Revision: i.engine.Revision(call.Tenant),
	})
}

// mayGrant returns errMayNot unless policies let this person issue a capability with these terms and
// this template, if any. It is never the person's own.
func (i *capabilityIssuer) mayGrant(ctx context.Context, call evaluation.Call, by approval.Approver, terms *capability.Terms, template string) error {
	if by.IsCalled(terms.Holder.ID) {
		return fmt.Errorf("%w: it would be the person's own", errMayNot)
	}
	draft := capability.Capability{ID: newCapability, Terms: *terms, Template: template, Bound: terms.BoundTo()}
	return i.may(ctx, call, authzen.ActionCapabilityIssue, by, &draft)
}

// end revokes a capability, if policies let this person, and returns the ids of the approvals that end
// with it. The Access Request of a pending one is withdrawn.
func (i *capabilityIssuer) end(ctx context.Context, call evaluation.Call, by approval.Approver, c *capability.Capability, why string) (ended *capability.Capability, approvals []string, err error) {
	if err := i.may(ctx, call, authzen.ActionCapabilityRevoke, by, c); err != nil {
		return nil, nil, err
	}
	if approvals, err = i.endApprovals(ctx, c, by, why); err != nil {
		return nil, nil, err
	}
	ended, err = i.store.Revoke(ctx, c.ID, capability.Actor{Subject: by.Subject, Caller: by.Caller, RequestID: call.RequestID}, why)
	if err != nil {
		return nil, nil, err
	}
	return ended, approvals, i.withdrawFor(ctx, ended, why)
}

// withdrawFor cancels the Access Request of a capability that ended before it was issued, in the stead
// of the PEP that asked.
func (i *capabilityIssuer) withdrawFor(ctx context.Context, ended *capability.Capability, why string) error {
	return i.withdraw(ctx, approval.Caller{Tenant: ended.Tenant, ID: ended.Caller}, ended, authzen.Cancellation{Comment: why})
}

// endAll revokes all capabilities of a holder at once, if policies let this person end each of them.
func (i *capabilityIssuer) endAll(ctx context.Context, call evaluation.Call, by approval.Approver, holder authzen.Subject, why string) ([]*capability.Capability, error) {
	var all []*capability.Capability
	for _, state := range []capability.State{capability.Pending, capability.Active} {
		for found, err := range i.store.List(ctx, capability.Query{Tenants: []string{call.Tenant}, Holder: &holder, State: state}) {
			if err != nil {
				return nil, err
			}
			call.ID = evaluation.NewDecisionID()
			if err := i.may(ctx, call, authzen.ActionCapabilityRevoke, by, found.Capability); err != nil {
				return nil, err
			}
			all = append(all, found.Capability)
		}
	}
	for _, one := range all {
		if _, err := i.endApprovals(ctx, one, by, why); err != nil {
			return nil, err
		}
	}
	ended, err := i.store.RevokeHolder(ctx, call.Tenant, holder, capability.Actor{Subject: by.Subject, Caller: by.Caller, RequestID: call.RequestID}, why)
	for _, one := range ended {
		err = errors.Join(err, i.withdrawFor(ctx, one, why))
	}
	return ended, err
}

// may returns errMayNot unless policies permit a person an action on a capability.
func (i *capabilityIssuer) may(ctx context.Context, call evaluation.Call, action string, by approval.Approver, c *capability.Capability) error {
	about, err := described(&c.Terms, i.now())
	if err != nil {
		return err
	}
	about["holder"], about["issuer"], about["tools"], about["template"] = c.Holder, c.Issuer, c.Tools, c.Template
	properties, err := json.Marshal(about, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	permitted, err := i.engine.MayDecide(ctx, call, &authzen.EvaluationRequest{
		Subject: authzen.Subject{Type: by.Type, ID: by.ID}, Action: authzen.Action{Name: action},
		Resource: authzen.Resource{Type: string(snapshot.TypeCapability), ID: c.ID, Properties: properties},
	})
	switch {
	case err != nil:
		return err
	case !permitted:
		return fmt.Errorf("%w: evaluation %s", errMayNot, call.ID)
	}
	return nil
}
