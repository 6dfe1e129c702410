package authzen

import (
	"maps"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Decision answers an [EvaluationRequest] (AuthZEN 1.0, "Decision"). It is
// the answer of an evaluation that succeeded; a failure is an error, never a
// Decision.
type Decision struct {
	Decision bool             `json:"decision"`
	Context  *DecisionContext `json:"context,omitempty"`
}

// A DecisionContext says what a PEP must know beside the decision. There is
// none where there is nothing to act on.
type DecisionContext struct {
	ReasonUser  Reason       `json:"reason_user,omitempty"`
	ReasonAdmin Reason       `json:"reason_admin,omitempty"`
	Obligations []Obligation `json:"obligations,omitempty"`
	Error       *Error       `json:"error,omitempty"`

	// SupportedObligations are the types of obligations for want of which a permit
	// was withheld: what the PEP has to declare in context.supported_obligations.
	SupportedObligations []string `json:"supported_obligations,omitempty"`

	// Of a denial that a person may lift.
	EvaluationID  string         `json:"evaluation_id,omitzero"`
	EvaluatedAt   time.Time      `json:"evaluated_at,omitzero"`
	Reason        string         `json:"reason,omitzero"` // for programs, see ReasonApprovalRequired
	AccessRequest *AccessRequest `json:"access_request,omitempty"`

	// Of a request that claimed an approval.
	Approval   *Approval `json:"approval,omitempty"`   // that stands
	NextAction string    `json:"next_action,omitzero"` // of a denial, or of a permit that waits for an approval
	RetryAfter int       `json:"retry_after,omitzero"` // seconds, with NextRetry

	// Of a denial about capabilities.
	CapabilityDenied  CapabilityReason   `json:"capability_denied,omitzero"`   // why the presented one does not cover the request
	CapabilityRequest *CapabilityRequest `json:"capability_request,omitempty"` // how to ask for one
}

// A Reason is a sentence for people, by language tag (BCP 47).
type Reason map[string]string

// After returns the reason with an English sentence before it.
func (r Reason) After(sentence string) Reason {
	after := Reason{}
	maps.Copy(after, r)
	after["en"] = strings.TrimSpace(sentence + " " + r["en"])
	return after
}

// MarshalJSONTo writes the languages in order: equal decisions are equal bytes.
func (r Reason) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, map[string]string(r), json.Deterministic(true))
}

// An Error is what went wrong with a whole request or with one item of a
// batch. Status is the HTTP status that a single request would have had.
type Error struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

// ReasonObligationUnsupported is the reason of a denial for want of an obligation
// that the PEP did not declare: policies permit, and ask for more than it says
// it can do.
const ReasonObligationUnsupported = "obligation_unsupported"

// An ErrorResponse is the body of every answer that is not a success. AuthZEN
// 1.0 asks for "an error message string" and for an object at the top level;
// this is both.
type ErrorResponse struct {
	Error   Error  `json:"error"`
	Message string `json:"message"` // of the error, for clients that look for it here
}

// NewErrorResponse returns the body that tells of an error.
func NewErrorResponse(e Error) ErrorResponse { return ErrorResponse{e, e.Message} }

// Obligation types of the AuthZEN Obligations Profile, draft 1.
const (
	ObligationStepUp             = "step-up"
	ObligationNotification       = "notification"
	ObligationSessionTermination = "session_termination"
	ObligationCustom             = "custom"
)

// ObligationTypes returns every obligation type this vocabulary knows, as the
// metadata's supported_obligations lists them.
func ObligationTypes() []string {
	return []string{ObligationStepUp, ObligationNotification, ObligationSessionTermination, ObligationCustom}
}

// An Obligation is something the PEP must do, or else treat the decision as a
// denial (Obligations Profile, "The Obligation Object"). Its ID is unique
// within the response; Properties is a JSON object.
type Obligation struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Properties jsontext.Value `json:"properties"`
}

// ActionApprovalRequired is the properties.action of the custom obligation
// that asks the PEP to wait until a person has approved the request.
const ActionApprovalRequired = "approval_required"

// ApprovalRequired are the properties of that obligation.
type ApprovalRequired struct {
	Action        string         `json:"action"` // ActionApprovalRequired
	Template      string         `json:"template"`
	EvaluationID  string         `json:"evaluation_id,omitzero"`
	AccessRequest *AccessRequest `json:"access_request,omitempty"` // by which the approval is asked for
}
