package approval

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Kinds of records.
const (
	RecordRequest  = "request"  // event of a request
	RecordApproval = "approval" // a vote, or a use or the end of an approval
)

// A change is the body of a record: an event, with ids that join it to the evaluations before and
// after it. Only the record of a submission has the properties of subject, resource and action.
// Other records only name them.
type change struct {
	Event    string           `json:"event"`
	Task     string           `json:"task"`
	Status   string           `json:"status"`
	Template string           `json:"template,omitzero"` // of all items; absent if they differ
	Approval string           `json:"approval,omitzero"` // set if one item is affected
	Items    []changedItem    `json:"items"`
	Approver *authzen.Subject `json:"approver,omitempty"`
	Names    []string         `json:"approver_names,omitempty"` // all verified names of the approver
	Delegate *authzen.Subject `json:"delegate,omitempty"`       // of a delegation: who decides from then on
	Channel  string           `json:"channel,omitzero"`
	Sheet    string           `json:"sheet,omitzero"`  // digest of what the approver was shown
	Authn    *Authn           `json:"authn,omitempty"` // how the approver proved who they are
	Comment  string           `json:"comment,omitzero"`
	Reason   string           `json:"reason,omitzero"`
	UsedBy   string           `json:"used_by,omitzero"` // Decision-ID of the evaluation that used the approval
	Subject  *authzen.Subject `json:"subject,omitempty"`
	Actors   []Actor          `json:"actors,omitempty"`
	Access   jsontext.Value   `json:"requested_access,omitzero"`
	Client   jsontext.Value   `json:"client,omitzero"`

	Announced  string              `json:"announced,omitzero"`   // of an announcement: the event
	Recipients []recordedRecipient `json:"recipients,omitempty"` // of an announcement
}

// A recordedRecipient is a recipient without its address.
type recordedRecipient struct {
	Way    string           `json:"way"`
	Person *authzen.Subject `json:"person,omitempty"`
}

// Events of the records about announcements.
const (
	recordAnnounce     = "announce"      // recipients will be notified
	recordAnnounceFail = "announce_fail" // all attempts to notify a recipient have failed
)

// announcementRecord returns the record of an announcement.
func announcementRecord(r *Request, kind, event string, to []Recipient, at time.Time) Record {
	body := change{Event: kind, Task: r.ID, Status: string(r.Status()), Announced: event, Subject: named(r.Subject)}
	for _, one := range to {
		body.Recipients = append(body.Recipients, recordedRecipient{one.Way, one.Person})
	}
	for n := range r.Items {
		body.Items = append(body.Items, r.Items[n].changed())
	}
	return newRecord(RecordRequest, r, body, at, "", "")
}

type changedItem struct {
	EvaluationID string             `json:"evaluation_id"`
	Template     string             `json:"template"`
	Status       authzen.TaskStatus `json:"status"`
	Approval     string             `json:"approval,omitzero"`
	Until        time.Time          `json:"approved_until,omitzero"`
	Changed      []string           `json:"changed_arguments,omitempty"` // names
	Was          string             `json:"arguments_digest,omitzero"`   // of the arguments as requested
	Digest       string             `json:"changed_arguments_digest,omitzero"`
	Resource     *authzen.Resource  `json:"resource,omitempty"`
	Action       *authzen.Action    `json:"action,omitempty"`
}

// submitted returns the record of a new request.
func submitted(r *Request, c Caller, at time.Time) Record {
	body := change{Event: "submit", Task: r.ID, Status: string(r.Status()), Subject: &r.Subject, Actors: r.Actors, Access: r.Access, Client: r.Client}
	for _, i := range r.Items {
		body.Items = append(body.Items, changedItem{EvaluationID: i.EvaluationID, Template: i.Template, Status: i.Status, Resource: &i.Resource, Action: &i.Action})
	}
	return newRecord(RecordRequest, r, body, at, c.ID, c.RequestID)
}

// ofApprovals lists the events in records of kind approval. Every vote is one, including denials
// and votes that need a quorum, and every delegation: all decisions of people have the same kind.
var ofApprovals = []eventKind{eventVote, eventDelegate, eventUse, eventRevoke, eventSupersede}

// transition returns the record of an event.
func transition(r *Request, e event, at time.Time) Record {
	body := change{
		Event: string(e.kind), Task: r.ID, Status: string(r.Status()), Subject: named(r.Subject),
		Channel: e.vote.Channel, Sheet: e.vote.Sheet, Comment: e.vote.Comment, Reason: e.reason, UsedBy: e.usedBy,
	}
	if e.vote.Approver.ID != "" {
		body.Approver, body.Names, body.Authn = &e.vote.Approver, e.vote.Names, e.vote.Authn
	}
	if e.kind == eventDelegate {
		body.Delegate = &e.to
	}
	if e.kind == eventVote {
		body.Event = "deny"
		if e.vote.Approve {
			body.Event = "approve"
		}
	}
	for n := range r.Items {
		if e.items == nil || slices.Contains(e.items, n) {
			body.Items = append(body.Items, r.Items[n].changed())
		}
	}
	kind := RecordRequest
	if slices.Contains(ofApprovals, e.kind) {
		kind = RecordApproval
	}
	return newRecord(kind, r, body, at, e.caller, e.use.RequestID)
}

// changed returns an item after an event, without the properties in the record of the submission.
func (i *Item) changed() changedItem {
	c := changedItem{
		EvaluationID: i.EvaluationID, Template: i.Template, Status: i.Status,
		Resource: named(i.Resource), Action: &authzen.Action{Name: i.Action.Name},
	}
	if i.Approval != nil {
		c.Approval, c.Until = i.Approval.ID, i.Approval.Until
	}
	if i.Edit != nil {
		c.Changed, c.Was, c.Digest = i.Edit.Changed, i.Edit.Was, i.Edit.Digest
	}
	return c
}

// named returns an entity without its properties.
func named(e authzen.Entity) *authzen.Entity { return &authzen.Entity{Type: e.Type, ID: e.ID} }

func newRecord(kind string, r *Request, body change, at time.Time, caller, requestID string) Record {
	body.Template, body.Approval = body.common()
	return Record{Kind: kind, Time: at, Tenant: r.Tenant, Caller: caller, RequestID: requestID}.WithBody(body)
}

// common returns the template of all items and the approval of the only one.
func (c *change) common() (template, approval string) {
	for n, i := range c.Items {
		if n > 0 && i.Template != c.Items[0].Template {
			return "", ""
		}
		template = i.Template
	}
	if len(c.Items) == 1 {
		approval = c.Items[0].Approval
	}
	return template, approval
}
