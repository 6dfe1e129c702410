package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Suspend has a call wait for a person, or goes on with it once one has approved
// it. It is [enforce.Config.Suspend].
func (s *Service) Suspend(ctx context.Context, d *enforce.Denied) (*enforce.Verdict, error) {
	state, err := s.open(d)
	if err != nil {
		return nil, err
	}
	if state != nil && state.Round > 0 {
		return s.carryOn(ctx, d, state)
	}
	r, err := s.find(ctx, d, state)
	if err != nil {
		return nil, s.explain(ctx, d, err)
	}
	if r.State == waiting && withdraws(d.Params) {
		s.withdraw(ctx, r)
	}
	channel := s.channel(d, state != nil)
	approval, err := channel.wait(ctx, r)
	switch {
	case r.State == refused:
		return nil, ended(d.Refusal, r)
	case errors.Is(err, client.ErrNotApproved):
		s.refuse(ctx, r, enforce.ReasonNotApproved)
		return nil, ended(d.Refusal, r)
	case approval != nil:
		return s.resume(ctx, d, r, approval, state)
	case err != nil && ctx.Err() == nil:
		s.cfg.Log.WarnContext(ctx, "how an approval stands", "task", r.Task.Task.ID, "error", err)
	}
	return channel.tell(d, r)
}

// find returns the call that one with a ticket was told about, and the one that
// any other attaches to.
func (s *Service) find(ctx context.Context, d *enforce.Denied, state *ticket) (*record, error) {
	if state == nil {
		return s.attach(ctx, d)
	}
	r, err := s.store.byHandle(state.Handle)
	if err != nil {
		return nil, err
	}
	if r == nil || !r.waits() && r.State != refused {
		return nil, refusal(d.Refusal, enforce.ReasonSettled, "the approval that the call waited for has been used, or is no more")
	}
	return r, nil
}

// explain makes an error of asking one that the caller can read.
func (s *Service) explain(ctx context.Context, d *enforce.Denied, err error) error {
	var refused *enforce.Refusal
	if errors.As(err, &refused) {
		return refused
	}
	s.cfg.Log.ErrorContext(ctx, "no approval can be asked for", "server", d.Server, "request_id", d.RequestID, "error", err)
	return &enforce.Refusal{
		Code: wire.CodeInternal, Status: 200, Message: "a person would have to approve the call, and none can be asked",
		Data: enforce.Data{Reason: enforce.ReasonPDP, EvaluationID: d.Refusal.Data.EvaluationID, RetryAfter: 1},
	}
}

// ended says how it ended.
func ended(because *enforce.Refusal, r *record) *enforce.Refusal {
	messages := map[string]string{
		enforce.ReasonNotApproved: "the call was not approved",
		enforce.ReasonWithdrawn:   "the call was withdrawn",
		enforce.ReasonSuperseded:  "the tool is not the one that was to be approved",
	}
	refused := refusal(because, r.Reason, cmp.Or(messages[r.Reason], "access denied")) // by the policies, with the approval
	refused.Data.Task = r.Task.Task.ID
	return refused
}

// Bounds of the time between two looks at a task, where the PDP does not wait.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
	longPoll   = 20 * time.Second
)

// look asks how a task stands.
func (s *Service) look(ctx context.Context, r *record) (*authzen.Approval, error) {
	if !r.waits() {
		return nil, nil
	}
	task := *r.Task
	return s.cfg.PDP.Look(ctx, r.Tenant, &task, 0)
}

// await waits for the decision on a task, so long at most. Neither an approval
// nor an error means that there is none yet.
func (s *Service) await(ctx context.Context, r *record, long time.Duration) (*authzen.Approval, error) {
	if !r.waits() {
		return nil, nil
	}
	if long <= 0 {
		return s.look(ctx, r)
	}
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	until := time.Now().Add(long)
	task := *r.Task
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun := time.Now()
		approval, err := s.cfg.PDP.Look(ctx, r.Tenant, &task, min(time.Until(until), longPoll))
		switch {
		case approval != nil || errors.Is(err, client.ErrNotApproved):
			return approval, err
		case ctx.Err() != nil || time.Until(until) < pause:
			return nil, err
		}
		select {
		case <-time.After(pause - min(time.Since(begun), pause)):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// resume carries out a call that is approved: the policies are asked again, and
// if they permit it with the approval, one of those who wait claims it.
func (s *Service) resume(ctx context.Context, d *enforce.Denied, r *record, approval *authzen.Approval, state *ticket) (*enforce.Verdict, error) {
	if err := s.permitted(ctx, d.Call, r, d.Question, approval); err != nil {
		return nil, err
	}
	m, err := r.assemble(d.Message, state)
	if err != nil {
		return nil, err
	}
	taken, end, err := s.claim(r, approval)
	if errors.Is(err, errMoved) {
		return nil, refusal(d.Refusal, enforce.ReasonSettled, "the approval has been used")
	}
	if err != nil {
		return nil, err
	}
	return &enforce.Verdict{Forward: m, Settle: func(ctx context.Context, response *wire.Message) *wire.Message {
		end(enforce.End(d.Call, response))
		if again := s.again(ctx, taken, response); again != nil {
			return again
		}
		s.settle(ctx, taken, response, nil)
		return response
	}}, nil
}

// permitted asks the policies about the call again, with the approval. A call
// about a tool that has changed since is over. All who resume a call ask under
// its handle, so that the PDP counts one use however often they ask.
func (s *Service) permitted(ctx context.Context, c *enforce.Call, r *record, q *enforce.Question, approval *authzen.Approval) error {
	if s.cfg.Definition != nil && r.Method == wire.MethodToolsCall && s.cfg.Definition(r.Server, r.Name) != r.Definition {
		s.refuse(ctx, r, enforce.ReasonSuperseded)
		return ended(&enforce.Refusal{Code: wire.CodeParams, Status: 200}, r)
	}
	again, err := client.Approved(q.Evaluation, approval)
	if err != nil {
		return err
	}
	question := *q
	question.Evaluation = again
	ctx = enforce.WithRequestID(ctx, r.Handle)
	answer, err := s.cfg.PDP.Ask(ctx, r.Tenant, &question)
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "no decision", "task", r.Task.Task.ID, "error", err)
		return &enforce.Refusal{Code: wire.CodeInternal, Status: 200, Message: "the policy decision point gave no decision", Data: enforce.Data{Reason: enforce.ReasonPDP, RetryAfter: 1, Task: r.Task.Task.ID}}
	}
	_, err = s.cfg.Permitted(ctx, c, &question, answer)
	var denied *enforce.Refusal
	if !errors.As(err, &denied) {
		if err == nil {
			r.Denial = answer.EvaluationID // by now it is the permit
		}
		return err
	}
	if denied.Data.Task = r.Task.Task.ID; !answer.Decisions[0].Decision && client.Next(&answer.Decisions[0]) != authzen.NextRetry {
		s.refuse(ctx, r, denied.Data.Reason) // the approval does not lift it: the next call asks anew
		return denied
	}
	denied.Data.RetryAfter = 1
	return denied
}

// claim takes a call to be carried out, and keeps that it will be. Of all who
// try, one succeeds; the others get errMoved.
func (s *Service) claim(r *record, approval *authzen.Approval) (*record, func(how string), error) {
	taken, err := s.store.move(r, claimed, nil)
	if err != nil {
		return nil, nil, err
	}
	s.pending.give(r.owner())
	end, err := s.cfg.Trail.Intend(r.entry(approval.ID))
	if err != nil {
		_, lost := s.store.move(taken, unknown, nil)
		return nil, nil, errors.Join(fmt.Errorf("keep the call: %w", err), lost)
	}
	return taken, end, nil
}

// settle says that a call that was claimed has ended.
func (s *Service) settle(ctx context.Context, r *record, response *wire.Message, change func(*record)) {
	to := done
	if response == nil {
		to = unknown
	}
	if _, err := s.store.move(r, to, change); err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "task", r.Task.Task.ID, "error", err)
	}
}
