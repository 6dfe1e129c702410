package enforce

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Reason codes of refusals: the member reason_code in the data of the error.
const (
	ReasonDenied         = "denied"                   // the policies deny the call
	ReasonUnknownMethod  = "unknown_method"           // no mapping covers the method
	ReasonMapping        = "mapping_error"            // the mapping of the call failed
	ReasonUnknownTool    = "unknown_tool"             // the server does not list the tool
	ReasonQuarantined    = "tool_quarantined"         // the definition of the tool is not accepted
	ReasonArguments      = "invalid_arguments"        // the arguments do not fit the input schema
	ReasonNumber         = "non_interoperable_number" // parsers would read a number differently
	ReasonPDP            = "pdp_unavailable"          // the PDP gave no decision
	ReasonObligation     = "obligation_unmet"         // an obligation could not be carried out
	ReasonPending        = "approval_pending"         // the call waits for a person
	ReasonAuthorization  = "authorization_required"   // the tool requires a person, and no policy asks one
	ReasonNotApproved    = "approval_refused"         // a person denied the call, or nobody decided in time
	ReasonWithdrawn      = "approval_withdrawn"       // the caller withdrew the call
	ReasonState          = "approval_state"           // the requestState is not valid
	ReasonSuperseded     = "approval_superseded"      // the tool or the policies changed after the approval
	ReasonSettled        = "approval_consumed"        // the approval has been used
	ReasonTooMany        = "too_many_pending"         // too many calls of this caller, or altogether, wait
	ReasonTooOften       = "too_many_calls"           // the caller has reached a limit of calls
	ReasonUnavailable    = "upstream_unavailable"     // the server did not answer
	ReasonCredential     = "upstream_credential"      // the gateway got no credential for the server, and did not call it
	ReasonLogin          = "upstream_login"           // the person behind the caller has to log in at the server first
	ReasonWithheld       = "answer_withheld"          // the server carried out the call, and the gateway withholds its answer
	ReasonCaller         = "unknown_caller"           // the credential is not valid any more
	ReasonCapability     = "capability_required"      // a capability would lift the denial
	ReasonRequest        = "invalid_request"          // there is no such request, or the call does not fulfil it
	ReasonInvalidMessage = "invalid_message"
)

// Data is the member data of an error.
type Data struct {
	Reason       string        `json:"reason_code"`
	Text         string        `json:"reason,omitzero"`        // for people, where the message of the error is fixed
	EvaluationID string        `json:"evaluation_id,omitzero"` // of the PDP's log
	RetryAfter   int           `json:"retry_after,omitzero"`   // seconds
	Task         string        `json:"task,omitzero"`          // access request that waits for a person
	Tasks        []string      `json:"tasks,omitempty"`        // all of them, where there are several
	Page         string        `json:"page,omitzero"`          // URL of the page where that person decides
	Comment      string        `json:"comment,omitzero"`       // of the person who denied it
	Digest       string        `json:"call_digest,omitzero"`   // of the arguments that wait
	Elicitations []Elicitation `json:"elicitations,omitempty"` // pages that have to be visited first
	// Of a call that waits for a person.
	AuthorizationRequest *AuthorizationRequest `json:"authorizationRequest,omitempty"`
	// Of a call for want of a capability.
	Suggestion        string             `json:"suggestion,omitzero"`
	CapabilityRequest *CapabilityRequest `json:"capability_request,omitempty"`
	Versions          `json:",inline"`
}

// An AuthorizationRequest is what a person is asked about a call, in the form of MCPx.
type AuthorizationRequest struct {
	ID        string         `json:"id"` // of the task
	Tool      string         `json:"tool,omitzero"`
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Requester string         `json:"requester"`
	Reason    string         `json:"reason,omitzero"`
	ExpiresAt time.Time      `json:"expiresAt,omitzero"`
}

// An Elicitation leads a person to a page (MCP 2025-11-25, "URL Mode Elicitation").
type Elicitation struct {
	Mode    string `json:"mode"`
	ID      string `json:"elicitationId"`
	URL     string `json:"url"`
	Message string `json:"message"`
}

// Versions are what a client chooses another version of the protocol by, once the
// server has refused the version of its request.
type Versions struct {
	Supported []string `json:"supported,omitempty"`
	Requested string   `json:"requested,omitzero"`
}

// tasks returns the access requests in the form of [Entry.Task].
func (d *Data) tasks() string { return cmp.Or(strings.Join(d.Tasks, " "), d.Task) }

// A Refusal is the reason why a call is not forwarded.
type Refusal struct {
	Code    int // of JSON-RPC; 0 is that of a denial
	Status  int // of HTTP; 0 is that of a denial
	Message string
	Data    Data
	Why     string // for the operator, who has Message where this is ""
	Advice  string // for the model that made the call, after Message

	// ForModel: a model called a tool of the gateway, and reads why that failed.
	ForModel bool

	capability capabilityFault // "" if it is not about a capability
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Data.Reason, r.Message) }

// NoSuchTool refuses a call of a tool that the server has not listed.
func NoSuchTool() *Refusal {
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the tool is not known", Data: Data{Reason: ReasonUnknownTool}, Advice: "List the tools, and call one of them."}
}

// UnknownTools refuses a call because the tools of its server cannot be listed.
func UnknownTools(err error) *Refusal {
	return &Refusal{Code: wire.CodeInternal, Status: statusOK, Message: "the tools of the server are not known", Data: Data{Reason: ReasonUnavailable}, Why: err.Error()}
}

// concealed returns the refusal that does not reveal that the tool of a call exists.
// A fault of the arguments would reveal it.
func (r *Refusal) concealed(call *Call) *Refusal {
	if call.Message.Method != wire.MethodToolsCall {
		return r
	}
	if r.capability == capabilityInvalid {
		return NoSuchTool()
	}
	switch r.Data.Reason {
	case ReasonDenied, ReasonQuarantined, ReasonArguments, ReasonMapping, ReasonInvalidMessage:
		return NoSuchTool()
	}
	return r
}

// TooOften refuses a call that exceeds a limit until some time has passed.
func TooOften(limit string, after time.Duration) *Refusal {
	seconds := int(math.Ceil(after.Seconds()))
	return &Refusal{
		Message: limit, Data: Data{Reason: ReasonTooOften, RetryAfter: seconds}, Advice: fmt.Sprintf("Call again in %d seconds.", seconds),
	}
}

// NoSuchTask refuses a call about a task of another caller.
func NoSuchTask() *Refusal {
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the task does not exist", Data: Data{Reason: ReasonInvalidMessage}}
}

// disposition answers a call with the refusal. A notification is not answered.
func (r *Refusal) disposition(id jsontext.Value) *Disposition {
	if id == nil {
		return &Disposition{Status: statusAccepted}
	}
	return &Disposition{Answer: wire.Refuse(id, r.Code, r.Message, r.Data), Status: r.Status}
}

// Statuses of HTTP that answers have; below the transport they are numbers.
const (
	statusOK       = 200
	statusAccepted = 202
	statusNotFound = 404
)
