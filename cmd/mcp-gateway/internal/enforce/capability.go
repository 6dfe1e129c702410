package enforce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sony/gobreaker/v2"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Access answers what callers ask about their capabilities.
type Access interface {
	// Answer answers calls of the gateway's own methods and tools. It returns nil for
	// all others.
	Answer(context.Context, *Call) (*Disposition, error)
	// Ways returns how the caller of a call asks for a capability.
	Ways(context.Context, *Call) Ways
	// Rewrite returns the tools/call that a call of a tool of the gateway stands for, or
	// nil for all others.
	Rewrite(context.Context, *Call) (*wire.Message, error)
	// Count counts a request for the limit of its caller. Its error is a [Refusal] if
	// the request exceeds the limit.
	Count(*Call) error
}

// Ways are how callers ask for a capability.
type Ways struct {
	Method string // a method of the protocol, or ""
	Tool   string // a tool, or ""
}

// ToolNames are the names of tools at an endpoint.
type ToolNames struct {
	// Inner returns the tool that a caller names, as SERVER:TOOL.
	Inner func(asked string) (tool string, ok bool)
	// Outer returns the name of a tool SERVER:TOOL for the caller.
	Outer func(tool string) string
}

type accessToolsKey struct{}

// WithAccessTools returns the context of a call that came through an endpoint over
// several servers with the gateway's own tools. The endpoint of a server then does not
// offer them again.
func WithAccessTools(ctx context.Context) context.Context {
	return context.WithValue(ctx, accessToolsKey{}, true)
}

// HasAccessTools reports whether a context is one of [WithAccessTools].
func HasAccessTools(ctx context.Context) bool { return ctx.Value(accessToolsKey{}) != nil }

// takeCapability takes the capability that a call presents out of its message: neither
// the server nor a file of the gateway gets it.
func (c *Call) takeCapability() error {
	presented, m, err := c.Message.TakeCapability()
	if err != nil {
		return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: err.Error(), Data: Data{Reason: ReasonInvalidMessage}}
	}
	if m == c.Message {
		return nil
	}
	c.Presented = presented
	return c.replace(m)
}

// presenting notes the capability with which the PDP has permitted a call. A call that
// waited was permitted without it, and has another disposition.
func (c *Call) presenting(d *Disposition, err error) (*Disposition, error) {
	if err == nil {
		d.presented = c.Presented
	}
	return d, err
}

// handOn adds the capability of a permitted call to what goes to a server that checks
// it itself. Only the message on its way has it: everything that is kept or logged is
// made from the call.
func (g *Gate) handOn(call *Call, d *Disposition) *Disposition {
	if d.presented.Capability == "" || !g.cfg.HandsOn(call.Server) {
		return d
	}
	if m, err := d.Forward.WithCapability(d.presented); err == nil { // it was read before; without it, the server refuses the call
		d.Forward = m
	}
	return d
}

// claimOf returns the claim of a presented capability: an id has no dot, and a token
// has two.
func claimOf(p wire.Presented) (*authzen.CapabilityClaim, error) {
	claim := &authzen.CapabilityClaim{}
	if strings.Contains(p.Capability, ".") {
		claim.Token = p.Capability
	} else {
		claim.ID = p.Capability
	}
	if p.Proof == nil {
		return claim, nil
	}
	if err := json.Unmarshal(p.Proof, &claim.Proof, json.RejectUnknownMembers(true)); err != nil {
		return nil, &Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the proof of a capability must be an object of timestamp, nonce and signature", Data: Data{Reason: ReasonInvalidMessage}}
	}
	return claim, nil
}

// SessionID is the session of a call, as a capability is bound to it, or "". The
// server's own id could be used by whoever reads it in a log.
func (c *Call) SessionID() string {
	if c.Session == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "mcp-gateway session %q %q", c.Server, c.Session))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// claim returns what a question says of capabilities, or nil. Presented means that the
// question has the capability that the call presents.
func (g *Gate) claim(ctx context.Context, call *Call, presented bool) (*authzen.CapabilityClaim, error) {
	use := call.Message.Method == wire.MethodToolsCall
	if !use && call.Message.Method != wire.MethodToolsList {
		return nil, nil
	}
	claim := &authzen.CapabilityClaim{}
	if presented {
		var err error
		if claim, err = claimOf(call.Presented); err != nil {
			return nil, err
		}
	}
	if !g.cfg.PDP.HasCapabilities(ctx, call.Caller.Tenant) {
		if !claim.Presents() {
			return nil, nil
		}
		return nil, &Refusal{Code: wire.CodeParams, Status: statusOK, Message: "the policy decision point does not know capabilities", Data: Data{Reason: ReasonInvalidMessage}}
	}
	claim.Session, claim.JKT, claim.Use = call.SessionID(), call.Caller.JKT, &use
	return claim, nil
}

// Arguments are the calls whose arguments the PDP gets, beside those that present a
// capability.
type Arguments string

const (
	ArgumentsNeeded Arguments = ""       // a capability of the caller limits them
	ArgumentsAlways Arguments = "always" // all
	ArgumentsNever  Arguments = "never"  // no others
)

func (g *Gate) arguments(server string) Arguments {
	if g.cfg.Arguments == nil {
		return ArgumentsNeeded
	}
	return g.cfg.Arguments(server)
}

// needsArguments reports whether the PDP denied a call only because it did not have
// the arguments, which a capability of the caller limits.
func (g *Gate) needsArguments(call *Call, answer *Answer) bool {
	return g.decisionArguments(call) == nil && call.Message.Method == wire.MethodToolsCall && g.arguments(call.Server) == ArgumentsNeeded &&
		slices.ContainsFunc(answer.Decisions, func(d authzen.Decision) bool {
			return d.Context != nil && d.Context.CapabilityDenied == authzen.CapabilityArgumentsMissing
		})
}

// askWithArguments asks about a call a second time, with its arguments.
func (g *Gate) askWithArguments(ctx context.Context, call *Call, mapped *Question, a *asked) (err error) {
	call.SendsArguments = true
	if a.question, err = g.declare(ctx, call, mapped, a.digest, false); err != nil {
		return err
	}
	if a.answer, err = g.cfg.PDP.Ask(ctx, call.Caller.Tenant, a.question); err != nil {
		return Undecided(err)
	}
	return nil
}

// decisionArguments returns the arguments of a call if policies or capabilities may
// depend on them, or nil.
func (g *Gate) decisionArguments(call *Call) jsontext.Value {
	if call.Message.Method != wire.MethodToolsCall || call.Presented.Capability == "" && !call.SendsArguments && g.arguments(call.Server) != ArgumentsAlways {
		return nil
	}
	if call.Params.Arguments == nil {
		return jsontext.Value("{}")
	}
	return call.Params.Arguments
}

// needsCapability reports whether a denial is one that a capability would lift, or of
// the capability that the call presents.
func needsCapability(d *authzen.Decision) bool {
	c := d.Context
	return c != nil && c.Error == nil && (c.CapabilityRequest != nil || c.CapabilityDenied != "")
}

// A capabilityFault says what is wrong with the capability of a call.
type capabilityFault string

const (
	capabilityMissing capabilityFault = "missing" // there is none, and one would lift the denial
	capabilityInvalid capabilityFault = "invalid" // the one that the call presents does not cover it
)

const (
	codeCapability    = -32003
	messageCapability = "Invalid or missing capability token"
)

// capability makes a refusal one for want of a capability.
func (k *Checker) capability(call *Call, refusal *Refusal, d *authzen.Decision) *Refusal {
	if refusal.Code = k.refused.CapabilityCode; refusal.Code == 0 {
		if refusal.Code = codeCapability; call.Stateless && k.refused.Codes != CodesMCPX {
			refusal.Code = k.refused.Code
		}
	}
	tool := call.Params.Name
	refusal.Data.Text = cmp.Or(d.Context.ReasonUser["en"], fmt.Sprintf("No valid capability for tool '%s' on '%s'", tool, call.Server))
	refusal.Data.Reason, refusal.Message, refusal.capability = ReasonCapability, messageCapability, capabilityMissing
	if denied := d.Context.CapabilityDenied; denied != "" {
		refusal.Data.Reason = string(denied)
		refusal.Why = cmp.Or(refusal.Why, "the capability does not cover the call: "+string(denied))
	}
	if call.Presented.Capability != "" && d.Context.CapabilityDenied != "" {
		refusal.capability = capabilityInvalid
	}
	return refusal
}

// CapabilityRequest says how to ask for the capability that a call needs.
type CapabilityRequest struct {
	Method string           `json:"method,omitzero"`
	Params CapabilityParams `json:"params"`
	Tool   string           `json:"tool,omitzero"` // of the gateway, which takes the params as arguments
}

// CapabilityParams are the params of the method, and the arguments of the tool.
type CapabilityParams struct {
	Tools []string `json:"tools"`
}

// remedies say what makes a capability cover a call that its holder could prove, or make in
// another session. To such a caller another capability is of no use, or a weaker one.
var remedies = map[string]string{
	string(authzen.CapabilityReplayed):     "Sign a new proof for this call: a proof is good for one call",
	string(authzen.CapabilityProofMissing): "Send params.capability and params.proof: the capability is bound to a key, and each call needs a proof",
	string(authzen.CapabilityProofStale):   "Sign a new proof for this call: a proof is good for a minute",
	string(authzen.CapabilityProofInvalid): "Sign a new proof for exactly this call, with the key of the capability",
	string(authzen.CapabilityWrongSession): "Make the call in the session in which the capability was requested",
}

// suggest adds to a refusal for want of a capability how to ask for one, or what to do with the
// one that the caller has.
func (g *Gate) suggest(ctx context.Context, call *Call, refusal *Refusal) *Refusal {
	if g.cfg.Access == nil || refusal.capability == "" {
		return refusal
	}
	suggested := *refusal
	if remedy := remedies[refusal.Data.Reason]; remedy != "" {
		suggested.Data.Suggestion = remedy
		if g.check.refused.Codes != CodesMCPX { // models read the message alone
			suggested.Message += ": " + remedy
		}
		return &suggested
	}
	ways := g.cfg.Access.Ways(ctx, call)
	tool := call.Server + ":" + call.Params.Name
	if ways != (Ways{}) {
		suggested.Data.CapabilityRequest = &CapabilityRequest{ways.Method, CapabilityParams{[]string{tool}}, ways.Tool}
	}
	switch {
	case ways.Tool != "" && ways.Method != "":
		suggested.Data.Suggestion = fmt.Sprintf("Request capability first using %s, or call the tool %s", ways.Method, ways.Tool)
	case ways.Method != "":
		suggested.Data.Suggestion = "Request capability first using " + ways.Method
	}
	if ways.Tool != "" && g.check.refused.Codes != CodesMCPX { // models read the message alone
		suggested.Message += fmt.Sprintf(": call the tool %s with tools [%q] first", ways.Tool, tool)
	}
	return &suggested
}

// CapabilitySupport says whether a PDP knows capabilities.
type CapabilitySupport string

const (
	CapabilitiesUnknown  CapabilitySupport = ""         // it does not
	CapabilitiesKnown    CapabilitySupport = "known"    // it does
	CapabilitiesDetected CapabilitySupport = "detected" // it is asked, once
)

// A support is whether a PDP knows capabilities, as it said last.
type support struct {
	mu    sync.Mutex
	known bool
	until time.Time // when it is asked again, unless it is known
}

// Times after which a PDP is asked again that does not know capabilities, or that did
// not answer.
const (
	unsupportedFor = time.Minute
	unansweredFor  = time.Second
)

// HasCapabilities reports whether the tenant's PDP knows capabilities. One that does
// not would show policies the claim of a call as a fact.
func (p *PDP) HasCapabilities(ctx context.Context, tenant string) bool {
	if p.cfg.Capabilities != CapabilitiesDetected {
		return p.cfg.Capabilities == CapabilitiesKnown
	}
	of := p.tenant(tenant)
	s := &of.support
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.breaker.State() != gobreaker.StateClosed || s.known || time.Now().Before(s.until) {
		return s.known
	}
	// The list of nobody: a PDP without capabilities has no such path.
	_, err := of.client.Capabilities(context.WithoutCancel(ctx), authzen.Subject{Type: "mcp-gateway", ID: "support"})
	var status *client.StatusError
	var network *url.Error
	switch {
	case err == nil:
		s.known = true
	case errors.As(err, &network), errors.As(err, &status) && isPassing(status.Status):
		s.until = time.Now().Add(unansweredFor)
	default:
		s.until = time.Now().Add(unsupportedFor)
	}
	return s.known
}
