package approval

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Verify reports whether the approval in a request's claim was issued by this
// service and covers the request. An invalid claim is never an error: it yields a
// status with the reason of the rejection.
func (s *Service) Verify(ctx context.Context, v *authzen.Reevaluation) (authzen.ApprovalStatus, error) {
	id, digest, ok := s.claimed(v)
	if !ok {
		return authzen.ApprovalStatus{Reason: authzen.ReasonApprovalUnverifiable}, nil
	}
	r, i, err := s.approved(ctx, id)
	if errors.Is(err, ErrUnknownApproval) {
		return s.unknown(ctx, v, id)
	}
	if err != nil {
		return authzen.ApprovalStatus{}, err
	}
	use := useOf(v)
	if refused := r.checkUse(i, v, use, digest); refused.Reason != "" {
		return refused, nil
	}
	if item := r.Items[i]; item.Terms.PinRevision && item.Revision != v.Revision {
		return ended(toldSuperseded), s.supersede(ctx, r, i, v)
	}
	return authzen.ApprovalStatus{Approval: r.verified(i, use), Consume: func(ctx context.Context) error { return s.markUsed(ctx, r.ID, i, v, use) }}, nil
}

// Explanations for people of an approval that has ended. The profile defines one
// machine-readable reason for all of them.
const (
	toldExpired    = "The approval has expired."
	toldUsedUp     = "The approval has been used up."
	toldRevoked    = "The approval has been revoked."
	toldSuperseded = "The approval was given under other policies."
)

func ended(told string) authzen.ApprovalStatus {
	return authzen.ApprovalStatus{Reason: authzen.ReasonApprovalExpired, Explanation: told}
}

// claimed returns the id of the claimed approval, and the digest of the call's
// arguments if the PEP says it. It reports false if the claim has a state that this
// service did not sign for that approval.
func (s *Service) claimed(v *authzen.Reevaluation) (id, digest string, ok bool) {
	var claim struct {
		ID     string         `json:"id"`
		State  jsontext.Value `json:"state"`
		Digest string         `json:"urn:policy-service:arguments_digest"`
	}
	if err := json.Unmarshal(v.Claim, &claim); err != nil || claim.ID == "" {
		return "", "", false
	}
	if claim.State == nil {
		return claim.ID, claim.Digest, true
	}
	var token string
	var said state
	if json.Unmarshal(claim.State, &token) != nil || s.ring().verify(typeApproval, token, &said) != nil {
		return "", "", false
	}
	base := s.base(v.Tenant)
	return claim.ID, claim.Digest, said.ID == claim.ID && said.Issuer == base && said.Audience == base
}

// unknown returns the reason why an id that names no approval is rejected. A PEP
// that sent the id of its pending task only has to wait.
func (s *Service) unknown(ctx context.Context, v *authzen.Reevaluation, id string) (authzen.ApprovalStatus, error) {
	r, err := s.Request(ctx, id)
	switch {
	case errors.Is(err, ErrUnknownTask):
	case err != nil:
		return authzen.ApprovalStatus{}, err
	case r.Tenant == v.Tenant && r.Caller == v.Caller && r.Status() == authzen.TaskPending:
		return authzen.ApprovalStatus{Reason: authzen.ReasonGrantPending}, nil
	}
	return authzen.ApprovalStatus{Reason: authzen.ReasonApprovalUnverifiable}, nil
}

// checkUse returns the reason why the approval of an item is not valid for a
// request. The reason is empty if the approval is valid. To other tenants the
// approval does not exist.
func (r *Request) checkUse(i int, v *authzen.Reevaluation, use Use, digest string) authzen.ApprovalStatus {
	item := &r.Items[i]
	left, counted := item.Approval.left(item.Terms.Uses, use)
	switch {
	case r.Tenant != v.Tenant:
		return authzen.ApprovalStatus{Reason: authzen.ReasonApprovalUnverifiable}
	case r.Caller != v.Caller, !r.covers(item, v.Request, digest):
		return authzen.ApprovalStatus{Reason: authzen.ReasonOutOfScope}
	case item.Approval.Ended == endRevoked:
		return ended(toldRevoked)
	case item.Approval.Ended != "":
		return ended(toldSuperseded)
	case !item.Approval.stands(v.Time):
		return ended(toldExpired)
	case counted && left == 0:
		return ended(toldUsedUp)
	}
	return authzen.ApprovalStatus{}
}

// covers reports whether a request is in the scope of an item. In the scope of a
// resource type the context may differ, except for the members that the template
// names. digest is that of the arguments, as the PEP says it.
func (r *Request) covers(i *Item, of *authzen.EvaluationRequest, digest string) bool {
	actors, err := actorsOf(of.Subject)
	if err != nil || !slices.Equal(actors, r.Actors) {
		return false
	}
	if i.Edit != nil {
		return r.coversEdited(i, of, digest)
	}
	if i.Terms.Scope == authzen.ScopeResourceType {
		return sameSubject(r.Subject, of.Subject) && i.Resource.Type == of.Resource.Type && i.Action.Name == of.Action.Name &&
			(i.Bound.Whole || i.Bound.covers(of.Context, false))
	}
	return i.sameCall(r.Subject, of) && i.Bound.covers(of.Context, false)
}

// verified returns the properties of an item's approval that policies can read.
func (r *Request) verified(i int, use Use) *authzen.VerifiedApproval {
	item := &r.Items[i]
	v := &authzen.VerifiedApproval{ID: item.Approval.ID, Task: r.ID, Template: item.Template, Until: item.Approval.Until}
	if left, counted := item.Approval.left(item.Terms.Uses, use); counted {
		v.UsesLeft = left
	}
	for _, vote := range item.Votes {
		v.Approvers = append(v.Approvers, vote.Approver)
		v.Channel = vote.Channel
	}
	return v
}

// markUsed records a use of an approval.
func (s *Service) markUsed(ctx context.Context, id string, i int, v *authzen.Reevaluation, use Use) error {
	_, err := s.apply(ctx, id, event{kind: eventUse, caller: v.Caller, items: []int{i}, use: use, usedBy: v.EvaluationID})
	if errors.Is(err, ErrTaskState) {
		return authzen.ErrApprovalEnded
	}
	return err
}

// supersede ends an approval that was granted under another policy revision.
func (s *Service) supersede(ctx context.Context, r *Request, i int, v *authzen.Reevaluation) error {
	_, err := s.apply(ctx, r.ID, event{kind: eventSupersede, caller: v.Caller, items: []int{i}, reason: "the policies are now " + v.Revision})
	if errors.Is(err, ErrTaskState) { // a concurrent request ended it
		return nil
	}
	return err
}

// Approved returns the request behind an approval, for administrators.
func (s *Service) Approved(ctx context.Context, id string) (*Request, error) {
	r, _, err := s.approved(ctx, id)
	return r, err
}

// approved returns the request behind an approval, and the index of its item.
func (s *Service) approved(ctx context.Context, id string) (r *Request, i int, err error) {
	err = s.view(ctx, func(tx txn) (err error) {
		r, i, err = tx.approved(id)
		return err
	})
	return r, i, err
}
