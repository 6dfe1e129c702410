package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Actions of approvers, as policies name them.
const (
	actionApprove = "approval.approve"
	actionDeny    = "approval.deny"
	actionRevoke  = "approval.revoke"

	actionDelegate = "approval.delegate"

	// typeRequest is the entity type of an Access Request as resource of such an action.
	typeRequest = "access_request"
)

// A Decision is an approver's decision on a request.
type Decision struct {
	Decision string    `json:"decision"` // approve, deny or delegate
	Comment  string    `json:"comment,omitzero"`
	Items    []int     `json:"items,omitempty"`         // indexes of the items of a bulk request; empty means all
	Until    time.Time `json:"approved_until,omitzero"` // ends the approval earlier than the template does
	To       *Person   `json:"to,omitempty"`            // of a delegation
	Sheet    string    `json:"sheet,omitzero"`          // digest of the sheet that the approver was shown; "" if unknown
	// Policies is the revision in force when the approver was shown the request; "" if unknown. To deny, it does
	// not matter.
	Policies string `json:"policies,omitzero"`

	// Arguments are values for arguments of the call that the template lets approvers change.
	Arguments jsontext.Value `json:"arguments,omitzero"`
}

// check refuses a decision that is malformed.
func (d *Decision) check(now time.Time) error {
	switch {
	case !slices.Contains([]string{decisionApprove, decisionDeny, decisionDelegate}, d.Decision):
		return authzen.Invalid("/decision", "must be approve, deny or delegate")
	case (d.To != nil) != (d.Decision == decisionDelegate):
		return authzen.Invalid("/to", "is for the decision delegate, and only for it")
	case d.To != nil && (d.To.Type == "" || d.To.ID == ""):
		return authzen.Invalid("/to", "needs a type and an id")
	case !d.Until.IsZero() && d.Decision == decisionDelegate:
		return authzen.Invalid("/approved_until", "is for the decision approve")
	case !d.Until.IsZero() && !d.Until.After(now):
		return authzen.Invalid("/approved_until", "has passed")
	case d.Sheet != "" && !digestShape.MatchString(d.Sheet):
		return authzen.Invalid("/sheet", "must be the digest of a sheet: sha256: and 64 hexadecimal digits")
	}
	return checkComment("/comment", d.Comment)
}

// event returns what a decision does to a request.
func (d *Decision) event(by Approver) event {
	vote := by.vote()
	vote.Approve, vote.Comment, vote.Sheet = d.Decision == decisionApprove, d.Comment, d.Sheet
	e := event{kind: eventVote, caller: by.Caller, items: d.Items, vote: vote, clients: by.Clients, until: d.Until.UTC()}
	if d.To != nil {
		e.kind, e.to = eventDelegate, authzen.Subject{Type: d.To.Type, ID: d.To.ID}
	}
	return e
}

// Values of Decision.Decision.
const (
	decisionApprove  = "approve"
	decisionDeny     = "deny"
	decisionDelegate = "delegate"
)

// maxComment is the maximum length of a comment or reason in bytes. The service stores and records
// it, and may send it to the requester.
const maxComment = 4096

// checkComment refuses a text that is too long. path is the place of the text in the request.
func checkComment(path, text string) error {
	if len(text) > maxComment {
		return authzen.Invalid(path, "is longer than %d bytes", maxComment)
	}
	return nil
}

// Channels of a decision.
const (
	ChannelAdmin   = "admin"   // from an approver, by the admin API
	ChannelConsole = "console" // from an approver, by a page of the console
	channelPolicy  = "policy"  // at submission, by the template's auto approver
)

// A Condition refuses a vote with an error, although it could count. It gets the request as the vote
// would leave it, and the indexes of the items that the vote concerns.
type Condition func(ctx context.Context, outcome *Request, items []int) error

// Decide applies an approver's decision to a pending request, if policies allow this approver.
func (s *Service) Decide(ctx context.Context, id string, by Approver, d Decision) (*Request, error) {
	return s.DecideIf(ctx, id, by, d, nil)
}

// DecideIf is [Service.Decide] with a condition, which is checked before policies are asked about the
// vote and before anything is recorded. If it is nil, the vote has none.
func (s *Service) DecideIf(ctx context.Context, id string, by Approver, d Decision, condition Condition) (*Request, error) {
	if err := d.check(s.now()); err != nil {
		return nil, err
	}
	r, err := s.Request(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.checkSheet(r, &d); err != nil {
		return nil, err
	}
	if d.Policies != "" && d.Decision != decisionDeny && d.Policies != s.revision(r.Tenant) {
		return nil, ErrPolicies
	}
	e := d.event(by)
	if e.edit, err = s.edited(r, &d); err != nil {
		return nil, err
	}
	return s.vote(ctx, r, by, e, condition)
}

// askAtOnce submits votes for the auto approvers of the templates. The same policies apply to them
// as to people. Items that they do not approve wait for an approver, even if the policies could not
// be evaluated.
func (s *Service) askAtOnce(ctx context.Context, r *Request) error {
	for i, item := range r.Items {
		if item.Terms.AutoApprover == nil {
			continue
		}
		vote := Vote{Approver: *item.Terms.AutoApprover, Approve: true, Channel: channelPolicy}
		by := Approver{Subject: *item.Terms.AutoApprover, Caller: r.Caller}
		_, err := s.vote(ctx, r, by, event{kind: eventVote, caller: r.Caller, items: []int{i}, vote: vote}, nil)
		if err != nil && !errors.Is(err, ErrIneligible) && !errors.Is(err, ErrTaskState) && !errors.Is(err, ErrUndecidable) {
			return err
		}
	}
	return nil
}

// vote applies a vote to all its items or to none. It checks that the vote can count before it asks
// policies: their permit in the log would look like an approval.
func (s *Service) vote(ctx context.Context, r *Request, by Approver, e event, condition Condition) (*Request, error) {
	concerned := e.items
	if concerned == nil {
		concerned = r.pending()
	}
	for _, i := range concerned {
		if i < 0 || i >= len(r.Items) {
			return nil, authzen.Invalid("/items", "has no element %d", i)
		}
	}
	e.newID = func() string { return "apr_" + s.config.NewID() }
	outcome, err := next(*r, e, s.now())
	if errors.Is(err, ErrIneligible) {
		return nil, s.refuse(ctx, r, e, strings.TrimPrefix(err.Error(), ErrIneligible.Error()+": "))
	}
	if err != nil {
		return nil, err
	}
	if r.involves(slices.Concat(e.vote.names(), e.clients)) {
		return nil, s.refuse(ctx, r, e, "it is the requester's own")
	}
	if e.action() != actionDeny && !r.provedFor(e.vote.Authn, concerned) {
		return nil, s.refuse(ctx, r, e, "its template requires a new sign-in at the identity provider of the console, for this decision alone")
	}
	if e.kind == eventDelegate {
		err := s.checkDelegate(r, by, e.to, concerned)
		if err == nil {
			err = s.checkDelegateDecides(ctx, &outcome, by, e.to, concerned)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := s.checkPinned(r, &e, concerned); err != nil {
		return nil, err
	}
	if condition != nil {
		if err := condition(ctx, &outcome, concerned); err != nil {
			return nil, err
		}
	}
	for _, i := range concerned {
		if err := s.may(ctx, e.action(), by, r, &outcome.Items[i]); err != nil {
			return nil, err
		}
	}
	return s.apply(ctx, r.ID, e)
}

// provedFor reports whether a proof is strong enough for items: a template may require one that is bound to the
// decision.
func (r *Request) provedFor(proof *Authn, items []int) bool {
	return proof != nil && proof.Bound || !slices.ContainsFunc(items, func(i int) bool { return r.Items[i].Terms.StepUp })
}

// checkPinned refuses to approve what no request could use: the template pins the policies that denied, and
// others are active.
func (s *Service) checkPinned(r *Request, e *event, items []int) error {
	for _, i := range items {
		if e.action() == actionApprove && s.isOutdated(r, &r.Items[i]) {
			return fmt.Errorf("%w: the policies have changed since the denial, and its template pins them; the call has to be made again", ErrTaskState)
		}
	}
	return nil
}

// isOutdated reports whether an item pins policies that are no longer active.
func (s *Service) isOutdated(r *Request, i *Item) bool {
	return i.Terms.PinRevision && s.config.Revision != nil && s.config.Revision(r.Tenant) != i.Revision
}

// action returns the action that policies decide on before the event.
func (e *event) action() string {
	switch {
	case e.kind == eventDelegate:
		return actionDelegate
	case e.vote.Approve:
		return actionApprove
	}
	return actionDeny
}

// refuse records that a vote was refused before policies were asked: their permit in the log would
// look like an approval.
func (s *Service) refuse(ctx context.Context, r *Request, e event, why string) error {
	e.kind, e.reason = eventRefuse, why
	err := s.transact(ctx, func(tx txn) error { return outbox.Append(tx.Tx, transition(r, e, s.moment())) })
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrIneligible, why)
}

// may returns ErrIneligible unless policies allow the approver this action on the item.
func (s *Service) may(ctx context.Context, action string, by Approver, r *Request, i *Item) error {
	question, err := r.question(action, by, i)
	if err != nil {
		return err
	}
	permitted, err := s.config.CanApprove(ctx, Check{Tenant: r.Tenant, Caller: by.Caller, RequestID: by.RequestID, TraceID: by.TraceID, Request: question})
	var invalid *authzen.ValidationError
	switch {
	case errors.As(err, &invalid):
		return undecidable(invalid)
	case err != nil:
		return fmt.Errorf("ask who may decide: %w", err)
	case !permitted:
		return ErrIneligible
	}
	return nil
}

// undecidable explains why policies cannot decide on a request. The fault is in the policies'
// schema, not in the approver's input, so the path in the error does not help the approver.
func undecidable(e *authzen.ValidationError) error {
	member := strings.TrimPrefix(strings.TrimPrefix(e.Path, "/resource"), "/properties/")
	member = strings.TrimSuffix(strings.ReplaceAll(member, "/", "."), ".type")
	return fmt.Errorf("%w: the schema says that %s of %s %s; the schema has to allow it before anybody can decide", ErrUndecidable, member, typeRequest, e.Reason)
}

// question returns the evaluation that asks policies whether an approver may do action to an item.
func (r *Request) question(action string, by Approver, i *Item) (*authzen.EvaluationRequest, error) {
	type id struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	context, err := i.shown(r.Context)
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	actor := ""
	if len(r.Actors) > 0 {
		actor = r.Actors[0].ID
	}
	attributes := map[string]any{
		"template": i.Template, "requester": id{r.Subject.Type, r.Subject.ID}, "actor": actor,
		"action": i.Action.Name, "resource_type": i.Resource.Type, "resource_id": i.Resource.ID,
		"resource": id{i.Resource.Type, i.Resource.ID},
		"context":  context,
	}
	if to := i.delegate(); to != nil {
		attributes["delegate"] = id{to.Type, to.ID}
		if vote := by.vote(); vote.isOf(to) {
			attributes["delegate"] = id{by.Type, by.ID} // as the principal, whatever name the delegation had
		}
	}
	properties, err := json.Marshal(attributes, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	return &authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: by.Type, ID: by.ID},
		Action:   authzen.Action{Name: action},
		Resource: authzen.Resource{Type: typeRequest, ID: r.ID, Properties: properties},
	}, nil
}

// Revoke revokes an approval with immediate effect.
func (s *Service) Revoke(ctx context.Context, approvalID string, by Approver, reason string) (*Request, error) {
	return s.RevokeAfter(ctx, approvalID, by, reason, func(context.Context) error { return nil })
}

// RevokeAfter is [Service.Revoke] after first, which ends what exists because of the approval. first is
// called when policies have permitted the revocation. If it fails, the approval stays.
func (s *Service) RevokeAfter(ctx context.Context, approvalID string, by Approver, reason string, first func(context.Context) error) (*Request, error) {
	if err := checkComment("/reason", reason); err != nil {
		return nil, err
	}
	r, i, err := s.approved(ctx, approvalID)
	if err != nil {
		return nil, err
	}
	e := event{kind: eventRevoke, caller: by.Caller, items: []int{i}, vote: by.vote(), reason: reason}
	if _, err := next(*r, e, s.now()); err != nil {
		return nil, err
	}
	if err := s.may(ctx, actionRevoke, by, r, &r.Items[i]); err != nil {
		return nil, err
	}
	if err := first(ctx); err != nil {
		return nil, err
	}
	return s.apply(ctx, r.ID, e)
}

// RevokeUsable revokes an approval with immediate effect if it can still be used, and reports whether it
// did. It asks no policies: it is for whoever ends what was granted beside the approval.
func (s *Service) RevokeUsable(ctx context.Context, approvalID string, by Approver, reason string) (revoked bool, err error) {
	if err := checkComment("/reason", reason); err != nil {
		return false, err
	}
	r, i, err := s.approved(ctx, approvalID)
	if errors.Is(err, ErrUnknownApproval) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	item := &r.Items[i]
	if left, counted := item.Approval.left(item.Terms.Uses, Use{}); counted && left == 0 {
		return false, nil
	}
	e := event{kind: eventRevoke, caller: by.Caller, items: []int{i}, reason: reason}
	if by.ID != "" {
		e.vote = by.vote()
	}
	_, err = s.apply(ctx, r.ID, e)
	if errors.Is(err, ErrTaskState) { // it has ended
		return false, nil
	}
	return err == nil, err
}

// Cancel cancels the pending items of a request, for the caller that submitted it.
func (s *Service) Cancel(ctx context.Context, c Caller, id string, why authzen.Cancellation) (*authzen.TaskResponse, error) {
	if err := errors.Join(checkComment("/reason", why.Reason), checkComment("/comment", why.Comment)); err != nil {
		return nil, err
	}
	if _, err := s.own(ctx, c, id); err != nil {
		return nil, err
	}
	if _, err := s.apply(ctx, id, event{kind: eventCancel, caller: c.ID, reason: why.Reason, vote: Vote{Comment: why.Comment}}); err != nil {
		return nil, err
	}
	return s.Status(ctx, c, id)
}

// apply stores the result of an event and its record in one transaction.
func (s *Service) apply(ctx context.Context, id string, e event) (*Request, error) {
	var after Request
	err := s.transact(ctx, func(tx txn) error {
		before, err := tx.request(id)
		if err != nil {
			return err
		}
		at := s.moment()
		if after, err = next(*before, e, at.Truncate(time.Second)); err != nil {
			return err
		}
		record := transition(&after, e, at)
		after.entered(e, at.Truncate(time.Second), record.ID)
		if err := tx.put(before, &after); err != nil {
			return err
		}
		if err := tx.countDecided(before, &after, at); err != nil {
			return err
		}
		return outbox.Append(tx.Tx, record)
	})
	if err != nil {
		return nil, err
	}
	return &after, nil
}

// entered adds the id of the entry of a vote to the vote.
func (r *Request) entered(e event, at time.Time, entry string) {
	if e.kind != eventVote {
		return
	}
	for i := range r.Items {
		votes := r.Items[i].Votes
		if len(votes) == 0 {
			continue
		}
		if last := &votes[len(votes)-1]; last.Approver.ID == e.vote.Approver.ID && last.Time.Equal(at) && last.Entry == "" {
			last.Entry = entry
		}
	}
}
