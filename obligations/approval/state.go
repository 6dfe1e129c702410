package approval

import (
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An event is something that happens to a request.
type event struct {
	kind    eventKind
	caller  string          // the credential that caused it; "" if none or unknown
	items   []int           // affected items; nil means all pending ones
	vote    Vote            // of a vote
	clients []string        // of a vote: names of the client that the approver uses
	until   time.Time       // of a vote: the approver's limit on the approval, or zero
	to      authzen.Subject // of a delegation; the vote has who delegates
	edit    *Edit           // of a vote: the arguments that the approver changed
	newID   func() string   // of a vote
	use     Use             // of a use
	usedBy  string          // of a use: Decision-ID of the evaluation
	reason  string          // of a revocation or supersession
}

type eventKind string

const (
	eventVote      eventKind = "vote"
	eventDelegate  eventKind = "delegate"
	eventCancel    eventKind = "cancel"
	eventExpire    eventKind = "expire"
	eventEscalate  eventKind = "escalate"
	eventUse       eventKind = "use"
	eventRevoke    eventKind = "revoke"
	eventSupersede eventKind = "supersede"
	eventRefuse    eventKind = "refuse"      // a vote that does not count; it changes nothing
	eventNotify    eventKind = "notify"      // a callback was delivered
	eventNotNotify eventKind = "notify_fail" // a callback failed
)

// next returns the request after an event, and implements the complete state machine. It returns
// ErrTaskState if the state does not allow the event. It does not modify r.
func next(r Request, e event, now time.Time) (Request, error) {
	r.Items = slices.Clone(r.Items)
	switch e.kind {
	case eventEscalate:
		return r.escalated(now)
	case eventNotify, eventNotNotify:
		return r.notified(e.kind == eventNotify, now)
	}
	wasPending := r.Status() == authzen.TaskPending
	concerned := e.items
	if concerned == nil {
		concerned = r.pending()
	}
	if len(concerned) == 0 {
		return r, fmt.Errorf("%w: it is %s", ErrTaskState, r.Status())
	}
	for _, i := range concerned {
		if i < 0 || i >= len(r.Items) {
			return r, fmt.Errorf("%w: there is no item %d", ErrTaskState, i)
		}
		item, err := r.Items[i].next(&r, e, now)
		if err != nil {
			return r, err
		}
		r.Items[i] = item
	}
	if wasPending && wants(r.Callback, r.Status()) {
		r.Notice = &Notice{Due: now}
	}
	return r, nil
}

// maxAttempts is the maximum number of callback attempts. After them the PEP has to poll.
const maxAttempts = 8

// notified records a callback attempt. The delay doubles after each failed attempt.
func (r Request) notified(delivered bool, now time.Time) (Request, error) {
	if r.Notice == nil {
		return r, ErrTaskState
	}
	attempts := r.Notice.Attempts + 1
	if r.Notice = nil; !delivered && attempts < maxAttempts {
		r.Notice = &Notice{Due: now.Add(time.Second << attempts), Attempts: attempts}
	}
	return r, nil
}

// wants reports whether a callback was requested for that status.
func wants(c *authzen.Callback, status authzen.TaskStatus) bool {
	return c != nil && status != authzen.TaskPending && (len(c.Events) == 0 || slices.Contains(c.Events, string(status)))
}

func (r Request) escalated(now time.Time) (Request, error) {
	if r.Escalated || r.EscalateAt.IsZero() || now.Before(r.EscalateAt) || r.Status() != authzen.TaskPending {
		return r, ErrTaskState
	}
	r.Escalated = true
	return r, nil
}

func (i Item) next(r *Request, e event, now time.Time) (Item, error) {
	switch e.kind {
	case eventUse, eventRevoke, eventSupersede:
		approval, err := i.Approval.next(e, i.Terms.Uses, now)
		i.Approval = approval
		return i, err
	}
	overdue := !now.Before(r.DecideBy)
	if i.Status != authzen.TaskPending || overdue != (e.kind == eventExpire) {
		return i, fmt.Errorf("%w: it is %s", ErrTaskState, i.Status)
	}
	names := e.vote.names()
	if slices.ContainsFunc(i.Votes, func(v Vote) bool { return e.vote.Approver.ID != "" && v.by(names) }) {
		return i, fmt.Errorf("%w: this approver has decided already", ErrTaskState)
	}
	if to := i.delegate(); to != nil && e.vote.Approver.ID != "" && !e.vote.isOf(to) {
		return i, fmt.Errorf("%w: it is delegated to %s::%q", ErrIneligible, to.Type, to.ID)
	}
	switch e.kind {
	case eventVote:
		return i.voted(r, e, now)
	case eventDelegate:
		return i.delegated(e, now)
	case eventCancel:
		i.Status = authzen.TaskCancelled
	case eventExpire:
		i.Status = authzen.TaskExpired
	}
	return i, nil
}

// voted counts a vote. One denial denies the item. A quorum of approvals by different people
// approves it.
func (i Item) voted(r *Request, e event, now time.Time) (Item, error) {
	if e.edit != nil && i.Terms.Quorum > 1 {
		return i, fmt.Errorf("%w: several people approve, and one cannot change the arguments for the others", ErrTaskState)
	}
	e.vote.Time = now
	i.Votes = append(slices.Clone(i.Votes), e.vote)
	switch {
	case !e.vote.Approve:
		i.Status = authzen.TaskDenied
	case len(i.Votes) >= max(i.Terms.Quorum, 1):
		i.Status, i.Edit = authzen.TaskApproved, e.edit
		i.Approval = &Approval{ID: e.newID(), At: now, Until: earliest(now.Add(i.Terms.TTL.Duration), i.Until, e.until)}
	}
	return i, nil
}

// next returns the approval after an event.
func (a *Approval) next(e event, uses int, now time.Time) (*Approval, error) {
	if !a.stands(now) {
		return a, fmt.Errorf("%w: the approval has ended", ErrTaskState)
	}
	changed := *a
	switch e.kind {
	case eventRevoke:
		changed.Ended, changed.Reason = endRevoked, e.reason
	case eventSupersede:
		changed.Ended, changed.Reason = endSuperseded, e.reason
	case eventUse:
		left, counted := a.left(uses, e.use)
		switch {
		case counted && left == 0:
			return a, fmt.Errorf("%w: the approval is used up", ErrTaskState)
		case counted && !a.repeated(e.use):
			changed.Uses = append(slices.Clone(a.Uses), e.use)
		}
	}
	return &changed, nil
}

// stands reports whether an approval is valid. It ignores uses.
func (a *Approval) stands(now time.Time) bool {
	return a != nil && a.Ended == "" && now.Before(a.Until)
}

// earliest returns the earliest of first and the non-zero others.
func earliest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

func sameEntity(a, b authzen.Entity) bool { return a.Type == b.Type && a.ID == b.ID }
