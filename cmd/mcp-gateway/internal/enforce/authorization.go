package enforce

import (
	"bytes"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// An Authorization is what the accepted definition of a tool declares of who has to
// agree to its calls. It may tighten what the policies permit, and never loosens it.
type Authorization struct {
	Required bool              `json:"required"`
	Mode     AuthorizationMode `json:"mode"`
	Timeout  int               `json:"timeout,omitzero"` // seconds in which somebody has to agree; 0 is the PDP's
	Message  string            `json:"message,omitzero"` // for who agrees: one line, as the server wrote it
}

// An AuthorizationMode says who has to agree.
type AuthorizationMode string

const (
	ModeUserApproval AuthorizationMode = "user_approval" // a person
	ModeAutomatic    AuthorizationMode = "automatic"     // the policies
	ModeDelegated    AuthorizationMode = "delegated"     // a person to whom another has delegated it
)

// Bounds of a declaration: the characters of the message, and the seconds of a year.
const (
	maxMessage = 512
	maxTimeout = 365 * 24 * 60 * 60
)

// ReadAuthorization returns what the canonical definition of a tool declares, or nil. A
// declaration that is not well-formed requires a person, and so does an unknown mode.
func ReadAuthorization(definition jsontext.Value) *Authorization {
	if !bytes.Contains(definition, []byte(`"authorization"`)) { // a canonical definition writes each name in one way
		return nil
	}
	members, err := jsonobject.Parse(definition)
	if err == nil && members["authorization"] == nil {
		return nil
	}
	strict := &Authorization{Required: true, Mode: ModeUserApproval}
	var said struct {
		Required *bool   `json:"required"`
		Mode     *string `json:"mode"`
		Timeout  *int    `json:"timeout"`
		Message  string  `json:"message"`
	}
	if err != nil || json.Unmarshal(members["authorization"], &said) != nil || said.Required == nil || said.Timeout != nil && (*said.Timeout < 1 || *said.Timeout > maxTimeout) {
		return strict
	}
	a := &Authorization{Required: *said.Required, Mode: ModeUserApproval, Message: plain.Cut(plain.Text(said.Message), maxMessage)}
	if said.Timeout != nil {
		a.Timeout = *said.Timeout
	}
	if said.Mode != nil && slices.Contains([]AuthorizationMode{ModeAutomatic, ModeDelegated}, AuthorizationMode(*said.Mode)) {
		a.Mode = AuthorizationMode(*said.Mode)
	}
	return a
}

// Until returns the time until which somebody has to agree to a call that waits since
// a time, or the zero time for no such bound.
func (a *Authorization) Until(since time.Time) time.Time {
	if a == nil || !a.Required || a.Timeout == 0 {
		return time.Time{}
	}
	return since.Add(time.Duration(a.Timeout) * time.Second)
}

// Authorization returns what the tool of a call declares, or nil.
func (c *Call) Authorization() *Authorization {
	if c.Tool == nil {
		return nil
	}
	return c.Tool.Authorization
}

// isSatisfied reports whether permits suffice for the call of a tool.
func (a *Authorization) isSatisfied(permits []authzen.Decision) bool {
	if a == nil || !a.Required || a.Mode == ModeAutomatic {
		return true
	}
	return slices.ContainsFunc(permits, func(d authzen.Decision) bool { return d.Context != nil && d.Context.Approval != nil })
}

// unauthorized returns the refusal of a call that the policies permit and that its
// tool wants somebody to agree to, or nil. Only policies ask somebody.
func (k *Checker) unauthorized(call *Call, q *Question, a *Answer) *Refusal {
	if call.Authorization().isSatisfied(a.Decisions) {
		return nil
	}
	refusal := k.denial(q, a.EvaluationID)
	refusal.Data.Reason, refusal.Message = ReasonAuthorization, "the tool requires the approval of a person, and no policy asks for one"
	return refusal
}
