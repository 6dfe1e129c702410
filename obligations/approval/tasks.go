package approval

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Status returns a task to its caller. For other callers it returns ErrUnknownTask.
func (s *Service) Status(ctx context.Context, c Caller, id string) (*authzen.TaskResponse, error) {
	r, err := s.own(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return s.response(r)
}

// Wait returns the task when it is decided. It returns the current state after most, at the end of
// ctx, or when the service stops.
func (s *Service) Wait(ctx context.Context, c Caller, id string, most time.Duration) (*authzen.TaskResponse, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		changed := s.outbox.Changed()
		task, err := s.Status(ctx, c, id)
		if err != nil || task.Task.Status != authzen.TaskPending {
			return task, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return task, nil
		case <-s.stopped:
			return task, nil
		case <-ctx.Done():
			return task, nil
		}
	}
}

// own returns a request of that caller.
func (s *Service) own(ctx context.Context, c Caller, id string) (*Request, error) {
	r, err := s.Request(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Tenant != c.Tenant || r.Caller != c.ID {
		return nil, ErrUnknownTask
	}
	if !s.now().Before(r.ExpiresAt) {
		return nil, ErrTaskExpired
	}
	return r, nil
}

// Request returns a request, for operators and approvers.
func (s *Service) Request(ctx context.Context, id string) (r *Request, err error) {
	err = s.view(ctx, func(tx txn) (err error) {
		r, err = tx.request(id)
		return err
	})
	return r, err
}

// Pending returns the number of pending requests: of the tenants, or of all if none is named. It decodes
// no request.
func (s *Service) Pending(_ context.Context, tenants ...string) (n int, err error) {
	if len(tenants) == 0 {
		tenants = []string{everyTenant}
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		at := tx.Bucket(bucketListed).Cursor()
		for _, tenant := range tenants {
			prefix := listPrefix(tenant, authzen.TaskPending)
			for key, _ := at.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = at.Next() {
				n++
			}
		}
		return nil
	})
	return n, err
}

// response returns the task of a request for its PEP, without approvers and policies.
func (s *Service) response(r *Request) (*authzen.TaskResponse, error) {
	endpoint := s.base(r.Tenant) + authzen.PathRequests + "/" + r.ID
	out := &authzen.TaskResponse{Task: authzen.Task{
		ID: r.ID, Status: r.Status(), StatusEndpoint: endpoint, ExpiresAt: r.ExpiresAt, Display: r.display(),
	}}
	if out.Task.Status == authzen.TaskPending {
		out.Task.Links = &authzen.TaskLinks{Cancel: endpoint + "/cancel"}
		out.Task.Progress = r.progress()
	}
	for i := range r.Items {
		result, err := s.result(r, &r.Items[i])
		if err != nil {
			return nil, err
		}
		if !r.Bulk {
			out.Result = result
			break
		}
		out.Task.Items = append(out.Task.Items, authzen.TaskItem{
			Resource: r.Items[i].Resource, Action: r.Items[i].Action, Status: r.Items[i].Status, Result: result,
		})
	}
	return out, nil
}

// progress returns the number of approvals for a request that needs several.
func (r *Request) progress() *authzen.TaskProgress {
	have, need := 0, 0
	for _, i := range r.Items {
		need += max(i.Terms.Quorum, 1)
		have += len(i.Votes)
	}
	if need == 1 {
		return nil
	}
	return &authzen.TaskProgress{CurrentStep: min(have+1, need), TotalSteps: need}
}

// result returns the result of an approved item, and nil for any other.
func (s *Service) result(r *Request, i *Item) (*authzen.TaskResult, error) {
	if i.Approval == nil {
		return nil, nil
	}
	signed, err := s.ring().sign(typeApproval, newState(r, i, s.base(r.Tenant)))
	if err != nil {
		return nil, err
	}
	result := &authzen.TaskResult{Mode: authzen.ModeReevaluate, Approval: authzen.Approval{
		ID: i.Approval.ID, ApprovedUntil: i.Approval.Until, ApprovedAt: i.Approval.At, State: signed,
	}}
	if i.Edit != nil {
		result.Arguments = i.Edit.Arguments
	}
	return result, nil
}

// Members that the service adds to a task's display.
const (
	memberComment   = "comment"   // comments on a denial
	memberApprovers = "approvers" // of an approval
	memberDecideBy  = "decide_by" // end of a pending one
)

// display returns what the requester sees: the template's display, the end of a pending task, and
// comments and approvers if the template discloses them.
func (r *Request) display() jsontext.Value {
	added := map[string]any{}
	if r.Status() == authzen.TaskPending {
		added[memberDecideBy] = r.DecideBy
	}
	if comments := r.ToldComments(); comments != "" {
		added[memberComment] = comments
	}
	if approvers := r.toldApprovers(); approvers != nil {
		added[memberApprovers] = approvers
	}
	shown := r.Items[0].Terms.Display
	if len(added) == 0 {
		return shown
	}
	members, err := jsonobject.Parse(shown)
	if err != nil { // a compiled template has an object
		return shown
	}
	for name, value := range added {
		if err := members.Set(name, value); err != nil {
			return shown
		}
	}
	with, err := members.Encode()
	if err != nil {
		return shown
	}
	return with
}

// toldApprovers returns the disclosed approvers of an approved request, without duplicates.
func (r *Request) toldApprovers() (all []authzen.Subject) {
	for _, i := range r.Items {
		if !i.Terms.TellApprovers || i.Approval == nil {
			continue
		}
		for _, v := range i.Votes {
			approver := authzen.Subject{Type: v.Approver.Type, ID: v.Approver.ID}
			if v.Approve && !slices.ContainsFunc(all, func(a authzen.Subject) bool { return a.Type == approver.Type && a.ID == approver.ID }) {
				all = append(all, approver)
			}
		}
	}
	return all
}

// ToldComments joins the distinct comments of disclosed denials.
func (r *Request) ToldComments() string {
	var all []string
	for _, i := range r.Items {
		if !i.Terms.TellComment {
			continue
		}
		for _, v := range i.Votes {
			if !v.Approve && v.Comment != "" && !slices.Contains(all, v.Comment) {
				all = append(all, v.Comment)
			}
		}
	}
	return strings.Join(all, "\n")
}

// Changed returns a channel that is closed at the next transition of any request.
func (s *Service) Changed() <-chan struct{} { return s.outbox.Changed() }
