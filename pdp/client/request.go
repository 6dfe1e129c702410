package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

var (
	// ErrNotRequestable means that the decision is not a denial that an approval can lift.
	ErrNotRequestable = errors.New("the decision is not a requestable denial")
	// ErrNotApproved means that a task ended without an approval.
	ErrNotApproved = errors.New("the request is not approved")
	// errEnded means that the approval is no longer valid.
	errEnded = fmt.Errorf("%w any more", ErrNotApproved)
	// ErrForeign means that an answer names a URL of another origin than the PDP's and that of the
	// Access Request Endpoint in its metadata. The Client sends nothing there.
	ErrForeign = errors.New("the URL is not the PDP's")
)

// Submission returns an Access Request for the denial of a request. The caller may set its Context,
// RequestedAccess, Callback and Client.
func Submission(request *authzen.EvaluationRequest, denied *authzen.Decision) (*authzen.Submission, error) {
	if denied.Decision || denied.Context == nil || denied.Context.AccessRequest == nil {
		return nil, ErrNotRequestable
	}
	offer := denied.Context.AccessRequest
	resource, action := request.Resource, request.Action
	return &authzen.Submission{
		Subject: request.Subject, Resource: &resource, Action: &action, Context: request.Context,
		Denial: &authzen.Denial{
			EvaluationID: denied.Context.EvaluationID, ExpiresAt: offer.ExpiresAt.Format(time.RFC3339Nano), BindingToken: offer.BindingToken,
			Reason: denied.Context.Reason, Template: offer.Template,
		},
	}, nil
}

// Submit submits an Access Request. endpoint is that of the denial's access request. If it is "",
// Submit uses the endpoint in the PDP's metadata or else the default path. The idempotency key
// makes a retry safe. The task may already be decided.
func (c *Client) Submit(ctx context.Context, endpoint, key string, s *authzen.Submission) (*authzen.TaskResponse, error) {
	endpoint, err := c.requestEndpoint(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	r, err := c.request(ctx, http.MethodPost, endpoint, s)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	r.Header.Set("Idempotency-Key", key)
	var task authzen.TaskResponse
	if _, err := c.do(r, &task, http.StatusCreated, http.StatusAccepted); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	return &task, nil
}

// Bounds of the polling interval, if the answer has none.
const (
	firstPoll = time.Second
	lastPoll  = time.Minute
)

// Await polls a task until it is decided and returns its approval. If the task ends otherwise, the
// error is [ErrNotApproved]. An unknown status counts as pending. The wait ends with ctx and when
// the task expires.
func (c *Client) Await(ctx context.Context, task *authzen.TaskResponse) (*authzen.Approval, error) {
	if err := c.trusts(ctx, task.Task.StatusEndpoint); err != nil {
		return nil, fmt.Errorf("await: %w", err)
	}
	after := time.Duration(0)
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if approval, ended, err := outcome(task); ended {
			return approval, err
		}
		var err error
		if after, err = c.poll(ctx, task, max(pause, after)); err != nil {
			return nil, fmt.Errorf("await: %w", err)
		}
	}
}

// poll waits, polls, and returns the next polling interval.
func (c *Client) poll(ctx context.Context, task *authzen.TaskResponse, pause time.Duration) (time.Duration, error) {
	if !time.Now().Add(pause).Before(task.Task.ExpiresAt) {
		return 0, ErrNotApproved
	}
	if err := sleep(ctx, pause); err != nil {
		return 0, err
	}
	return c.look(ctx, task, 0)
}

// Look polls a task once and updates it. It returns the task's approval, or nil if the task is
// pending. If the task ended otherwise, the error is [ErrNotApproved].
func (c *Client) Look(ctx context.Context, task *authzen.TaskResponse) (*authzen.Approval, error) {
	return c.LookWithin(ctx, task, 0)
}

// LookWithin is Look with long polling: the service may wait up to wait, in whole seconds, for a
// decision (Prefer: wait, RFC 7240, section 4.3). It extends the Client's Timeout by wait.
func (c *Client) LookWithin(ctx context.Context, task *authzen.TaskResponse, wait time.Duration) (*authzen.Approval, error) {
	if err := c.trusts(ctx, task.Task.StatusEndpoint); err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	if approval, ended, err := outcome(task); ended {
		return approval, err
	}
	if _, err := c.look(ctx, task, wait); err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	approval, _, err := outcome(task)
	return approval, err
}

// look polls a task and returns the next polling interval.
func (c *Client) look(ctx context.Context, task *authzen.TaskResponse, wait time.Duration) (time.Duration, error) {
	r, err := c.request(ctx, http.MethodGet, task.Task.StatusEndpoint, nil)
	if err != nil {
		return 0, err
	}
	var now authzen.TaskResponse
	header, err := c.waiting(r, wait).do(r, &now, http.StatusOK)
	if err != nil {
		return 0, err
	}
	if now.Task.ID != task.Task.ID {
		return 0, fmt.Errorf("the answer is about task %q, not %q", now.Task.ID, task.Task.ID)
	}
	task.Task.Status, task.Task.Display, task.Result = now.Task.Status, now.Task.Display, now.Result
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil {
		return 0, nil
	}
	return time.Duration(seconds) * time.Second, nil
}

// waiting returns a Client that waits longer for the answer to a request, and asks the service to wait
// so long.
func (c *Client) waiting(r *http.Request, wait time.Duration) *Client {
	seconds := int(wait / time.Second)
	if seconds <= 0 {
		return c
	}
	r.Header.Set("Prefer", fmt.Sprintf("wait=%d", seconds))
	patient, waiting := *c.http, *c
	patient.Timeout += wait
	waiting.http = &patient
	return &waiting
}

// Comment returns the approvers' comments on a denied task if they are disclosed, or "".
func Comment(task *authzen.TaskResponse) string {
	var display struct {
		Comment string `json:"comment"`
	}
	if task.Task.Status != authzen.TaskDenied || json.Unmarshal(task.Task.Display, &display) != nil {
		return ""
	}
	return display.Comment
}

// Approvers returns who approved a task, nil if the service does not say.
func Approvers(task *authzen.TaskResponse) []authzen.Subject {
	var display struct {
		Approvers []authzen.Subject `json:"approvers"`
	}
	if task.Task.Status != authzen.TaskApproved || json.Unmarshal(task.Task.Display, &display) != nil {
		return nil
	}
	return display.Approvers
}

// DecideBy returns when a pending task expires without a decision: at the latest when its handle does.
func DecideBy(task *authzen.TaskResponse) time.Time {
	var display struct {
		DecideBy time.Time `json:"decide_by"`
	}
	if task.Task.Status != authzen.TaskPending || json.Unmarshal(task.Task.Display, &display) != nil || display.DecideBy.IsZero() || display.DecideBy.After(task.Task.ExpiresAt) {
		return task.Task.ExpiresAt
	}
	return display.DecideBy
}

// Cancel cancels a task. Without a cancel link it does nothing, and the task expires.
func (c *Client) Cancel(ctx context.Context, task *authzen.TaskResponse, reason string) error {
	if task.Task.Links == nil || task.Task.Links.Cancel == "" {
		return nil
	}
	if err := c.trusts(ctx, task.Task.Links.Cancel); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	r, err := c.request(ctx, http.MethodPost, task.Task.Links.Cancel, authzen.Cancellation{Reason: reason})
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	var now authzen.TaskResponse
	if _, err := c.do(r, &now, http.StatusOK); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

// sleep waits for pause and up to a quarter more, so that PEPs that began together do not continue
// together. It returns an error if ctx ends.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause + rand.N(pause/4))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outcome returns the approval of a task, and whether the task has ended.
func outcome(task *authzen.TaskResponse) (approval *authzen.Approval, ended bool, err error) {
	switch task.Task.Status {
	case authzen.TaskApproved:
		if r := task.Result; r != nil && r.Mode == authzen.ModeReevaluate && r.Approval.ID != "" {
			return &r.Approval, true, nil
		}
		return nil, true, fmt.Errorf("%w: there is no result that is understood", ErrNotApproved)
	case authzen.TaskDenied, authzen.TaskExpired, authzen.TaskCancelled, authzen.TaskFailed, authzen.TaskPartial:
		return nil, true, fmt.Errorf("%w: it is %s", ErrNotApproved, task.Task.Status)
	}
	return nil, false, nil
}

// WithArguments returns an approval for a call with these arguments. A PEP that carries out the
// arguments of a result ([authzen.TaskResult]), which the approver has changed, evaluates the new call
// with it.
func WithArguments(approval *authzen.Approval, arguments jsontext.Value) (*authzen.Approval, error) {
	digest, err := jsonobject.Digest(arguments)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	said := *approval
	said.ArgumentsDigest = digest
	return &said, nil
}

// Approved returns the request with an approval, for a new evaluation. Only that evaluation decides
// on access.
func Approved(request *authzen.EvaluationRequest, approval *authzen.Approval) (*authzen.EvaluationRequest, error) {
	members, err := jsonobject.Parse(request.Context)
	if err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	if err := members.Set("approval", approval); err != nil {
		return nil, fmt.Errorf("approval: %w", err)
	}
	again := *request
	again.Context, err = members.Encode()
	return &again, err
}
