package approval

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// taskStatus is a call as a task of the extension io.modelcontextprotocol/tasks
// (SEP-2663).
type taskStatus struct {
	ResultType    string         `json:"resultType"` // task where it is made, else complete
	TaskID        string         `json:"taskId"`
	Status        string         `json:"status"`
	StatusMessage string         `json:"statusMessage,omitzero"`
	CreatedAt     time.Time      `json:"createdAt"`
	LastUpdatedAt time.Time      `json:"lastUpdatedAt"`
	TTL           int64          `json:"ttlMs"`
	PollInterval  int64          `json:"pollIntervalMs"`
	Result        jsontext.Value `json:"result,omitzero"`
	Error         jsontext.Value `json:"error,omitzero"`
}

// pollInterval is how often a client should ask, in milliseconds.
const pollInterval = 2000

func (s *Service) status(r *record, kind string) (*taskStatus, error) {
	t := &taskStatus{
		ResultType: kind, TaskID: r.Handle, Status: "working", CreatedAt: r.Created.UTC(), LastUpdatedAt: r.Changed.UTC(),
		TTL: max(0, r.expires().Sub(r.Created).Milliseconds()), PollInterval: pollInterval,
	}
	switch r.State {
	case waiting:
		t.StatusMessage = "waits for a person's approval (" + r.named() + ")"
	case done:
		response, err := wire.ParseReply(r.Response)
		if err != nil {
			return nil, err
		}
		t.Status, t.Result, t.Error = "completed", response.Result, response.Error
		if response.Error != nil {
			t.Status = "failed"
		}
	case unknown:
		data := enforce.Data{Reason: enforce.Unknown}
		r.name(&data)
		t.Status, t.Error = "failed", wire.Refuse(nil, wire.CodeInternal, "what came of the call is not known", data).Error
	case refused:
		if t.Status = "cancelled"; r.Reason != enforce.ReasonWithdrawn {
			no := s.cfg.Checker.Present(ended(&enforce.Refusal{Code: r.Code, Data: enforce.Data{EvaluationID: r.Denial}}, r))
			t.Status, t.Error = "failed", wire.Refuse(nil, no.Code, no.Message, no.Data).Error
		}
	}
	return t, nil
}

// task answers a call with a task, which its client polls.
func (s *Service) task(d *enforce.DeniedCall, r *record) (*enforce.Disposition, error) {
	return s.reply(d.Call, r, "task")
}

func (s *Service) reply(c *enforce.Call, r *record, kind string) (*enforce.Disposition, error) {
	status, err := s.status(r, kind)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &enforce.Disposition{Answer: &wire.Message{ID: c.Message.ID, Result: result}, Status: 200}, nil
}

// Own answers what clients ask about the tasks of the gateway, and only that:
// nil is for any other call. It is [enforce.Config.Own].
func (s *Service) Own(ctx context.Context, c *enforce.Call) (*enforce.Disposition, error) {
	if !strings.HasPrefix(c.Message.Method, "tasks/") || !strings.HasPrefix(c.Params.TaskID, handlePrefix) || !c.Message.IsRequest() {
		return nil, nil
	}
	r, err := s.store.byHandle(c.Params.TaskID)
	if err != nil {
		return nil, err
	}
	if r == nil || r.State == asking || !r.belongsTo(c.Caller) || r.Server != c.Server {
		return nil, enforce.NoSuchTask()
	}
	switch c.Message.Method {
	case "tasks/get":
		s.pollDetached(ctx, c, r)
		if err := s.label(c, r); err != nil {
			return nil, err
		}
		return s.reply(c, r, "complete")
	case "tasks/cancel":
		if r.State == waiting {
			s.refuse(ctx, r, enforce.ReasonWithdrawn)
		}
	case "tasks/update": // nothing is asked that could be answered
	default:
		return nil, &enforce.Refusal{Code: wire.CodeMethod, Status: 404, Message: enforce.ErrUnknownMethod.Error(), Data: enforce.Data{Reason: enforce.ReasonUnknownMethod}}
	}
	return &enforce.Disposition{Answer: &wire.Message{ID: c.Message.ID, Result: jsontext.Value(`{"resultType":"complete"}`)}, Status: 200}, nil
}

// label gives the caller the labels of the response that it is about to get. It may
// be long since the call ran.
func (s *Service) label(c *enforce.Call, r *record) error {
	if r.State != done || s.cfg.Results == nil {
		return nil
	}
	own := *c
	own.Results = r.Results
	err := s.cfg.Results.Label(&own)
	if err == nil {
		return nil
	}
	return &enforce.Refusal{
		Code: wire.CodeInternal, Status: 200, Message: "the server carried out the call, but the labels of its answer cannot be stored",
		Data: enforce.Data{Reason: enforce.ReasonWithheld}, Why: err.Error(),
	}
}

// pollDetached polls the approvals of a call that no client waits for, and
// executes the call once it is approved.
func (s *Service) pollDetached(ctx context.Context, c *enforce.Call, r *record) {
	switch approvals, err := s.pollOnce(ctx, r); {
	case errors.Is(err, client.ErrNotApproved):
		s.deny(ctx, r, err)
	case approvals != nil:
		question, approvals, err := s.editDetached(ctx, c, r, approvals)
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "the arguments that an approver has changed", "task", r.Task.Task.ID, "error", err)
			return
		}
		select {
		case s.approved <- detached{*r, question, approvals}:
		default: // a later poll queues it
		}
	case err != nil:
		s.cfg.Log.WarnContext(ctx, "ask for the state of an approval", "task", r.Task.Task.ID, "error", err)
	}
}

// editDetached is edit for a call whose client polls it with another.
func (s *Service) editDetached(ctx context.Context, poll *enforce.Call, r *record, approvals enforce.Approvals) (*enforce.Question, enforce.Approvals, error) {
	if r.edited == nil {
		return r.question(), approvals, nil
	}
	m := &wire.Message{ID: poll.Message.ID, Method: r.Method, Params: r.Params}
	params, err := m.Read()
	if err != nil {
		return nil, nil, err
	}
	c := *poll
	c.Message, c.Params, c.Session = m, params, r.Session
	return s.edit(ctx, &c, r, r.question(), approvals)
}

// maxResponse bounds a response that is kept for its client, in bytes.
const maxResponse = 1 << 20

// executeDetached executes an approved call that no client waits for, and
// stores the response.
func (s *Service) executeDetached(ctx context.Context, d detached, execute Execute) {
	r, approvals := d.record, d.approvals
	m := &wire.Message{ID: jsontext.Value(`"` + r.Handle + `"`), Method: r.Method}
	call := &enforce.Call{Server: r.Server, Caller: &enforce.Caller{Subject: r.Subject, Tenant: r.Tenant}, Message: m, Params: &wire.Params{Name: r.Name}, Session: r.Session, RequestID: r.Handle}
	call.Tool = &enforce.Tool{Digest: r.Definition, Authorization: r.Authorization}
	if err := s.permitted(ctx, call, &r, d.question, approvals); err != nil {
		return // it is recorded, or can be tried again
	}
	var err error
	if m.Params, err = s.unattended(&r); err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "task", r.Task.Task.ID, "error", err)
		return
	}
	taken, _, end, err := s.claim(&r, approvals)
	if errors.Is(err, errMoved) {
		return // another was faster
	}
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "task", r.Task.Task.ID, "error", err)
		return
	}
	response, err := execute(ctx, call, m)
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "the server did not answer", "server", r.Server, "task", r.Task.Task.ID, "error", err)
		response = nil
	}
	call.Message, response = m, r.tellApproval(enforce.WithoutForged(response), approvals)
	end(enforce.End(call, response))
	response = s.deliver(ctx, call, response)
	s.keepOutcome(ctx, taken, response, call.Results)
}

// unattended returns the params of a call that the gateway makes itself: it can
// be asked nothing.
func (s *Service) unattended(r *record) (jsontext.Value, error) {
	members, err := jsonobject.Parse(r.Params)
	if err != nil {
		return nil, err
	}
	own, err := json.Marshal(wire.OwnMeta(r.Version), json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	meta, err := wire.MergeMeta(own, members[memberMeta])
	if err != nil {
		return nil, err
	}
	members.Put(memberMeta, meta)
	params, err := members.Encode()
	if err != nil {
		return nil, err
	}
	return params, s.covers(r, params)
}
