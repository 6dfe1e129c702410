package capability

import (
	"time"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// RecordKind is the kind of all records of this package.
const RecordKind = "capability"

// A Record is the log entry of a transition.
type Record = outbox.Record

// A change is the body of a record: an event, with ids that join it to the evaluations and the task
// before it. Only the records of a request and of an issue have the terms. Other records name the
// capability.
type change struct {
	Event         string            `json:"event"`
	Capability    string            `json:"capability"`
	Status        State             `json:"status"`
	Holder        *authzen.Subject  `json:"holder"`
	Tools         []string          `json:"tools,omitempty"`
	Duration      int64             `json:"duration,omitzero"` // seconds
	Constraints   *Constraints      `json:"constraints,omitempty"`
	Bound         string            `json:"bound,omitzero"`
	Issuer        *authzen.Subject  `json:"issuer,omitempty"`
	Approvers     []authzen.Subject `json:"approvers,omitempty"`
	Template      string            `json:"template,omitzero"`
	Task          string            `json:"task,omitzero"`
	ApprovalIDs   []string          `json:"approval_ids,omitempty"`
	EvaluationIDs []string          `json:"evaluation_ids,omitempty"`
	Revision      string            `json:"revision,omitzero"` // of the policies that decided last
	By            *authzen.Subject  `json:"by,omitempty"`
	Parent        string            `json:"parent,omitzero"`    // from which it was handed on
	Refreshes     string            `json:"refreshes,omitzero"` // the one whose place it takes
	Proof         string            `json:"proof,omitzero"`     // id of the proof of the key of Refreshes or Parent
	Reason        string            `json:"reason,omitzero"`    // of the request, or of the end
	Uses          int               `json:"uses,omitzero"`      // taken, at exhaustion
}

// transition returns the record of an event, with the capability after it.
func transition(c *Capability, e event, at time.Time) Record {
	body := change{Event: string(e.kind), Capability: c.ID, Status: c.State, Holder: named(c.Holder), Task: c.Task, Reason: e.reason, Uses: e.used}
	if e.by.Subject.ID != "" {
		body.By = named(e.by.Subject)
	}
	if c.live() {
		body.Parent, body.Refreshes, body.Proof = c.Parent, c.Refreshes, c.proof
		body.Tools, body.Constraints, body.Bound = c.Tools, &c.Constraints, c.Bound
		body.Duration, body.Reason = int64(c.Duration.Seconds()), c.Reason
		body.Issuer, body.Approvers, body.Template = c.Issuer, c.Approvers, c.Template
		body.ApprovalIDs, body.EvaluationIDs, body.Revision = c.ApprovalIDs, c.EvaluationIDs, c.Revision
	}
	return Record{Kind: RecordKind, Time: at, Tenant: c.Tenant, Caller: e.by.Caller, RequestID: e.by.RequestID}.WithBody(body)
}
