package approval

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Kinds of records.
const (
	RecordRequest  = "request"  // something happened to a request
	RecordApproval = "approval" // an approval was given, used or ended
)

// A change is the body of a record: what happened, and by what it is joined to
// the evaluation before and the one after.
type change struct {
	Event    string           `json:"event"`
	Task     string           `json:"task"`
	Status   string           `json:"status"`
	Items    []changedItem    `json:"items"`
	Approver *authzen.Subject `json:"approver,omitempty"`
	Channel  string           `json:"channel,omitzero"`
	Comment  string           `json:"comment,omitzero"`
	Reason   string           `json:"reason,omitzero"`
	UsedBy   string           `json:"used_by,omitzero"` // the evaluation that an approval was used for
	Subject  *authzen.Subject `json:"subject,omitempty"`
	Actors   []Actor          `json:"actors,omitempty"`
	Access   jsontext.Value   `json:"requested_access,omitzero"`
	Client   jsontext.Value   `json:"client,omitzero"`
}

type changedItem struct {
	EvaluationID string             `json:"evaluation_id"`
	Template     string             `json:"template"`
	Status       authzen.TaskStatus `json:"status"`
	Approval     string             `json:"approval,omitzero"`
	Until        time.Time          `json:"approved_until,omitzero"`
	Resource     *authzen.Resource  `json:"resource,omitempty"`
	Action       *authzen.Action    `json:"action,omitempty"`
}

// submitted is the record of a new request.
func submitted(r *Request, c Caller) Record {
	body := change{Event: "submit", Task: r.ID, Status: string(r.Status()), Subject: &r.Subject, Actors: r.Actors, Access: r.Access, Client: r.Client}
	for _, i := range r.Items {
		body.Items = append(body.Items, changedItem{EvaluationID: i.EvaluationID, Template: i.Template, Status: i.Status, Resource: &i.Resource, Action: &i.Action})
	}
	return newRecord(RecordRequest, r, body, r.Submitted, c.RequestID)
}

// ofApprovals are the events that make or change an approval.
var ofApprovals = []eventKind{eventVote, eventUse, eventRevoke, eventSupersede}

// transition is the record of an event.
func transition(r *Request, e event, now time.Time) Record {
	body := change{
		Event: string(e.kind), Task: r.ID, Status: string(r.Status()),
		Channel: e.vote.Channel, Comment: e.vote.Comment, Reason: e.reason, UsedBy: e.usedBy,
	}
	if e.vote.Approver.ID != "" {
		body.Approver = &e.vote.Approver
	}
	if e.kind == eventVote {
		body.Event = "deny"
		if e.vote.Approve {
			body.Event = "approve"
		}
	}
	kind := RecordRequest
	for n, i := range r.Items {
		if e.items != nil && !slices.Contains(e.items, n) {
			continue
		}
		changed := changedItem{EvaluationID: i.EvaluationID, Template: i.Template, Status: i.Status}
		if i.Approval != nil {
			changed.Approval, changed.Until = i.Approval.ID, i.Approval.Until
			if slices.Contains(ofApprovals, e.kind) {
				kind = RecordApproval
			}
		}
		body.Items = append(body.Items, changed)
	}
	return newRecord(kind, r, body, now, e.requestID)
}

func newRecord(kind string, r *Request, body change, now time.Time, requestID string) Record {
	text, err := json.Marshal(body)
	if err != nil { // all of it was read as JSON
		panic(err)
	}
	return Record{ID: uuid.Must(uuid.NewV7()).String(), Kind: kind, Time: now, Tenant: r.Tenant, Caller: r.Caller, RequestID: requestID, Body: text}
}
