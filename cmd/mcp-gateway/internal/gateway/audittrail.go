package gateway

import (
	"errors"
	"log/slog"
	"regexp"
	"sync/atomic"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
)

// A trail keeps what becomes of calls in the audit trail.
type trail struct {
	*audit.Trail
	log      *slog.Logger
	rules    *currentRules
	observed *atomic.Pointer[observation.Summary]
}

// Begin implements [enforce.Trail].
func (t *trail) Begin(e *enforce.Entry) (string, func(how string), error) {
	call := t.call(e)
	id, err := t.Trail.Forward(call)
	if err != nil {
		return "", nil, err
	}
	if e.Observed != nil {
		t.summarize(&call)
	}
	return id, func(how string) { t.end(e, id, audit.Outcome(how)) }, nil
}

// end records the outcome of a call. The client of a call that people approved or
// that fulfils a request has its answer only once the outcome is on disk, so that no crash makes it unknown to them.
func (t *trail) end(e *enforce.Entry, id string, how audit.Outcome) {
	failed := func(err error) { t.log.Error("audit", "request_id", e.Call.RequestID, "error", err) }
	if e.Approval == "" && e.Fulfils == "" {
		t.Trail.DoneLater(id, how, "", failed)
	} else if err := t.Trail.Done(id, how, ""); err != nil {
		failed(err)
	}
}

// EndLate implements [enforce.Trail].
func (t *trail) EndLate(id string, c *enforce.Call, how string) {
	err := t.Trail.Resumed(id, audit.Outcome(how))
	if err != nil && !errors.Is(err, audit.ErrEnded) {
		t.log.Error("audit", "request_id", c.RequestID, "error", err)
	}
}

// Refuse implements [enforce.Trail].
func (t *trail) Refuse(e *enforce.Entry, reason string) {
	if err := t.Trail.Refused(t.call(e), reason); err != nil {
		t.log.Error("audit", "request_id", e.Call.RequestID, "error", err)
	}
}

// password is one in a URL, with what is before it. A client may send text that
// is nearly a URL.
var password = regexp.MustCompile(`(://[^/?#@:]*):[^/?#]*@`)

// withoutPassword returns the target of a call without the password of a URL.
func withoutPassword(target string) string { return password.ReplaceAllString(target, "$1:xxxxx@") }

// call returns the members of the entry for a call, also of the mode of its server.
func (t *trail) call(e *enforce.Entry) audit.Call {
	c := auditCall(e)
	c.Observed = t.rules.observes(e.Call.Server)
	return c
}

// auditCall returns the members of the audit trail's entry for a call.
func auditCall(e *enforce.Entry) audit.Call {
	target, _ := e.Call.Params.Target(e.Call.Message.Method)
	agent, _ := e.Call.Caller.Claims["client_id"].(string)
	c := audit.Call{
		Server: e.Call.Server, Method: e.Call.Message.Method, Tool: withoutPassword(target),
		Subject: audit.Entity{Type: e.Call.Caller.Subject.Type, ID: e.Call.Caller.Subject.ID}, Agent: agent, Tenant: e.Call.Caller.Tenant,
		Decisions: e.Decisions, RequestID: e.Call.RequestID, TraceID: e.Call.TraceID(), ArgsDigest: e.Digest, Task: e.Task, Approval: e.Approval,
		OnBehalfOf: e.OnBehalfOf, Fulfils: e.Fulfils,
	}
	if e.Call.Tool != nil {
		c.Definition = e.Call.Tool.Digest
	}
	if e.Observed != nil {
		c.Reason, c.Why, c.NotCarriedOut = e.Observed.Reason, e.Observed.Why, e.Observed.NotCarriedOut
	}
	return c
}
