package approval

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxApprovalRequests bounds the approvals that a call may need.
const maxApprovalRequests = 8

// An approvalRequest is for one of the approvals that a call needs: for each of its
// evaluations that was denied there is one.
type approvalRequest struct {
	Item       int                   `json:"item,omitzero"`       // the evaluation, by its number in the question
	Submission *authzen.Submission   `json:"submission,omitzero"` // until the PDP has it
	Endpoint   string                `json:"endpoint,omitzero"`   // where it is submitted
	Task       *authzen.TaskResponse `json:"task"`                // at the PDP, once it has it
}

// newApprovalRequests prepares an access request for each evaluation that was
// denied.
func newApprovalRequests(d *enforce.DeniedCall) ([]approvalRequest, error) {
	if len(d.Denials) > maxApprovalRequests {
		return nil, refusal(d.Refusal, enforce.ReasonTooMany, "the call needs more approvals than are asked for")
	}
	var all []approvalRequest
	for _, n := range d.Denials {
		request, err := d.Question.Request(n)
		if err != nil {
			return nil, err
		}
		if request.Subject.ID != d.Caller.Subject.ID { // the PDP would take somebody else for who must not approve
			return nil, refusal(d.Refusal, enforce.ReasonDenied, "nobody is asked to approve a call in the name of another")
		}
		decision := &d.Answer.Decisions[n]
		submission, err := client.Submission(request, decision)
		if err != nil {
			return nil, err
		}
		if submission.Context, err = approvalContext(submission.Context, d); err != nil {
			return nil, err
		}
		all = append(all, approvalRequest{Item: n, Submission: submission, Endpoint: decision.Context.AccessRequest.Endpoint})
	}
	return all, nil
}

// templateOf returns the template of the first approval that is asked for.
func templateOf(asks []approvalRequest) string {
	if len(asks) == 0 || asks[0].Submission.Denial == nil {
		return ""
	}
	return asks[0].Submission.Denial.Template
}

// asks returns a copy of all that is asked for.
func (r *record) asks() []approvalRequest {
	all := append([]approvalRequest{r.approvalRequest}, r.More...)
	for i := range all {
		if task := all[i].Task; task != nil {
			own := *task
			all[i].Task = &own
		}
	}
	return all
}

func (r *record) setAsks(all []approvalRequest) { r.approvalRequest, r.More = all[0], all[1:] }

// tasks lists the tasks of a call at the PDP.
func (r *record) tasks() (ids []string) {
	for _, a := range r.asks() {
		ids = append(ids, a.Task.Task.ID)
	}
	return ids
}

// name tells programs which tasks those are: the same, however far they are.
func (r *record) name(d *enforce.Data) {
	d.Task = r.Task.Task.ID
	if len(r.More) > 0 {
		d.Tasks = r.tasks()
	}
}

// named tells people.
func (r *record) named() string {
	if len(r.More) == 0 {
		return "task " + r.Task.Task.ID
	}
	return "tasks " + strings.Join(r.tasks(), ", ")
}

// expires is when the PDP forgets the first of the tasks, or when the time ends in
// which the tool wants somebody to agree.
func (r *record) expires() time.Time {
	first := r.Task.Task.ExpiresAt
	if until := r.Authorization.Until(r.Created); !until.IsZero() && until.Before(first) {
		first = until
	}
	for _, a := range r.More {
		if at := a.Task.Task.ExpiresAt; at.Before(first) {
			first = at
		}
	}
	return first
}

// requestApprovals submits the access requests of a stored call. It may be
// repeated.
func (s *Service) requestApprovals(ctx context.Context, r *record) error {
	all := r.asks()
	for i := range all {
		key := r.Handle
		if i > 0 {
			key += "." + strconv.Itoa(i)
		}
		a := &all[i]
		err := s.cfg.PDP.Do(r.Tenant, func(c *client.Client) (err error) {
			a.Task, err = c.Submit(ctx, a.Endpoint, key, a.Submission)
			return err
		})
		if err != nil {
			r.setAsks(all)
			return fmt.Errorf("ask for an approval: %w", err)
		}
	}
	for i := range all {
		all[i].Submission, all[i].Endpoint = nil, ""
	}
	asked, err := s.store.move(r, waiting, func(r *record) { r.setAsks(all) })
	if err != nil {
		return fmt.Errorf("store the task: %w", err)
	}
	*r = *asked
	s.cfg.Trail.Refuse(r.entry(nil), enforce.ReasonPending)
	s.cfg.Log.InfoContext(ctx, "call waits for a person", "server", r.Server, "method", r.Method, "tool", plain.Text(r.Name),
		"subject", plain.Text(r.Subject.Type+"::"+r.Subject.ID), "decision_id", r.Denial, "task", strings.Join(r.tasks(), " "))
	return nil
}

// cancel says that nobody waits any more for what is asked. Of what is decided
// the PDP says that it is.
func (s *Service) cancel(ctx context.Context, r *record, reason string) {
	ctx = context.WithoutCancel(ctx)
	for _, a := range r.asks() {
		if a.Task == nil {
			continue
		}
		err := s.cfg.PDP.Do(r.Tenant, func(c *client.Client) error { return c.Cancel(ctx, a.Task, reason) })
		if err != nil && !isRefused(err) { // it expires there; here it is over
			s.cfg.Log.WarnContext(ctx, "the request could not be cancelled", "task", a.Task.Task.ID, "error", err)
		}
	}
}

// A notApproved is [client.ErrNotApproved] with what the approver wrote, or "".
type notApproved struct {
	error
	comment string
}

func (e *notApproved) Unwrap() error { return e.error }

// poll polls the tasks of the approval requests. While they are undecided, the
// PDP may hold each request for up to wait. The result has all approvals or is
// nil. An approval that was refused is [client.ErrNotApproved].
func (s *Service) poll(ctx context.Context, tenant string, asks []approvalRequest, wait time.Duration) (enforce.Approvals, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	approvals, errs := make([]*authzen.Approval, len(asks)), make([]error, len(asks))
	var all sync.WaitGroup
	for i := range asks {
		all.Go(func() {
			approvals[i], errs[i] = s.cfg.PDP.PollTask(ctx, tenant, asks[i].Task, wait)
			if errors.Is(errs[i], client.ErrNotApproved) {
				errs[i] = &notApproved{errs[i], client.Comment(asks[i].Task)}
				stop() // nobody needs the others
			}
		})
	}
	all.Wait()
	given := make(enforce.Approvals)
	for i, a := range asks {
		if approvals[i] != nil {
			given[a.Item] = approvals[i]
		}
	}
	if err := errors.Join(errs...); err != nil || len(given) < len(asks) {
		return nil, err
	}
	return given, nil
}
