package enforce

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Reasons of a refusal, for programs: reason_code in the data of the error.
const (
	ReasonDenied         = "denied"                   // the policies say no
	ReasonUnknownMethod  = "unknown_method"           // nobody says what the method asks for
	ReasonMapping        = "mapping_error"            // what it asks for could not be made out
	ReasonUnknownTool    = "unknown_tool"             // the server lists no such tool
	ReasonQuarantined    = "tool_quarantined"         // the tool is not the one that was accepted
	ReasonArguments      = "invalid_arguments"        // the tool does not take such arguments
	ReasonNumber         = "non_interoperable_number" // parsers would read a number differently
	ReasonPDP            = "pdp_unavailable"          // no decision came
	ReasonObligation     = "obligation_unmet"         // what was to be done first could not be
	ReasonPending        = "approval_pending"         // a person has been asked
	ReasonNotApproved    = "approval_refused"         // the person said no, or nobody said anything in time
	ReasonWithdrawn      = "approval_withdrawn"       // the caller no longer wanted it
	ReasonState          = "approval_state"           // what the client sent back is not what it was given
	ReasonSuperseded     = "approval_superseded"      // the tool is not the one that was approved
	ReasonSettled        = "approval_consumed"        // the approval has been used
	ReasonTooMany        = "too_many_pending"         // of this caller, or altogether
	ReasonUnavailable    = "upstream_unavailable"     // the server did not answer
	ReasonWithheld       = "answer_withheld"          // the server carried the call out, and its answer cannot be passed on
	ReasonCaller         = "unknown_caller"           // the credential is good no longer
	ReasonInvalidMessage = "invalid_message"
)

// Data is what an error says to programs.
type Data struct {
	Reason       string   `json:"reason_code"`
	Text         string   `json:"reason,omitzero"`        // for people, where the message of the error is fixed
	EvaluationID string   `json:"evaluation_id,omitzero"` // of the PDP's log
	RetryAfter   int      `json:"retry_after,omitzero"`   // seconds
	Task         string   `json:"task,omitzero"`          // that waits for a person
	Tasks        []string `json:"tasks,omitempty"`        // all of them, where there are several
	Page         string   `json:"page,omitzero"`          // where that person decides
	Comment      string   `json:"comment,omitzero"`       // of the person who denied it
	Digest       string   `json:"call_digest,omitzero"`   // of the arguments that wait
}

// tasks are those that wait, as an [Entry] has them.
func (d *Data) tasks() string { return cmp.Or(strings.Join(d.Tasks, " "), d.Task) }

// A Refusal is why a call does not go on.
type Refusal struct {
	Code    int // of JSON-RPC; 0 is that of a denial
	Status  int // of HTTP; 0 is that of a denial
	Message string
	Data    Data
	Why     string // for the operator, who has Message where this is ""
	Advice  string // for the model that made the call, after Message
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Data.Reason, r.Message) }

// NoSuchTool refuses a call of a tool that the server has not listed.
func NoSuchTool() *Refusal {
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the tool is not known", Data: Data{Reason: ReasonUnknownTool}, Advice: "List the tools, and call one of them."}
}

// concealed returns the refusal that does not tell that there is the tool of a
// call. What is wrong with the arguments tells it, too.
func (r *Refusal) concealed(call *Call) *Refusal {
	if call.Message.Method != wire.MethodToolsCall {
		return r
	}
	switch r.Data.Reason {
	case ReasonDenied, ReasonQuarantined, ReasonArguments, ReasonMapping, ReasonInvalidMessage:
		return NoSuchTool()
	}
	return r
}

// NoSuchTask refuses a call about a task that is not its caller's.
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
