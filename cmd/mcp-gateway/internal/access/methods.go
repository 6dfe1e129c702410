package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A granted is a capability as its caller sees it.
type granted struct {
	Token       string                         `json:"token,omitzero"` // of an active one that was just asked for
	Tools       []string                       `json:"tools"`
	Expires     time.Time                      `json:"expires,omitzero"`
	Signature   string                         `json:"signature,omitzero"` // last part of the token
	ID          string                         `json:"id"`
	Status      string                         `json:"status"` // pending, active or revoked
	Constraints *authzen.CapabilityConstraints `json:"constraints,omitempty"`
	UsesLeft    *int                           `json:"uses_left,omitempty"`
	Bound       string                         `json:"bound,omitzero"`
	JKT         string                         `json:"jkt,omitzero"`         // thumbprint (RFC 7638) of the key that it is bound to
	Task        string                         `json:"task,omitzero"`        // access request that people decide on
	RetryAfter  int                            `json:"retry_after,omitzero"` // seconds
	Message     string                         `json:"message,omitzero"`     // for a model
}

// A grantedList is what a caller has.
type grantedList struct {
	Capabilities []granted `json:"capabilities"`
}

// Values of granted.Status.
const (
	statusPending = "pending"
	statusActive  = "active"
)

// retryAfter is when a caller asks again about a pending capability, in seconds.
const retryAfter = 5

// A query is a call that asks about capabilities.
type query struct {
	*Service
	call  *enforce.Call
	names enforce.ToolNames
	asked map[string]string // names that the caller has used, by tool
}

// method returns the function that carries out the call, or nil if it is of another
// method.
func (q *query) method() func(context.Context) (any, error) {
	switch q.call.Message.Method {
	case wire.MethodCapabilitiesRequest:
		return q.request
	case wire.MethodCapabilitiesList:
		return q.list
	case wire.MethodCapabilitiesRevoke:
		return q.revoke
	case wire.MethodToolsRequests:
		return q.requests
	case wire.MethodToolsWithdraw:
		return q.withdraw
	case wire.MethodToolsCall:
		return q.tool()
	}
	return nil
}

// isAboutCapabilities reports whether the call is for a PDP that knows capabilities.
func (q *query) isAboutCapabilities() bool {
	switch q.call.Message.Method {
	case wire.MethodToolsRequests, wire.MethodToolsWithdraw:
		return false
	case wire.MethodToolsCall:
		return q.call.Params.Name != ToolPending
	}
	return true
}

// A proposal is what a caller asks for.
type proposal struct {
	Tools       []string                       `json:"tools"`
	Duration    int64                          `json:"duration"` // seconds
	Reason      string                         `json:"reason"`
	Constraints *authzen.CapabilityConstraints `json:"constraints"`
	Bind        string                         `json:"bind"`       // identity, which is the default, or session
	HolderKey   jsontext.Value                 `json:"holder_key"` // JWK of the holder's public key; nil for none

	Parent string                   `json:"parent"` // capability of the caller to hand on, or ""
	Holder *authzen.Subject         `json:"holder"` // to whom; nil for the caller
	Proof  *authzen.CapabilityProof `json:"proof"`  // of the key of Parent or Refreshes

	Refreshes string `json:"refreshes"` // capability of the caller that ends when the new one is issued, or ""
}

// bindSession binds a capability to the session of the request.
const bindSession = "session"

func (q *query) request(ctx context.Context) (any, error) {
	var asked proposal
	if err := q.read(q.call.Message.Params, &asked); err != nil {
		return nil, err
	}
	return q.propose(ctx, &asked)
}

// read reads params or arguments. A member that is not known is a fault: it would be a
// limit that nobody heeds.
func (q *query) read(object jsontext.Value, into any) error {
	if err := wire.Exact(q.call.Message.Params); err != nil {
		return &enforce.Refusal{Code: wire.CodeParams, Status: statusOK, Message: err.Error(), Data: enforce.Data{Reason: enforce.ReasonNumber}}
	}
	members, err := jsonobject.Parse(object)
	if err != nil {
		return invalid("the params are no object")
	}
	members.Remove("_meta")
	text, err := members.Encode()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into, json.RejectUnknownMembers(true)); err != nil {
		var at *json.SemanticError
		if errors.As(err, &at) && at.JSONPointer != "" {
			return invalid("%s is not defined, or not of the right type", at.JSONPointer)
		}
		return invalid("the params are not as they must be")
	}
	return nil
}

func invalid(format string, args ...any) *enforce.Refusal {
	return &enforce.Refusal{Code: wire.CodeParams, Status: statusOK, Message: fmt.Sprintf(format, args...), Data: enforce.Data{Reason: enforce.ReasonArguments}}
}

// propose asks the PDP for a capability, unless the caller has that one or waits for it.
func (q *query) propose(ctx context.Context, asked *proposal) (any, error) {
	if err := q.Count(q.call); err != nil {
		return nil, err
	}
	terms, err := q.terms(ctx, asked)
	if err != nil {
		return nil, err
	}
	var made *authzen.CapabilityResponse
	err = q.cfg.PDP.Do(q.call.Caller.Tenant, func(c *client.Client) error {
		known, err := c.Capabilities(ctx, terms.Subject)
		if err != nil {
			return err
		}
		if same := sameTerms(known, terms); same != nil {
			made, err = c.Capability(ctx, same.ID, 0)
			return err
		}
		made, err = c.RequestCapability(ctx, q.call.RequestID, terms)
		return err
	})
	if err != nil {
		return nil, refusal(err)
	}
	q.cfg.Log.InfoContext(ctx, "capability", "server", q.call.Server, "subject", terms.Subject.Type+"::"+terms.Subject.ID,
		"capability", made.Capability.ID, "status", made.Capability.Status, "request_id", q.call.RequestID)
	return q.shown(&made.Capability, made.Task), nil
}

// terms returns what the PDP is asked for.
func (q *query) terms(ctx context.Context, asked *proposal) (*authzen.CapabilitySubmission, error) {
	if len(asked.Tools) == 0 {
		return nil, invalid("/tools is required: the names of tools")
	}
	out := &authzen.CapabilitySubmission{
		CapabilityTerms: authzen.CapabilityTerms{Duration: asked.Duration, Reason: asked.Reason, Constraints: asked.Constraints, HolderKey: asked.HolderKey},
		Parent:          asked.Parent, Holder: asked.Holder, Proof: asked.Proof, Refreshes: asked.Refreshes,
	}
	for n, name := range asked.Tools {
		tool, ok := q.names.Inner(name)
		server, _, _ := strings.Cut(tool, ":")
		if !ok || !slices.Contains(q.cfg.Servers(), server) {
			return nil, q.noTool(n, name)
		}
		if err := q.checkTool(ctx, n, name, tool); err != nil {
			return nil, err
		}
		holder, err := q.cfg.Holder(server, q.call)
		if err != nil {
			return nil, err
		}
		if n > 0 && !sameSubject(holder, out.Subject) {
			return nil, invalid("/tools/%d is of a server at which you are another subject: ask for its tools alone", n)
		}
		out.Subject, q.asked[tool] = holder, name
		out.Tools = append(out.Tools, tool)
	}
	switch session := q.call.SessionID(); {
	case asked.Bind == bindSession && session == "":
		return nil, invalid("/bind cannot be session here: the gateway sees no session")
	case asked.Bind == bindSession:
		out.Session = session
	case asked.Bind != "" && asked.Bind != "identity":
		return nil, invalid("/bind must be identity or session")
	}
	return out, nil
}

// sameTerms returns the capability among those of a holder that has the same terms: a
// pending one, or an active one with at least half of its time left. So a caller that
// asks again meanwhile does not have people decide twice.
func sameTerms(known []authzen.Capability, terms *authzen.CapabilitySubmission) *authzen.Capability {
	for i := range known {
		c := &known[i]
		if c.UsesLeft != nil && *c.UsesLeft == 0 || c.Bound == bindSession || terms.Session != "" || terms.Refreshes != "" && terms.Refreshes != c.Refreshes || terms.Refreshes == "" && terms.Parent != c.Parent || !sameKey(c.HolderKey, terms.HolderKey) || !sameTools(c.Tools, terms.Tools) || !sameConstraints(c.Constraints, terms.Constraints) {
			continue
		}
		if c.Status == statusPending || c.Status == statusActive && time.Until(c.Expires) >= time.Duration(terms.Duration)*time.Second/2 {
			return c
		}
	}
	return nil
}

// sameKey reports whether a capability is bound to the key of a JWK, or both are nil.
func sameKey(of, asked jsontext.Value) bool {
	members, err := jsonobject.Parse(asked)
	if err != nil {
		return false
	}
	members.Remove("kid", "use", "alg", "key_ops", "ext") // the PDP keeps none of them
	required, err := members.EncodeMembers()
	return err == nil && jsonobject.Equal(of, required)
}

func sameSubject(a, b authzen.Subject) bool { return a.Type == b.Type && a.ID == b.ID }

func sameTools(a, b []string) bool {
	x, y := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(x), slices.Compact(y))
}

func sameConstraints(a, b *authzen.CapabilityConstraints) bool {
	x, err := json.Marshal(a, json.Deterministic(true))
	if err != nil {
		return false
	}
	y, err := json.Marshal(b, json.Deterministic(true))
	return err == nil && bytes.Equal(x, y)
}

// list returns the pending and active capabilities of the caller.
func (q *query) list(ctx context.Context) (any, error) {
	if err := q.read(q.call.Message.Params, &struct{}{}); err != nil {
		return nil, err
	}
	return q.mine(ctx)
}

func (q *query) mine(ctx context.Context) (any, error) {
	holders, err := q.holders()
	if err != nil {
		return nil, err
	}
	out := grantedList{Capabilities: []granted{}}
	for _, holder := range holders {
		err := q.cfg.PDP.Do(q.call.Caller.Tenant, func(c *client.Client) error {
			all, err := c.Capabilities(ctx, holder)
			for i := range all {
				out.Capabilities = append(out.Capabilities, *q.shown(&all[i], nil))
			}
			return err
		})
		if err != nil {
			return nil, refusal(err)
		}
	}
	return out, nil
}

// holders returns the subjects of the caller's calls. They differ where the operator
// maps servers differently.
func (q *query) holders() (all []authzen.Subject, err error) {
	servers := q.cfg.Servers()
	if slices.Contains(servers, q.call.Server) {
		servers = []string{q.call.Server}
	}
	for _, server := range servers {
		holder, err := q.cfg.Holder(server, q.call)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(s authzen.Subject) bool { return sameSubject(s, holder) }) {
			all = append(all, holder)
		}
	}
	return all, nil
}

// revoke gives a capability of the caller back.
func (q *query) revoke(ctx context.Context) (any, error) {
	var asked struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	if err := q.read(q.call.Message.Params, &asked); err != nil {
		return nil, err
	}
	if asked.ID == "" {
		return nil, invalid("/id is required: the id of a capability")
	}
	holders, err := q.holders()
	if err != nil {
		return nil, err
	}
	var ended *authzen.Capability
	err = q.cfg.PDP.Do(q.call.Caller.Tenant, func(c *client.Client) error {
		found, err := c.Capability(ctx, asked.ID, 0)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(holders, func(s authzen.Subject) bool { return sameSubject(s, found.Capability.Holder) }) {
			return unknownCapability()
		}
		ended, err = c.RevokeCapability(ctx, asked.ID, asked.Reason)
		return err
	})
	if err != nil {
		return nil, refusal(err)
	}
	return q.shown(ended, nil), nil
}

// shown returns a capability with the names that tools have for the caller.
func (q *query) shown(c *authzen.Capability, task *authzen.Task) *granted {
	out := &granted{
		ID: c.ID, Status: c.Status, Expires: c.Expires, Constraints: c.Constraints, UsesLeft: c.UsesLeft, Bound: c.Bound, JKT: c.JKT, Tools: []string{},
		Token: c.Token, Signature: c.Token[strings.LastIndexByte(c.Token, '.')+1:],
	}
	for _, tool := range c.Tools {
		name, ok := q.asked[tool]
		if !ok {
			name = q.names.Outer(tool)
		}
		out.Tools = append(out.Tools, name)
	}
	if c.Status == statusPending {
		out.RetryAfter = retryAfter
		if task != nil {
			out.Task = task.ID
		}
	}
	return out
}

func unknownCapability() *enforce.Refusal {
	return &enforce.Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the capability is not known", Data: enforce.Data{Reason: string(authzen.CapabilityUnknown)}}
}

// refusal returns the refusal for an error of the PDP.
func refusal(err error) error {
	var known *enforce.Refusal
	var status *client.StatusError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, client.ErrCapabilityDenied) && errors.As(err, &status):
		return &enforce.Refusal{Message: "policies do not permit this capability", Data: enforce.Data{Reason: enforce.ReasonDenied, EvaluationID: status.DecisionID}, Why: status.Message}
	case !errors.As(err, &status):
		return enforce.Undecided(err)
	}
	switch status.Status {
	case statusNotFound:
		return unknownCapability()
	case statusTooMany:
		return &enforce.Refusal{Message: "there are too many capabilities, or too many requests", Data: enforce.Data{Reason: enforce.ReasonTooMany}, Why: err.Error()}
	case statusConflict:
		return invalid("the capability has ended")
	case statusBadRequest, statusTooLarge, statusUnprocessable:
		return invalid("%s", status.Message)
	}
	return enforce.Undecided(err)
}

// Statuses of HTTP that the PDP answers with; below the transport they are numbers.
const (
	statusOK            = 200
	statusBadRequest    = 400
	statusNotFound      = 404
	statusConflict      = 409
	statusTooLarge      = 413
	statusUnprocessable = 422
	statusTooMany       = 429
)
