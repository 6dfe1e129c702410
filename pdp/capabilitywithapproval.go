package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// decideWith records a vote that approves, and issues a capability for the same tools to the requester.
// Policies are asked about both before anything is recorded. The approval is recorded first: a
// capability never exists without it. If the service fails between the two, the call is approved and
// the capability does not exist.
func (i *capabilityIssuer) decideWith(ctx context.Context, id string, by approval.Approver, vote *Vote) (out AccessRequest, err error) {
	if vote.Decision.Decision != "approve" {
		return out, authzen.Invalid("/capability", "needs the decision approve")
	}
	var granted capabilityWithApproval
	r, err := i.approvals.DecideIf(ctx, id, by, vote.Decision, func(ctx context.Context, outcome *approval.Request, items []int) error {
		if granted, err = i.capabilityWithApproval(outcome, items, vote); err != nil {
			return err
		}
		return i.mayGrantWith(ctx, by, &granted)
	})
	if err != nil {
		return out, err
	}
	for _, n := range granted.items {
		granted.grant.ApprovalIDs = append(granted.grant.ApprovalIDs, r.Items[n].Approval.ID)
	}
	granted.grant.Issuer, granted.grant.Approvers = &by.Subject, []authzen.Subject{by.Subject}
	made, err := i.store.Issue(ctx, granted.pep, "", granted.terms, granted.grant)
	if err != nil {
		return out, fmt.Errorf("the request is approved, but the capability is not issued: %w", err)
	}
	shown := adminCapability(made)
	return AccessRequest{Request: *r, Capability: &shown}, nil
}

// A capabilityWithApproval is a capability that is about to be issued beside an approval.
type capabilityWithApproval struct {
	items []int             // of the request
	pep   capability.Caller // that asked for the approval
	terms capability.Terms
	grant capability.Grant
}

// capabilityWithApproval returns the capability that a vote grants to the requester. The error is a
// [authzen.ValidationError] if the items are about no tool, or if it would last longer than their
// templates allow.
func (i *capabilityIssuer) capabilityWithApproval(r *approval.Request, items []int, vote *Vote) (b capabilityWithApproval, err error) {
	b = capabilityWithApproval{
		items: items, pep: capability.Caller{Tenant: r.Tenant, ID: r.Caller},
		terms: capability.Terms{Holder: authzen.Subject{Type: r.Subject.Type, ID: r.Subject.ID}, Reason: vote.Comment},
		grant: capability.Grant{Task: r.ID, Template: r.Items[items[0]].Template, Revision: i.engine.Revision(r.Tenant)},
	}
	if vote.Capability.Duration < 1 || vote.Capability.Duration > maxSeconds {
		return b, authzen.Invalid("/capability/duration", "must be 1 to %d", maxSeconds)
	}
	b.terms.Duration.Duration = time.Duration(vote.Capability.Duration) * time.Second
	b.terms.Constraints.MaxUses = int(vote.Capability.MaxUses)
	for _, n := range items {
		item := &r.Items[n]
		if item.Status != authzen.TaskApproved {
			return b, authzen.Invalid("/capability", "needs the vote that approves the request: item %d has %d of %d", n, len(item.Votes), item.Terms.Quorum)
		}
		if most := longest(&item.Terms); b.terms.Duration.Duration > most {
			return b, authzen.Invalid("/capability/duration", "is longer than the %d seconds that are allowed here", int64(most.Seconds()))
		}
		if item.Template != b.grant.Template {
			b.grant.Template = ""
		}
		tool, err := toolOf(r, n)
		if err != nil {
			return b, err
		}
		if !slices.Contains(b.terms.Tools, tool) {
			b.terms.Tools = append(b.terms.Tools, tool)
		}
	}
	return b, underCapability(i.store.CheckIssue(b.pep, b.terms))
}

// toolOf returns the tool of an item.
func toolOf(r *approval.Request, n int) (string, error) {
	if r.Items[n].Action.Name == authzen.ActionCapabilityRequest {
		return "", authzen.Invalid("/capability", "cannot be granted here: item %d asks for a capability itself", n)
	}
	denied, err := r.Denied(n)
	if err != nil {
		return "", err
	}
	tool, ok := denied.Tool()
	if !ok {
		return "", authzen.Invalid("/capability", "needs a request about a tool: item %d is about none", n)
	}
	return tool, nil
}

// underCapability returns an error about terms with its path in a vote.
func underCapability(err error) error {
	var invalid *authzen.ValidationError
	switch {
	case !errors.As(err, &invalid):
		return err
	case invalid.Path == "/constraints/maxUses":
		return authzen.Invalid("/capability/maxUses", "%s", invalid.Reason)
	}
	return authzen.Invalid("/capability", "cannot be issued: %s %s", invalid.Path, invalid.Reason)
}

// mayGrantWith returns errMayNot unless policies let this person issue the capability.
func (i *capabilityIssuer) mayGrantWith(ctx context.Context, by approval.Approver, b *capabilityWithApproval) error {
	call := evaluation.Call{ID: evaluation.NewDecisionID(), Tenant: b.pep.Tenant, Caller: by.Caller, RequestID: by.RequestID, TraceID: by.TraceID}
	b.pep.RequestID, b.grant.EvaluationIDs = by.RequestID, []string{call.ID}
	return i.mayGrant(ctx, call, by, &b.terms, b.grant.Template)
}

// endApprovals revokes the approvals that an active capability was issued with, as far as they can still
// be used, and returns their ids. They end before the capability: if the service fails between the two,
// the capability can be revoked again.
func (i *capabilityIssuer) endApprovals(ctx context.Context, c *capability.Capability, by approval.Approver, why string) (ids []string, err error) {
	if c.State != capability.Active {
		return nil, nil
	}
	for _, id := range c.ApprovalIDs {
		revoked, err := i.approvals.RevokeUsable(ctx, id, by, why)
		if err != nil {
			return ids, err
		}
		if revoked {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// endRefreshed ends the approvals of the capability that one with these terms refreshes. They end before
// it does, as with a revocation.
func (i *capabilityIssuer) endRefreshed(ctx context.Context, terms *capability.Terms, caller string) error {
	if terms.Refreshes == "" {
		return nil
	}
	old, err := i.store.Get(ctx, terms.Refreshes)
	if err == nil {
		_, err = i.endApprovals(ctx, old, approval.Approver{Caller: caller}, "its capability was refreshed")
	}
	return ended(err)
}

// endApproved revokes the capability that was issued with an approval, if there is one.
func (i *capabilityIssuer) endApproved(ctx context.Context, approvalID string, by approval.Approver, why string) error {
	found, err := i.store.ByApproval(ctx, approvalID)
	if err == nil {
		_, err = i.store.Revoke(ctx, found.ID, capability.Actor{Subject: by.Subject, Caller: by.Caller, RequestID: by.RequestID}, why)
	}
	return ended(err)
}
