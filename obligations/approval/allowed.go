package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// What a person can do with a request.
const (
	MayApprove  = "approve"
	MayDeny     = "deny"
	MayDelegate = "delegate"
	MayRevoke   = "revoke"
)

// Why a person can neither approve nor deny a request.
const (
	WhyDecided      = "decided"       // no item is pending
	WhyExpired      = "expired"       // its time has passed
	WhyVoted        = "voted"         // this person has decided
	WhyOwnRequest   = "own_request"   // this person asks, or acts for whoever asks
	WhyDelegated    = "delegated"     // another person alone decides
	WhyNotPermitted = "not_permitted" // no policy permits it
	WhyUndecidable  = "undecidable"   // the policies' schema does not allow the question
	WhyOutdated     = "outdated"      // the template pins policies that are no longer active
)

// An Allowed says what a person can do with a request now. It is a hint, which nothing records: the
// service asks again when the person does it.
type Allowed struct {
	May    []string // some of approve, deny, delegate and revoke: for at least one item
	WhyNot string   // if May has neither approve nor deny, or for WhyOutdated if it has no approve
}

// Allowed returns what a person can do with a request.
func (s *Service) Allowed(ctx context.Context, r *Request, by Approver) (a Allowed, err error) {
	for _, action := range []string{MayApprove, MayDeny, MayDelegate} {
		why, err := s.whyNot(ctx, action, r, by)
		switch {
		case err != nil:
			return a, err
		case why == "":
			a.May = append(a.May, action)
		case action == MayApprove:
			a.WhyNot = why
		}
	}
	if a.decides() && a.WhyNot != WhyOutdated {
		a.WhyNot = ""
	}
	may, err := s.mayRevoke(ctx, r, by)
	if may {
		a.May = append(a.May, MayRevoke)
	}
	return a, err
}

// whyNot returns why a person can do nothing of that kind with any item of a request, or "" if the
// person can.
func (s *Service) whyNot(ctx context.Context, action string, r *Request, by Approver) (why string, err error) {
	why = WhyDecided
	for i := range r.Items {
		item := &r.Items[i]
		if item.Status != authzen.TaskPending {
			continue
		}
		if why, err = s.whyNotItem(ctx, action, r, item, by); why == "" || err != nil {
			return why, err
		}
	}
	return why, nil
}

// whyNotItem is whyNot for a pending item.
func (s *Service) whyNotItem(ctx context.Context, action string, r *Request, i *Item, by Approver) (why string, err error) {
	if why = r.whyNever(i, by, s.now()); why != "" {
		return why, nil
	}
	if action == MayApprove && s.isOutdated(r, i) {
		return WhyOutdated, nil
	}
	if action == MayDelegate {
		if _, err := i.delegated(event{vote: by.vote()}, s.now()); err != nil {
			return WhyNotPermitted, nil
		}
	}
	permitted, err := s.would(ctx, "approval."+action, r, i, by)
	switch {
	case errors.Is(err, ErrUndecidable):
		return WhyUndecidable, nil
	case err == nil && !permitted:
		why = WhyNotPermitted
	}
	return why, err
}

// whyNever returns why a person cannot decide on a pending item whatever policies say, or "".
func (r *Request) whyNever(i *Item, by Approver, now time.Time) string {
	vote := by.vote()
	switch to := i.delegate(); {
	case !now.Before(r.DecideBy):
		return WhyExpired
	case slices.ContainsFunc(i.Votes, func(v Vote) bool { return v.by(vote.names()) }):
		return WhyVoted
	case r.involves(slices.Concat(vote.names(), by.Clients)):
		return WhyOwnRequest
	case to != nil && !vote.isOf(to):
		return WhyDelegated
	}
	return ""
}

// mayRevoke reports whether a person can revoke an approval of a request.
func (s *Service) mayRevoke(ctx context.Context, r *Request, by Approver) (bool, error) {
	for i := range r.Items {
		item := &r.Items[i]
		if !item.usable(s.now()) {
			continue
		}
		if may, err := s.would(ctx, actionRevoke, r, item, by); may || err != nil && !errors.Is(err, ErrUndecidable) {
			return may, err
		}
	}
	return false, nil
}

// usable reports whether an item has an approval that can still be used.
func (i *Item) usable(now time.Time) bool {
	if !i.Approval.stands(now) {
		return false
	}
	left, counted := i.Approval.left(i.Terms.Uses, Use{})
	return !counted || left > 0
}

// would reports whether policies would allow a person an action on an item. It records nothing.
func (s *Service) would(ctx context.Context, action string, r *Request, i *Item, by Approver) (bool, error) {
	question, err := r.question(action, by, i)
	if err != nil {
		return false, err
	}
	permitted, err := s.config.WouldApprove(ctx, Check{Tenant: r.Tenant, Caller: by.Caller, Request: question})
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		err = undecidable(invalid)
	}
	return permitted, err
}
