package authzen

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// This file is the AuthZEN Access Request and Approval Profile, draft 1.

// An AccessRequest in a decision says that a person may lift the denial, and
// how that is asked for ("Requestable Denial Context").
type AccessRequest struct {
	Endpoint         string         `json:"endpoint,omitzero"`
	Template         string         `json:"template,omitzero"` // opaque to the PEP
	ExpiresAt        time.Time      `json:"expires_at"`
	BindingToken     string         `json:"binding_token,omitzero"` // sent back byte for byte
	Display          jsontext.Value `json:"display,omitzero"`
	RequestSchemaURL string         `json:"request_schema_url,omitzero"`
}

// Reasons of a requestable denial, and of one that a claimed approval did not
// prevent ("Re-evaluation Denial Reason Registry").
const (
	ReasonApprovalRequired     = "approval_required"
	ReasonApprovalExpired      = "approval_expired"
	ReasonOutOfScope           = "out_of_scope"
	ReasonGrantPending         = "grant_pending"
	ReasonPolicyDenied         = "policy_denied"
	ReasonApprovalUnverifiable = "approval_unverifiable"
)

// What a PEP does next after a re-evaluation that was denied ("Completion
// Semantics").
const (
	NextRequest = "request"
	NextRetry   = "retry"
	NextNone    = "none"
)

// A Submission asks that a person lift a denial ("Access Request Submission").
// It is about Resource and Action, or about Items.
type Submission struct {
	Subject         Subject          `json:"subject"`
	Resource        *Resource        `json:"resource,omitempty"`
	Action          *Action          `json:"action,omitempty"`
	Items           []SubmissionItem `json:"items,omitempty"`
	Context         jsontext.Value   `json:"context,omitzero"`
	Denial          *Denial          `json:"denial,omitempty"`
	RequestedAccess jsontext.Value   `json:"requested_access,omitzero"` // requested_until, emergency, and what the template asks
	Callback        *Callback        `json:"callback,omitempty"`
	Client          jsontext.Value   `json:"client,omitzero"` // id, name, actor, source: audit metadata
	// Partial says that there is a member of that name, of the companion for bulk
	// requests: who does not support it must say so.
	Partial bool `json:"-"`
}

// A SubmissionItem is one of several things asked for at once.
type SubmissionItem struct {
	Resource        Resource       `json:"resource"`
	Action          Action         `json:"action"`
	RequestedAccess jsontext.Value `json:"requested_access,omitzero"`
	Denial          *Denial        `json:"denial,omitempty"`
}

// A Denial says again which denial is to be lifted. It proves that there was
// one by BindingToken or by EvaluationID.
type Denial struct {
	EvaluationID string `json:"evaluation_id,omitzero"`
	ExpiresAt    string `json:"expires_at"` // as it was sent
	BindingToken string `json:"binding_token,omitzero"`
	EvaluatedAt  string `json:"evaluated_at,omitzero"`
	Reason       string `json:"reason,omitzero"`
	Template     string `json:"template,omitzero"`
}

// A Callback is where the PEP wants to be told of the outcome ("Callback
// Completion").
type Callback struct {
	Endpoint string   `json:"endpoint"`
	State    string   `json:"state,omitzero"`   // returned unmodified
	Events   []string `json:"events,omitempty"` // statuses; none is all terminal ones
}

// A Notification is what a PEP is called back with. It is no approval.
type Notification struct {
	State string `json:"state,omitzero"` // that of the callback
	Task  Task   `json:"task"`
}

// A Cancellation says why a PEP no longer waits ("Cancellation").
type Cancellation struct {
	Reason  string `json:"reason,omitzero"`
	Comment string `json:"comment,omitzero"`
}

// A TaskStatus is where a task stands ("Task Status Values"). Every one but
// TaskPending is terminal.
type TaskStatus string

const (
	TaskPending   TaskStatus = "pending"
	TaskApproved  TaskStatus = "approved"
	TaskDenied    TaskStatus = "denied"
	TaskExpired   TaskStatus = "expired"
	TaskCancelled TaskStatus = "cancelled"
	TaskFailed    TaskStatus = "failed"
	TaskPartial   TaskStatus = "partial" // items ended differently
)

// A TaskResponse is the answer to a submission and to every question about its
// task. Result is there when a task without items is approved.
type TaskResponse struct {
	Task   Task        `json:"task"`
	Result *TaskResult `json:"result,omitempty"`
}

// A Task is the handle of an Access Request ("Access Request Response"). The
// StatusEndpoint is authoritative.
type Task struct {
	ID             string         `json:"id"`
	Status         TaskStatus     `json:"status"`
	StatusEndpoint string         `json:"status_endpoint"`
	ExpiresAt      time.Time      `json:"expires_at"` // of the handle
	Progress       *TaskProgress  `json:"progress,omitempty"`
	Display        jsontext.Value `json:"display,omitzero"`
	Links          *TaskLinks     `json:"links,omitempty"`
	Items          []TaskItem     `json:"items,omitempty"` // in the order of the submission's
}

// TaskProgress counts the approvals that a pending task has and needs.
type TaskProgress struct {
	CurrentStep int `json:"current_step"`
	TotalSteps  int `json:"total_steps"`
}

// TaskLinks are there while they work.
type TaskLinks struct {
	Cancel string `json:"cancel,omitzero"`
}

// A TaskItem is how one of the items stands.
type TaskItem struct {
	Resource Resource    `json:"resource"`
	Action   Action      `json:"action"`
	Status   TaskStatus  `json:"status"`
	Result   *TaskResult `json:"result,omitempty"`
}

// A TaskResult says what an approval is good for: an evaluation, again.
type TaskResult struct {
	Mode     string   `json:"mode"` // ModeReevaluate
	Approval Approval `json:"approval"`
	// Arguments are those of the call if the approver has changed them. The approval is for a call with
	// them, and for no other. The profile wants names of extensions to be URIs.
	Arguments jsontext.Value `json:"urn:policy-service:arguments,omitzero"`
}

// ModeReevaluate is the only completion mode of the profile.
const ModeReevaluate = "reevaluate"

// An Approval is what a PEP puts at context.approval. It is never access by
// itself.
type Approval struct {
	ID            string    `json:"id"`
	ApprovedUntil time.Time `json:"approved_until"`
	ApprovedAt    time.Time `json:"approved_at,omitzero"`
	State         string    `json:"state,omitzero"` // a compact JWS
	// ArgumentsDigest is the PEP's: the digest of the arguments that the call will have. An approval with
	// changed arguments counts only with their digest.
	ArgumentsDigest string `json:"urn:policy-service:arguments_digest,omitzero"`
}

// A Problem is the body of an error of the Access Request API (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"` // HTTP
	Detail string `json:"detail,omitzero"`
}

// A CapabilityProblem is the body of an error of the type [ProblemCapabilityDenied].
type CapabilityProblem struct {
	Problem
	EvaluationID string `json:"evaluation_id"` // that denied
}

// Problem types ("Error Responses"); every other problem is about:blank.
const (
	ProblemNotRequestable       = "urn:openid:authzen:access-request:error:not_requestable"
	ProblemInvalidDenialBinding = "urn:openid:authzen:access-request:error:invalid_denial_binding"
	ProblemExpiredDenial        = "urn:openid:authzen:access-request:error:expired_denial"
	ProblemDuplicateRequest     = "urn:openid:authzen:access-request:error:duplicate_request"
	ProblemUnknownTask          = "urn:openid:authzen:access-request:error:unknown_task"
	ProblemTaskExpired          = "urn:openid:authzen:access-request:error:task_expired"
	ProblemInvalidTaskState     = "urn:openid:authzen:access-request:error:invalid_task_state"
)

// Problem types of this service, for members of companions of the profile that
// it does not support or does not allow. The profile asks that an extension's
// names are absolute URIs.
const (
	ProblemUnsupportedMember  = problemPage + "unsupported-member"
	ProblemCallbackNotAllowed = problemPage + "callback-not-allowed"

	problemPage = "https://github.com/policy-service/policy-service/blob/main/docs/pep-developer.md#"
)

// CapabilityAccessRequest in a PDP's metadata says that it has this profile.
const CapabilityAccessRequest = "urn:openid:authzen:capability:access-request"

// UnmarshalJSONFrom reads a submission with its required subject. How its
// members go together is the service's to say.
func (s *Submission) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "subject", into: &s.Subject, required: true},
		member{name: "resource", into: optional(&s.Resource)},
		member{name: "action", into: optional(&s.Action)},
		member{name: "partial", into: s.readPartial},
		member{name: "items", into: s.readItems},
		member{name: "context", into: &s.Context},
		member{name: "denial", into: optional(&s.Denial)},
		member{name: "requested_access", into: &s.RequestedAccess},
		member{name: "callback", into: optional(&s.Callback)},
		member{name: "client", into: &s.Client})
}

func (s *Submission) readPartial(dec *jsontext.Decoder) error {
	s.Partial = true
	return dec.SkipValue()
}

func (s *Submission) readItems(dec *jsontext.Decoder) error {
	s.Items = []SubmissionItem{} // also of a list that is empty
	return readArray(dec, "an array", func() error {
		s.Items = append(s.Items, SubmissionItem{})
		return s.Items[len(s.Items)-1].UnmarshalJSONFrom(dec)
	})
}

// UnmarshalJSONFrom reads an item with its required resource and action.
func (i *SubmissionItem) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "resource", into: &i.Resource, required: true},
		member{name: "action", into: &i.Action, required: true},
		member{name: "requested_access", into: &i.RequestedAccess},
		member{name: "denial", into: optional(&i.Denial)})
}

// UnmarshalJSONFrom reads a denial with its required expiry.
func (d *Denial) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "evaluation_id", into: &d.EvaluationID},
		member{name: "expires_at", into: &d.ExpiresAt, required: true, hint: ": copy it from context.access_request of the answer that denied"},
		member{name: "binding_token", into: &d.BindingToken},
		member{name: "evaluated_at", into: &d.EvaluatedAt},
		member{name: "reason", into: &d.Reason},
		member{name: "template", into: &d.Template})
}

// UnmarshalJSONFrom reads a callback with its required endpoint.
func (c *Callback) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "endpoint", into: &c.Endpoint, required: true},
		member{name: "state", into: &c.State},
		member{name: "events", into: &c.Events})
}

// UnmarshalJSONFrom reads a cancellation. Nothing of it is required.
func (c *Cancellation) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "reason", into: &c.Reason},
		member{name: "comment", into: &c.Comment})
}

// IdempotencyKey returns the key in the value of an Idempotency-Key header. The
// profile, unlike RFC 8941, does not quote it.
func IdempotencyKey(header string) string {
	if len(header) > 1 && strings.HasPrefix(header, `"`) && strings.HasSuffix(header, `"`) {
		return header[1 : len(header)-1]
	}
	return header
}
