package authzen

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The types of this file are never sent. They are what the engine and the
// Access Request Service say to each other, who do not know each other.

var (
	// ErrApprovalEnded means that an approval no longer stands.
	ErrApprovalEnded = errors.New("the approval no longer stands")
	// ErrUnknownEvaluation means that nothing is known of an evaluation, or not
	// any more.
	ErrUnknownEvaluation = errors.New("the evaluation is not known")
)

// An ApprovalTemplate says how a person approves.
type ApprovalTemplate struct {
	TTL          Duration      `json:"ttl"`                 // how long an approval stands
	DecideWithin Duration      `json:"decide_within"`       // how long a request waits for a person
	Escalation   Duration      `json:"escalation,omitzero"` // after which a pending request is escalated; 0 never
	Uses         int           `json:"uses"`                // permits that an approval is good for; 0 is any number
	Quorum       int           `json:"quorum"`              // approvers that are needed
	Scope        ApprovalScope `json:"scope"`
	// Context names the members of the context that the approval is bound to.
	// Nil is all of them but those that are not the request's.
	Context      []string `json:"context,omitzero"`
	PinRevision  bool     `json:"pin_revision"`           // an approval ends when the policies change
	StepUp       bool     `json:"step_up,omitzero"`       // approvers sign in again for each decision but a denial
	AutoApprover *Subject `json:"auto_approver,omitzero"` // asked at once, by the same policies as people; nil for none
	TellComment  bool     `json:"tell_comment,omitzero"`  // the PEP is told the comment of a denial
	// TellApprovers: the PEP is told who approved.
	TellApprovers bool           `json:"tell_approvers,omitzero"`
	MaxDuration   Duration       `json:"max_duration,omitzero"` // of a capability that it approves; 0 is the service's
	Display       jsontext.Value `json:"display,omitzero"`      // for the person who asks; a JSON object or nil
	Schema        jsontext.Value `json:"schema,omitzero"`       // JSON Schema of requested_access; nil for any
	Edit          []string       `json:"edit,omitempty"`        // names of arguments that approvers may change
	// Notify names the ways in which approvers are notified. Nil is the service's default.
	Notify []string `json:"notify,omitzero"`
	// CheckAccess holds a requested_access, nil for none, against Schema. Nil accepts any.
	CheckAccess func(access jsontext.Value) error `json:"-"`
}

// A Duration is text as Go writes it: 15m0s.
type Duration struct{ time.Duration }

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// An ApprovalScope says which requests an approval stands for.
type ApprovalScope string

const (
	// ScopeCall is the request that was denied and no other.
	ScopeCall ApprovalScope = "call"
	// ScopeResourceType is the action of that name on every resource of that
	// type, by the same subject and actor.
	ScopeResourceType ApprovalScope = "resource_type"
)

// A RequestableDenial is a denial that an approval would lift.
type RequestableDenial struct {
	EvaluationID string
	Tenant       string
	Caller       string
	Time         time.Time
	Revision     string // of the policies
	Template     string
	Request      *EvaluationRequest
	WithoutToken bool // it is to be named by its evaluation alone
}

// A Reevaluation is a request that claims an approval.
type Reevaluation struct {
	EvaluationID string // of this evaluation
	Tenant       string
	Caller       string
	RequestID    string // the PEP's; a repetition of the same request is not a second use
	Item         string // of a batch, its number from 0; "" for a single request
	Capability   string // that the evaluation completes; a second completion is not a second use
	Time         time.Time
	Revision     string // of the policies
	Claim        jsontext.Value
	Request      *EvaluationRequest
}

// A Standing says whether the claimed approval stands.
type ApprovalStatus struct {
	Approval    *VerifiedApproval // nil for one that does not
	Reason      string            // why not, for programs
	Explanation string            // why not, for people; a sentence, or ""
	// Consume counts a use. It fails with ErrNotStanding when the approval has
	// ended since or another took the last use.
	Consume func(context.Context) error
}

// A VerifiedApproval is an approval that stands, as policies see it.
type VerifiedApproval struct {
	ID        string    `json:"id"`
	Task      string    `json:"task,omitzero"` // the Access Request that it came of
	Template  string    `json:"template"`
	Approvers []Subject `json:"approvers"`
	Until     time.Time `json:"until"`
	Channel   string    `json:"channel"`            // by which way it was given
	UsesLeft  int       `json:"uses_left,omitzero"` // this one included
}
