package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Suspend has a call wait for a person, or goes on with it once one has approved
// it. It is [enforce.Approver].
func (s *Service) Suspend(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
	state, err := s.open(d)
	if err != nil {
		return nil, err
	}
	if state != nil && state.Round > 0 {
		return s.continueRound(ctx, d, state)
	}
	r, err := s.find(ctx, d, state)
	if err != nil {
		return nil, explain(d, err)
	}
	if r.State == waiting && withdraws(d.Params) {
		s.refuse(ctx, r, enforce.ReasonWithdrawn)
	}
	if s.isLate(r) {
		s.expire(ctx, r)
	}
	notice := s.noticeFor(d, r, state)
	approvals, err := notice.wait(ctx, r)
	if approvals == nil {
		if err := s.heed(r); err != nil {
			return nil, err
		}
	}
	switch {
	case r.FulfilledBy != nil:
		return s.tellFulfilled(ctx, d, r, notice)
	case r.State == refused:
		return nil, ended(d.Refusal, r)
	case errors.Is(err, client.ErrNotApproved):
		s.deny(ctx, r, err)
		return nil, ended(d.Refusal, r)
	case approvals != nil:
		return s.resume(ctx, d, r, approvals, state)
	case err != nil && ctx.Err() == nil:
		s.cfg.Log.WarnContext(ctx, "ask for the state of an approval", "task", r.Task.Task.ID, "error", err)
	}
	return notice.tell(d, r)
}

// find returns the call that the client of a resume state was told about, and the one that
// any other attaches to.
func (s *Service) find(ctx context.Context, d *enforce.DeniedCall, state *resumeState) (*record, error) {
	if state == nil {
		return s.attachWaiting(ctx, d)
	}
	r, err := s.store.byHandle(state.Handle)
	if err != nil {
		return nil, err
	}
	if r == nil || !r.waits() && !r.untold() && r.State != refused {
		return nil, refusal(d.Refusal, enforce.ReasonSettled, "the approval that the call waited for has been used, or does not exist any more")
	}
	return r, nil
}

// explain makes an error of asking one that the caller can read.
func explain(d *enforce.DeniedCall, err error) error {
	var refused *enforce.Refusal
	if errors.As(err, &refused) {
		return refused
	}
	undecided := enforce.Undecided(err)
	undecided.Data.EvaluationID = d.Refusal.Data.EvaluationID
	if undecided.Data.Reason == enforce.ReasonPDP {
		undecided.Message = "a person would have to approve the call, and none can be asked"
	}
	return undecided
}

// ended says how it ended.
func ended(because *enforce.Refusal, r *record) *enforce.Refusal {
	messages := map[string]string{
		enforce.ReasonNotApproved: "the call was not approved",
		enforce.ReasonWithdrawn:   "the call was withdrawn",
		enforce.ReasonSuperseded:  "the tool is not the one that was to be approved",
	}
	refused := refusal(because, r.Reason, cmp.Or(messages[r.Reason], "access denied")) // by the policies, with the approval
	if refused.Data.Comment = plain.Text(r.Comment); r.Comment != "" {
		refused.Message += ": " + refused.Data.Comment
	}
	r.name(&refused.Data)
	return refused
}

// Bounds of the time between two looks at a task, where the PDP does not wait.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
	longPoll   = 20 * time.Second
	lastLook   = time.Second // for the look at the end
)

// pollOnce polls the approvals of a waiting call without waiting, see
// [Service.poll].
func (s *Service) pollOnce(ctx context.Context, r *record) (enforce.Approvals, error) {
	if !r.waits() {
		return nil, nil
	}
	asks := r.asks()
	approvals, err := s.poll(ctx, r.Tenant, asks, 0)
	r.hear(asks)
	return approvals, err
}

// await waits for the approvals of a call, so long at most. Neither approvals
// nor an error means that there are none yet.
func (s *Service) await(ctx context.Context, r *record, long time.Duration) (enforce.Approvals, error) {
	if !r.waits() {
		return nil, nil
	}
	if long <= 0 {
		return s.pollOnce(ctx, r)
	}
	ctx, cancel := context.WithTimeout(ctx, long+lastLook)
	defer cancel()
	if at := r.Authorization.Until(r.Created); !at.IsZero() {
		long = min(long, at.Sub(s.cfg.Now()))
	}
	until := time.Now().Add(long)
	asks := r.asks()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun := time.Now()
		approvals, err := s.poll(ctx, r.Tenant, asks, min(time.Until(until), longPoll))
		r.hear(asks)
		left := time.Until(until)
		switch {
		case approvals != nil || errors.Is(err, client.ErrNotApproved):
			return approvals, err
		case ctx.Err() != nil || left <= 0:
			return nil, err
		}
		select {
		case <-time.After(min(pause-min(time.Since(begun), pause), left)):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// resume carries out a call that is approved: the policies are asked again, and
// if they permit it with the approval, one of those who wait claims it.
func (s *Service) resume(ctx context.Context, d *enforce.DeniedCall, r *record, approvals enforce.Approvals, state *resumeState) (*enforce.Disposition, error) {
	question, approvals, err := s.edit(ctx, d.Call, r, d.Question, approvals)
	if err != nil {
		return nil, err
	}
	if err := s.permitted(ctx, d.Call, r, question, approvals); err != nil {
		return nil, err
	}
	m, err := s.assemble(r, d.Message, state)
	if err != nil {
		return nil, err
	}
	taken, trailID, end, err := s.claim(r, approvals)
	if errors.Is(err, errMoved) {
		return nil, refusal(d.Refusal, enforce.ReasonSettled, "the approval has been used")
	}
	if err != nil {
		return nil, err
	}
	return &enforce.Disposition{Forward: m, TrailID: trailID, Finish: func(ctx context.Context, response *wire.Message) *wire.Message {
		end(enforce.End(d.Call, response))
		if again := s.again(ctx, taken, response); again != nil {
			return again
		}
		response = r.tellApproval(response, approvals)
		s.recordOutcome(ctx, taken, response, nil)
		return response
	}}, nil
}

// permitted asks the policies about the call again, about all that was asked
// and at once, with the approvals. A call about a tool that has changed since is
// over. All who resume a call ask under its handle, so that the PDP counts one use
// of an approval however often they ask, and whatever else comes out.
func (s *Service) permitted(ctx context.Context, c *enforce.Call, r *record, q *enforce.Question, approvals enforce.Approvals) error {
	if s.cfg.Definition != nil && r.Method == wire.MethodToolsCall && s.cfg.Definition(r.Server, r.Name) != r.Definition {
		s.refuse(ctx, r, enforce.ReasonSuperseded)
		return ended(&enforce.Refusal{Code: wire.CodeParams, Status: 200}, r)
	}
	if s.isLate(r) {
		s.expire(ctx, r)
		return ended(&enforce.Refusal{Code: r.Code}, r)
	}
	if s.cfg.Results != nil {
		labelled, err := s.cfg.Results.Labelled(c, q)
		if err != nil {
			return err
		}
		q = labelled
	}
	again, err := q.Approved(approvals)
	if errors.Is(err, enforce.ErrOtherQuestion) { // the operator has the call mapped otherwise by now
		s.refuse(ctx, r, enforce.ReasonDenied)
		return ended(&enforce.Refusal{Code: r.Code}, r)
	}
	if err != nil {
		return err
	}
	ctx = enforce.WithRequestID(ctx, r.Handle)
	answer, err := s.cfg.PDP.Ask(ctx, r.Tenant, again)
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "no decision", "task", r.Task.Task.ID, "error", err)
		undecided := enforce.Undecided(err)
		r.name(&undecided.Data)
		return undecided
	}
	_, err = s.cfg.Checker.Permitted(ctx, c, again, answer)
	var denied *enforce.Refusal
	if !errors.As(err, &denied) {
		if err == nil {
			r.Denial = answer.EvaluationID // by now it is the permit
		}
		return err
	}
	if r.name(&denied.Data); isFinal(answer) {
		s.refuse(ctx, r, denied.Data.Reason) // the approvals do not lift it: the next call asks anew
		return denied
	}
	denied.Data.RetryAfter = 1
	return denied
}

// isFinal reports whether asking again with the same approvals is in vain.
func isFinal(a *enforce.Answer) bool {
	return slices.ContainsFunc(a.Decisions, func(d authzen.Decision) bool { return !d.Decision && client.Next(&d) != authzen.NextRetry })
}

// claim takes a call to be carried out, and keeps that it will be. Of all who
// try, one succeeds; the others get errMoved.
func (s *Service) claim(r *record, approvals enforce.Approvals) (taken *record, trailID string, end func(how string), err error) {
	taken, err = s.store.move(r, claimed, func(r *record) { r.Holder = s.cfg.Holder })
	if err != nil {
		return nil, "", nil, err
	}
	trailID, end, err = s.cfg.Trail.Begin(r.entry(approvals))
	if err != nil {
		_, lost := s.store.move(taken, unknown, nil)
		return nil, "", nil, errors.Join(fmt.Errorf("record the call: %w", err), lost)
	}
	return taken, trailID, end, nil
}

// recordOutcome stores the final state of a call that was claimed.
func (s *Service) recordOutcome(ctx context.Context, r *record, response *wire.Message, change func(*record)) {
	to := done
	if response == nil {
		to = unknown
	}
	if _, err := s.store.move(r, to, change); err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "task", r.Task.Task.ID, "error", err)
	}
}
