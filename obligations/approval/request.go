package approval

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Request is an Access Request as it is kept.
type Request struct {
	ID          string            `json:"id"`
	Tenant      string            `json:"tenant,omitzero"`
	Caller      string            `json:"caller,omitzero"`        // the PEP
	CallerNames []string          `json:"caller_names,omitempty"` // every verified name of the caller
	Subject     authzen.Subject   `json:"subject"`
	Actors      []Actor           `json:"actors,omitempty"` // who acts for the subject, nearest first
	Context     jsontext.Value    `json:"context,omitzero"` // as submitted
	Access      jsontext.Value    `json:"access,omitzero"`  // requested_access, as submitted
	Client      jsontext.Value    `json:"client,omitzero"`  // as submitted; proves nothing
	Callback    *authzen.Callback `json:"callback,omitempty"`
	Notice      *Notice           `json:"notice,omitempty"` // that the PEP has yet to get
	Submitted   time.Time         `json:"submitted"`
	DecideBy    time.Time         `json:"decide_by"`
	EscalateAt  time.Time         `json:"escalate_at,omitzero"`
	Escalated   bool              `json:"escalated,omitzero"`
	ExpiresAt   time.Time         `json:"expires_at"` // of the handle
	Bulk        bool              `json:"bulk,omitzero"`
	Items       []Item            `json:"items"`
	Idempotency []byte            `json:"idempotency,omitzero"` // key in the bucket keys
	Submission  []byte            `json:"submission,omitzero"`  // its fingerprint
}

// A Notice is how far the attempts to call a PEP back have come.
type Notice struct {
	Due      time.Time `json:"due"`
	Attempts int       `json:"attempts"`
}

// An Actor acts on behalf of another.
type Actor = authzen.Delegate

// An Item is one denial that a person is asked to lift.
type Item struct {
	EvaluationID string                   `json:"evaluation_id"`
	Revision     string                   `json:"revision"` // of the policies that denied
	Template     string                   `json:"template"`
	Terms        authzen.ApprovalTemplate `json:"terms"`
	Resource     authzen.Resource         `json:"resource"`
	Action       authzen.Action           `json:"action"`
	Access       jsontext.Value           `json:"access,omitzero"` // requested_access of this item alone
	Until        time.Time                `json:"until,omitzero"`  // requested_until, of this item or of all
	Bound        contextBinding           `json:"bound"`
	Status       authzen.TaskStatus       `json:"status"`
	Votes        []Vote                   `json:"votes,omitempty"`
	Approval     *Approval                `json:"approval,omitempty"`
}

// A Vote is what one approver says.
type Vote struct {
	Approver authzen.Subject `json:"approver"`
	Names    []string        `json:"names,omitempty"` // every verified name of the approver
	Approve  bool            `json:"approve"`
	Comment  string          `json:"comment,omitzero"`
	Channel  string          `json:"channel,omitzero"`
	Time     time.Time       `json:"time"`
}

// An Approval is what came of an item that was approved.
type Approval struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
	Uses   []Use     `json:"uses,omitempty"`  // where they are counted
	Ended  string    `json:"ended,omitzero"`  // revoked or superseded
	Reason string    `json:"reason,omitzero"` // why it ended
}

// How an approval ends before its time.
const (
	endRevoked    = "revoked"
	endSuperseded = "superseded"
)

// Status is that of the whole: pending while an item is, what all are, or
// partial.
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

// pending lists the items that are.
func (r *Request) pending() []int {
	var found []int
	for i, item := range r.Items {
		if item.Status == authzen.TaskPending {
			found = append(found, i)
		}
	}
	return found
}

// due is when something happens to the request if nobody does anything.
func (r *Request) due() time.Time {
	switch {
	case r.Status() != authzen.TaskPending:
		return r.ExpiresAt
	case r.Escalated:
		return r.DecideBy
	}
	return earliest(r.DecideBy, r.EscalateAt)
}
