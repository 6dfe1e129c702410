package approval

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Request is a stored Access Request.
type Request struct {
	ID          string            `json:"id"`
	Tenant      string            `json:"tenant,omitzero"`
	Caller      string            `json:"caller,omitzero"`        // PEP
	CallerNames []string          `json:"caller_names,omitempty"` // all verified names of the caller
	Subject     authzen.Subject   `json:"subject"`
	Actors      []Actor           `json:"actors,omitempty"` // actors of the subject, nearest first
	Context     jsontext.Value    `json:"context,omitzero"` // as submitted
	Access      jsontext.Value    `json:"access,omitzero"`  // requested_access, as submitted
	Client      jsontext.Value    `json:"client,omitzero"`  // as submitted; not verified
	Callback    *authzen.Callback `json:"callback,omitempty"`
	Notice      *Notice           `json:"notice,omitempty"`    // pending callback
	Announced   *Announcements    `json:"announced,omitempty"` // notifications of people; nil before the first
	Submitted   time.Time         `json:"submitted"`
	DecideBy    time.Time         `json:"decide_by"`
	EscalateAt  time.Time         `json:"escalate_at,omitzero"`
	Escalated   bool              `json:"escalated,omitzero"`
	Priority    string            `json:"priority,omitzero"` // high, normal or low; "" means normal
	ExpiresAt   time.Time         `json:"expires_at"`        // when the task is deleted
	Bulk        bool              `json:"bulk,omitzero"`
	Items       []Item            `json:"items"`
	Idempotency []byte            `json:"idempotency,omitzero"` // key in the bucket keys
	Submission  []byte            `json:"submission,omitzero"`  // fingerprint of the submission
}

// A Notice is the state of a callback.
type Notice struct {
	Due      time.Time `json:"due"`
	Attempts int       `json:"attempts"`
}

// An Actor acts on behalf of another.
type Actor = authzen.Delegate

// An Item is one denial that the request asks to lift.
type Item struct {
	EvaluationID string                   `json:"evaluation_id"`
	Revision     string                   `json:"revision"` // of the policies that denied
	Template     string                   `json:"template"`
	Terms        authzen.ApprovalTemplate `json:"terms"`
	Resource     authzen.Resource         `json:"resource"`
	Action       authzen.Action           `json:"action"`
	Access       jsontext.Value           `json:"access,omitzero"` // requested_access of this item only
	Until        time.Time                `json:"until,omitzero"`  // requested_until, of this item or of the request
	Bound        contextBinding           `json:"bound"`
	Status       authzen.TaskStatus       `json:"status"`
	Votes        []Vote                   `json:"votes,omitempty"`
	Delegations  []Delegation             `json:"delegations,omitempty"` // the first one first
	Edit         *Edit                    `json:"edit,omitempty"`        // arguments that the approver changed
	Approval     *Approval                `json:"approval,omitempty"`
}

// A Vote is the decision of one approver.
type Vote struct {
	Approver authzen.Subject `json:"approver"`
	Names    []string        `json:"names,omitempty"` // all verified names of the approver
	Approve  bool            `json:"approve"`
	Comment  string          `json:"comment,omitzero"`
	Channel  string          `json:"channel,omitzero"`
	Sheet    string          `json:"sheet,omitzero"` // digest of what the approver was shown; "" if unknown
	Authn    *Authn          `json:"authn,omitempty"`
	IDToken  string          `json:"id_token,omitzero"` // the token of Authn; no answer has it
	Time     time.Time       `json:"time"`
	Entry    string          `json:"entry,omitzero"` // id of its entry in the decision log
}

// An Approval is the result of an approved item.
type Approval struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
	Uses   []Use     `json:"uses,omitempty"`  // if uses are counted
	Ended  string    `json:"ended,omitzero"`  // revoked or superseded
	Reason string    `json:"reason,omitzero"` // reason of the end
}

// Why an approval ended early.
const (
	endRevoked    = "revoked"
	endSuperseded = "superseded"
)

// Status returns the status of the request: pending if an item is, otherwise the status of all
// items, or partial.
func (r *Request) Status() authzen.TaskStatus {
	status := r.Items[0].Status
	for _, item := range r.Items {
		switch {
		case item.Status == authzen.TaskPending:
			return authzen.TaskPending
		case item.Status != status:
			status = authzen.TaskPartial
		}
	}
	return status
}

// pending returns the indexes of the pending items.
func (r *Request) pending() []int {
	var found []int
	for i, item := range r.Items {
		if item.Status == authzen.TaskPending {
			found = append(found, i)
		}
	}
	return found
}

// Denied returns the evaluation request that an item asks to lift, with the bound members of its
// context only.
func (r *Request) Denied(i int) (*authzen.EvaluationRequest, error) {
	item := &r.Items[i]
	context, err := item.Bound.of(r.Context)
	if err != nil {
		return nil, fmt.Errorf("read context: %w", err)
	}
	return &authzen.EvaluationRequest{Subject: r.Subject, Action: item.Action, Resource: item.Resource, Context: context}, nil
}

// due returns the time at which a sweep must process the request.
func (r *Request) due() time.Time {
	switch {
	case r.Status() != authzen.TaskPending:
		return r.ExpiresAt
	case r.Escalated:
		return r.DecideBy
	}
	return earliest(r.DecideBy, r.EscalateAt)
}
