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
)

var (
	// ErrNotRequestable means that the decision is not a denial that a person
	// may lift.
	ErrNotRequestable = errors.New("the decision is not a requestable denial")
	// ErrNotApproved means that a task has ended without an approval.
	ErrNotApproved = errors.New("the request is not approved")
	// errEnded means that the approval no longer stands.
	errEnded = fmt.Errorf("%w any more", ErrNotApproved)
	// ErrForeign means that an answer names a URL of an origin that is neither the
	// PDP's nor that of the Access Request Endpoint in its metadata. Nothing is
	// sent there, and no credentials.
	ErrForeign = errors.New("the URL is not the PDP's")
)

// Submission returns what asks that a person lift the denial of a request. The
// caller may add to its Context, RequestedAccess, Callback and Client.
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

// Submit asks that a person lift a denial. The endpoint is that of the denial's
// access request; "" takes it from the PDP's metadata or, where that has none, the
// default path. The key makes it safe to repeat. The task may be decided already.
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

// Bounds of the time between two questions about a task, where the answer does
// not say.
const (
	firstPoll = time.Second
	lastPoll  = time.Minute
)

// Await asks how a task stands until it is decided, and returns its approval.
// One that has ended otherwise is [ErrNotApproved]. A status that is not known
// is no approval and no end. ctx bounds the wait, and so does the task.
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

// poll waits, asks, and returns how long the answer says to wait next.
func (c *Client) poll(ctx context.Context, task *authzen.TaskResponse, pause time.Duration) (time.Duration, error) {
	if !time.Now().Add(pause).Before(task.Task.ExpiresAt) {
		return 0, ErrNotApproved
	}
	if err := sleep(ctx, pause); err != nil {
		return 0, err
	}
	return c.look(ctx, task, 0)
}

// Look asks once how a task stands, and keeps it in task. It returns the task's
// approval, or nil where it is not decided. One that has ended otherwise is
// [ErrNotApproved].
func (c *Client) Look(ctx context.Context, task *authzen.TaskResponse) (*authzen.Approval, error) {
	return c.LookWithin(ctx, task, 0)
}

// LookWithin is Look, and lets the service wait that long, in whole seconds,
// before it says that the task is not decided (Prefer: wait, RFC 7240). The
// Client's Timeout is so much longer.
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

// look asks, and returns how long the answer says to wait next.
func (c *Client) look(ctx context.Context, task *authzen.TaskResponse, wait time.Duration) (time.Duration, error) {
	r, err := c.request(ctx, http.MethodGet, task.Task.StatusEndpoint, nil)
	if err != nil {
		return 0, err
	}
	if seconds := int(wait / time.Second); seconds > 0 {
		patient := *c.http
		patient.Timeout += wait
		waiting := *c
		waiting.http, c = &patient, &waiting
		r.Header.Set("Prefer", fmt.Sprintf("wait=%d", seconds))
	}
	var now authzen.TaskResponse
	header, err := c.do(r, &now, http.StatusOK)
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

// Comment returns what the approvers who denied a task wrote, where they let
// that be told; "" else.
func Comment(task *authzen.TaskResponse) string {
	var display struct {
		Comment string `json:"comment"`
	}
	if task.Task.Status != authzen.TaskDenied || json.Unmarshal(task.Task.Display, &display) != nil {
		return ""
	}
	return display.Comment
}

// Cancel says that nobody waits for a task any more. One that offers no way to
// say so ends by itself.
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

// sleep waits for a while and up to a quarter more, so that PEPs that began
// together do not go on together. The end of ctx is an error.
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

// outcome returns the approval of a task that has ended.
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

// Approved returns the request with an approval, to be evaluated again. That
// the decision is a permit is still the PDP's to say.
func Approved(request *authzen.EvaluationRequest, approval *authzen.Approval) (*authzen.EvaluationRequest, error) {
	members := map[string]jsontext.Value{}
	if request.Context != nil {
		if err := json.Unmarshal(request.Context, &members); err != nil {
			return nil, fmt.Errorf("context: %w", err)
		}
	}
	claim, err := json.Marshal(approval)
	if err != nil {
		return nil, fmt.Errorf("approval: %w", err)
	}
	members["approval"] = claim
	again := *request
	again.Context, err = json.Marshal(members, json.Deterministic(true))
	return &again, err
}
