package enforce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Errors of a Map.
var (
	// ErrUnknownMethod means that no mapping covers a method.
	ErrUnknownMethod = errors.New("the method is not known to the gateway")
	// ErrMapping means that a call cannot be converted to a question for the PDP. The
	// caller gets the text of the error that wraps it.
	ErrMapping = errors.New("the call cannot be mapped")
)

// A Config configures a [Gate].
type Config struct {
	PDP *PDP
	// Map returns the question for the PDP about a call. Its errors are
	// ErrUnknownMethod and ErrMapping; any other error counts as ErrMapping.
	Map func(*Call) (*Question, error)
	// MapServerRequest returns the question about a request of a server. Of is the
	// client's call in whose course the request came, without a message where none is
	// known. Its errors are those of Map. Nil refuses every request.
	MapServerRequest func(of *Call, request *wire.Message) (*Question, error)
	// Tools knows the tools of the servers. Nil knows none, and shows all lists.
	Tools Tools
	// Access answers what callers ask about their capabilities. Nil answers nothing.
	Access Access
	// Arguments returns which calls to a server have their arguments in the question
	// for the PDP. Nil returns [ArgumentsNeeded].
	Arguments func(server string) Arguments
	// HandsOn reports whether a server gets the capability and the proof that a call
	// presents, because it checks them itself. Nil reports false.
	HandsOn func(server string) bool
	// Tasks knows the tasks of the gateway and of the servers. Nil knows none.
	Tasks Tasks
	// Obligations are the obligations that the gateway carries out.
	Obligations client.Obligations
	// PassingMeta names members of _meta that belong to one message and not to the
	// call, in addition to those of the protocol. An approval does not bind them.
	PassingMeta []string
	// Requests keeps the calls that wait, so that others can carry them out. MapRequest
	// returns the question about a tools/request, whose call is one of tools/call by
	// then, and MapFulfil whether the caller of a call may fulfil a request. Without
	// Requests the gateway does not know tools/request.
	Requests   Requests
	MapRequest func(*Call) (*Question, error)
	MapFulfil  func(*Call, *Request) (*authzen.EvaluationRequest, error)
	// MapLevel returns the questions by which the level of a caller shows: may it call a
	// tool of a server, and may it request the call?
	MapLevel func(call *Call, server, tool string) (calls, requests *authzen.EvaluationRequest, err error)
	// Labels keeps the labels of callers. Nil sends the PDP none, and withholds a
	// result that is to have one.
	Labels Labels
	// Approvals holds calls that need an approval. Nil refuses them.
	Approvals Approver
	// Limits bounds the calls of callers. Nil does not.
	Limits Limits
	Trail  Trail  // nil is NopTrail
	Denial Denial // form of denials
	// Tells reports whether the clients of a server get faults of a tool call as a
	// result of the tool, which models read and correct (MCP 2025-11-25, SEP-1303).
	// Otherwise they get an error of the protocol. Nil reports false.
	Tells func(server string) bool
	// Observes reports whether the calls to a server are forwarded whatever the PDP
	// decides. Nil reports false.
	Observes func(server string) bool
	// Tracer records a span for each call. Nil passes on the trace of the client.
	Tracer trace.Tracer
	Log    *slog.Logger
}

// Limits bounds how often callers call.
type Limits interface {
	// Take counts a call. Its error is a [Refusal] if the call exceeds a limit. The
	// gate releases a call that it does not forward itself.
	Take(*Call) (release func(), err error)
}

// An Approver holds calls until people have approved them.
type Approver interface {
	// Suspend holds a call until a person approves it, and returns what happens to
	// the call then.
	Suspend(context.Context, *DeniedCall) (*Disposition, error)
}

// Labels keeps the labels that results give their callers.
type Labels interface {
	// Of returns the labels of the caller of a call, sorted; none is not nil.
	Of(*Call) ([]string, error)
	// Add gives the caller labels. They are on disk when Add returns nil.
	Add(*Call, []string) error
}

// Tools knows the tools that servers offer.
type Tools interface {
	// FindTool returns the accepted tool that a call names. Its error is a [Refusal]
	// if the tool may not be called, or if the arguments do not fit its schema and
	// cannot be coerced; any other error is why the tools are not known.
	FindTool(context.Context, *Call) (*Tool, error)
	// CheckItem returns why the prompt or the resource that a call names may not be
	// used, as a [Refusal], or nil.
	CheckItem(*Call) error
	// FilterList returns the part of the result of a list, of initialize or of
	// server/discover that its caller may see. It asks the PDP about the items with ask. An answer of
	// nil shows them all.
	FilterList(ctx context.Context, c *Call, result jsontext.Value, ask Ask) (jsontext.Value, error)
	// CheckOutput checks structured content against the output schema of a tool. A
	// tool without one takes any.
	CheckOutput(server, tool string, structured jsontext.Value) error
}

// Tasks keeps each task to the caller that began it.
type Tasks interface {
	// Answer answers calls about tasks of the gateway, and refuses those about tasks
	// of other callers. It returns nil for calls that are to be decided on.
	Answer(context.Context, *Call) (*Disposition, error)
	// FilterResponse returns the part of a forwarded call's response that its caller
	// gets. After an error the caller gets none of it.
	FilterResponse(ctx context.Context, c *Call, response *wire.Message) (*wire.Message, error)
}

// An Ask asks the PDP about the items of a list, in the name of its caller.
type Ask func(context.Context, *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error)

// A Gate decides what becomes of calls. It is safe for concurrent use.
type Gate struct {
	cfg       Config
	check     *Checker
	supported []string // types of the obligations that the gateway carries out, sorted
}

// New joins a Gate.
func New(cfg Config) *Gate {
	if cfg.Trail == nil {
		cfg.Trail = NopTrail{}
	}
	no := func(string) bool { return false }
	if cfg.Tells == nil {
		cfg.Tells = no
	}
	if cfg.Observes == nil {
		cfg.Observes = no
	}
	if cfg.HandsOn == nil {
		cfg.HandsOn = no
	}
	supported := slices.AppendSeq([]string{}, maps.Keys(cfg.Obligations))
	slices.Sort(supported)
	return &Gate{cfg, NewChecker(cfg.Obligations, cfg.Denial), supported}
}

// A DeniedCall is a call whose denial people may lift.
type DeniedCall struct {
	*Call
	Question *Question
	Answer   *Answer // to Question
	Denials  []int   // the evaluations to approve, by number: all that were denied
	Binding  wire.Binding
	Digest   string // of Binding
	Refusal  *Refusal
}

// Judge decides on a call. An error refuses the call.
func (g *Gate) Judge(ctx context.Context, call *Call) *Disposition {
	ctx, span := g.startSpan(WithRequestID(ctx, call.RequestID), call)
	disposition, err := g.try(ctx, call)
	if err == nil {
		return g.handOn(call, finishWith(ctx, span, call, g.filterResponse(call, disposition)))
	}
	return g.refuse(ctx, span, call, asRefusal(err))
}

// Refuse refuses a call that no server can get, as Judge refuses others.
func (g *Gate) Refuse(ctx context.Context, call *Call, refusal *Refusal) *Disposition {
	ctx, span := g.startSpan(WithRequestID(ctx, call.RequestID), call)
	return g.refuse(ctx, span, call, refusal)
}

// refuse records a refusal, and returns it as its client gets it.
func (g *Gate) refuse(ctx context.Context, span trace.Span, call *Call, refusal *Refusal) *Disposition {
	refusal = g.suggest(ctx, call, refusal)
	refuse(span, refusal.Data.Reason)
	g.logRefusal(ctx, call, refusal)
	g.cfg.Trail.Refuse(&Entry{Call: call, Decisions: Decisions(refusal.Data.EvaluationID), Digest: refusal.Data.Digest, Task: refusal.Data.tasks()}, refusal.Data.Reason)
	if g.cfg.Denial.Conceal {
		refusal = refusal.concealed(call)
	}
	if g.cfg.Tells(call.Server) && refusal.isForModel(call) {
		return refusal.result(call)
	}
	return g.check.Present(refusal).disposition(call.Message.ID)
}

// Unidentified refuses a message whose caller is not authenticated.
func (g *Gate) Unidentified(m *wire.Message) *Disposition {
	return g.check.Present(&Refusal{Message: "the caller is not authenticated", Data: Data{Reason: ReasonCaller}}).disposition(m.ID)
}

// filterResponse wraps the disposition's Finish so that its caller gets the
// filtered response.
func (g *Gate) filterResponse(call *Call, v *Disposition) *Disposition {
	if v.Forward == nil {
		return v
	}
	settle := v.Finish
	v.Finish = func(ctx context.Context, response *wire.Message) *wire.Message {
		m := settle(ctx, WithoutForged(response))
		if m == nil {
			return nil
		}
		if m = g.Deliver(ctx, call, m); g.cfg.Tasks == nil {
			return m
		}
		answer, err := g.cfg.Tasks.FilterResponse(ctx, call, m)
		if err != nil {
			g.cfg.Log.ErrorContext(ctx, "no result", "server", call.Server, "method", call.Message.Method, "request_id", call.RequestID, "error", err)
			return wire.Refuse(m.ID, wire.CodeInternal, "the gateway withholds the answer of the server", Data{Reason: ReasonUnavailable})
		}
		return answer
	}
	return v
}

// WithoutForged returns the response of a server without what only the gateway says in
// _meta of a result. A response that cannot be read as it is to be is not the server's
// to extend either: it loses its result.
func WithoutForged(response *wire.Message) *wire.Message {
	if response == nil || response.Result == nil {
		return response
	}
	without, err := response.WithoutOwnMeta()
	if err != nil {
		return wire.Refuse(response.ID, wire.CodeInternal, "the gateway withholds the answer of the server", Data{Reason: ReasonWithheld})
	}
	return without
}

// try calls judge, and returns a panic as an error.
func (g *Gate) try(ctx context.Context, call *Call) (v *Disposition, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return g.judge(ctx, call)
}

func (g *Gate) judge(ctx context.Context, call *Call) (*Disposition, error) {
	if call.Stateless && wire.IsRemoved(call.Message.Method) {
		return nil, g.unmapped(call, ErrUnknownMethod)
	}
	if err := call.takeCapability(); err != nil {
		return nil, err
	}
	if g.cfg.Access != nil {
		if own, err := g.cfg.Access.Answer(ctx, call); own != nil || err != nil {
			return own, err
		}
	}
	if err := g.takeRequest(ctx, call); err != nil {
		return nil, err
	}
	if g.cfg.Tasks != nil {
		if own, err := g.cfg.Tasks.Answer(ctx, call); own != nil || err != nil {
			return own, err
		}
	}
	if err := wire.Exact(call.Message.Params); err != nil {
		return nil, &Refusal{Code: wire.CodeParams, Status: statusOK, Message: err.Error(), Data: Data{Reason: ReasonNumber}}
	}
	if err := undefined(call.Message); err != nil {
		return nil, err
	}
	if err := g.resolveTool(ctx, call); err != nil {
		return nil, err
	}
	if call.Fulfils != nil {
		return g.fulfil(ctx, call)
	}
	if g.cfg.Observes(call.Server) {
		return g.observe(ctx, call)
	}
	if call.Requested {
		if v, err := g.request(ctx, call); v != nil || err != nil {
			return v, err
		}
	}
	return g.call(ctx, call)
}

// call asks the PDP about a call, and forwards it if it is permitted.
func (g *Gate) call(ctx context.Context, call *Call) (*Disposition, error) {
	evaluated := call.Message.Encode()
	asked, err := g.ask(ctx, call)
	defer func() { asked.release() }()
	if err != nil {
		return nil, err
	}
	if asked.question.Pass {
		return &Disposition{Forward: call.Message, Finish: pass}, nil
	}
	denials, err := g.check.Permitted(ctx, call, asked.question, asked.answer)
	if err == nil && !call.isUnchanged(evaluated) {
		return nil, errChanged
	}
	if err == nil {
		asked.release = keep
		return call.presenting(g.forward(&Entry{Call: call, Decisions: Decisions(asked.answer.EvaluationID), Digest: asked.digest}))
	}
	return g.suspend(ctx, call, asked, denials, err)
}

// suspend has a call wait whose denial people may lift. Any other is refused.
func (g *Gate) suspend(ctx context.Context, call *Call, asked asked, denials []int, err error) (*Disposition, error) {
	var refusal *Refusal
	if denials == nil || g.cfg.Approvals == nil || !call.Message.IsRequest() || !errors.As(err, &refusal) {
		return nil, err
	}
	return g.cfg.Approvals.Suspend(ctx, &DeniedCall{
		Call: call, Question: asked.question, Answer: asked.answer, Denials: denials, Binding: asked.binding, Digest: asked.digest, Refusal: refusal,
	})
}

// asked is what the PDP was asked about a call, and its answer.
type asked struct {
	question *Question // without the capability that the call presents, because it is stored
	answer   *Answer   // nil where the question passes, or after an error
	binding  wire.Binding
	digest   string // of binding
	release  func() // takes the call back from the limits
}

// keep is the release of a call that stays counted.
func keep() {}

// ask maps a call, and asks the PDP about it unless it passes without a decision.
func (g *Gate) ask(ctx context.Context, call *Call) (a asked, err error) {
	a.release = keep
	if a.question, err = g.cfg.Map(call); err != nil {
		return a, g.unmapped(call, err)
	}
	if a.question.Pass {
		return a, nil
	}
	return g.askMapped(ctx, call, a.question, g.take)
}

// askMapped asks the PDP the question about a call, after take has counted the call.
func (g *Gate) askMapped(ctx context.Context, call *Call, mapped *Question, take func(*Call) (func(), error)) (a asked, err error) {
	a.release = keep
	if a.binding, a.digest, err = g.bind(call); err != nil {
		return a, err
	}
	if a.question, err = g.declare(ctx, call, mapped, a.digest, false); err != nil {
		return a, err
	}
	presenting := a.question
	if call.Presented.Capability != "" {
		if presenting, err = g.declare(ctx, call, mapped, a.digest, true); err != nil {
			return a, err
		}
	}
	release, err := take(call)
	if err != nil {
		return a, err
	}
	a.release = release
	if a.answer, err = g.cfg.PDP.Ask(ctx, call.Caller.Tenant, presenting); err != nil {
		return a, Undecided(err)
	}
	if g.needsArguments(call, a.answer) {
		return a, g.askWithArguments(ctx, call, mapped, &a)
	}
	return a, nil
}

// isUnchanged reports whether the message is still the one that was evaluated.
func (c *Call) isUnchanged(evaluated []byte) bool {
	return bytes.Equal(c.Message.Encode(), evaluated)
}

// take counts a call for the limits.
func (g *Gate) take(call *Call) (release func(), err error) {
	if g.cfg.Limits == nil {
		return func() {}, nil
	}
	return g.cfg.Limits.Take(call)
}

// errChanged means that a message changed after its evaluation. A decision covers
// only what was evaluated (COAZ-MCP binding, "Enforcement").
var errChanged = errors.New("the message changed after it was evaluated")

// undefined refuses notifications and members of params that the protocol does not
// define. They would reach the server although no policy and no person saw them.
func undefined(m *wire.Message) error {
	refused := Refusal{Code: wire.CodeParams, Status: statusOK, Data: Data{Reason: ReasonInvalidMessage}}
	switch name := m.UndefinedParam(); {
	case name != "":
		refused.Message = fmt.Sprintf("params/%s is not defined for %s", name, m.Method)
	case strings.HasPrefix(m.Method, "notifications/") && !wire.IsNotification(m.Method):
		refused.Code, refused.Message = wire.CodeMethod, ErrUnknownMethod.Error()
		refused.Data.Reason = ReasonUnknownMethod
	default:
		return nil
	}
	return &refused
}

// bind returns what an approval of the call binds, and its digest.
func (g *Gate) bind(call *Call) (wire.Binding, string, error) {
	definition := ""
	if call.Tool != nil {
		definition = call.Tool.Digest
	}
	b, err := wire.Bind(call.Server, definition, call.Message, g.cfg.PassingMeta)
	if err != nil {
		return wire.Binding{}, "", err
	}
	digest, err := b.Digest()
	return b, digest, err
}

// unmapped refuses a call without a question. An unknown method gets the error of
// JSON-RPC, by which clients find out what a server supports. With the codes of the
// COAZ MCP binding it gets a denial in the versions with sessions.
func (g *Gate) unmapped(call *Call, err error) *Refusal {
	switch {
	case !errors.Is(err, ErrUnknownMethod):
		return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: err.Error(), Data: Data{Reason: ReasonMapping}}
	case call.Stateless:
		return &Refusal{Code: wire.CodeMethod, Status: statusNotFound, Message: ErrUnknownMethod.Error(), Data: Data{Reason: ReasonUnknownMethod}}
	case g.check.refused.Codes != CodesCOAZ:
		return &Refusal{Code: wire.CodeMethod, Status: statusOK, Message: ErrUnknownMethod.Error(), Data: Data{Reason: ReasonUnknownMethod}}
	}
	refusal := g.check.denial(new(Question), "")
	refusal.Message, refusal.Data.Reason = ErrUnknownMethod.Error(), ReasonUnknownMethod
	return refusal
}

// resolveTool finds the tool that a call names, and checks the call against it. It
// refuses a call of a prompt or resource that the operator has to accept.
func (g *Gate) resolveTool(ctx context.Context, call *Call) error {
	switch {
	case g.cfg.Tools == nil:
		return nil
	case call.Message.Method != wire.MethodToolsCall:
		return g.cfg.Tools.CheckItem(call)
	}
	tool, err := g.cfg.Tools.FindTool(ctx, call)
	var refusal *Refusal
	if err != nil && !errors.As(err, &refusal) {
		return UnknownTools(err)
	}
	if call.Tool = tool; err == nil && call.CheckTool != nil {
		err = call.CheckTool(tool)
	}
	if err != nil || tool.Coerced == nil {
		return err
	}
	return call.coerce(tool.Coerced)
}

// forward permits a call after the trail has recorded it.
func (g *Gate) forward(e *Entry) (*Disposition, error) {
	call := e.Call
	id, ended, err := g.cfg.Trail.Begin(e)
	if err != nil {
		return nil, fmt.Errorf("record the call: %w", err)
	}
	return &Disposition{Forward: call.Message, TrailID: id, Finish: func(ctx context.Context, response *wire.Message) *wire.Message {
		ended(End(call, response))
		return g.filter(ctx, call, response)
	}}, nil
}

// Resume returns the response for the caller of a call whose disposition is gone:
// another process made it, or the response comes a second time. TrailID is that of
// the disposition.
func (g *Gate) Resume(ctx context.Context, call *Call, trailID string, response *wire.Message) *wire.Message {
	v := g.filterResponse(call, &Disposition{Forward: call.Message, Finish: func(ctx context.Context, response *wire.Message) *wire.Message {
		if trailID != "" {
			g.cfg.Trail.EndLate(trailID, call, End(call, response))
		}
		return g.filter(ctx, call, response)
	}})
	return v.Finish(ctx, response)
}

// End returns the outcome of a call with this response.
func End(call *Call, response *wire.Message) string {
	switch {
	case response == nil && call.Message.IsRequest():
		return Unknown
	case response != nil && response.Error != nil:
		return Failed
	}
	return Succeeded
}

// Decisions returns the Decision-ID as a list, which is empty for "".
func Decisions(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

// filter removes items from a list that its caller may not see. If that fails, the
// caller gets no list.
func (g *Gate) filter(ctx context.Context, call *Call, response *wire.Message) *wire.Message {
	if g.cfg.Tools == nil || response == nil || response.Result == nil || !wire.IsList(call.Message.Method) && !wire.IsIntroduction(call.Message.Method) {
		return response
	}
	result, err := g.cfg.Tools.FilterList(ctx, call, response.Result, func(ctx context.Context, batch *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
		return g.askItems(ctx, call, batch)
	})
	if err != nil {
		g.cfg.Log.ErrorContext(ctx, "no list", "server", call.Server, "method", call.Message.Method, "request_id", call.RequestID, "error", err)
		return wire.Refuse(response.ID, wire.CodeInternal, "the gateway could not decide which items of the list you may see", Data{Reason: ReasonUnavailable})
	}
	return &wire.Message{ID: response.ID, Result: result}
}

// askItems asks the PDP about the items of a list, and logs those that it hides.
func (g *Gate) askItems(ctx context.Context, call *Call, batch *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	question, err := g.declare(ctx, call, &Question{Evaluations: batch}, "", false)
	if err != nil {
		return nil, err
	}
	answer, err := g.cfg.PDP.Ask(ctx, call.Caller.Tenant, question)
	if err != nil && g.cfg.Observes(call.Server) {
		g.cfg.Log.WarnContext(ctx, "list not decided", "server", call.Server, "method", call.Message.Method, "request_id", call.RequestID, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g.logHidden(ctx, call, answer)
	if g.cfg.Observes(call.Server) {
		return nil, nil
	}
	return &authzen.EvaluationsResponse{Evaluations: answer.Decisions}, nil
}

// pass returns the response unchanged.
func pass(_ context.Context, response *wire.Message) *wire.Message { return response }
