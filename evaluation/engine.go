package evaluation

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrTooManyItems means that a batch has more items than Config.MaxItems.
	ErrTooManyItems = errors.New("the batch has too many items")
	// ErrLargeAnswer means that the answer to a batch has more bytes than
	// Config.MaxAnswer.
	ErrLargeAnswer = errors.New("the answer would be too large: ask for fewer evaluations at once")
)

// Config configures an Engine. Its zero value works.
type Config struct {
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// MaxItems bounds a batch. The default is 1000.
	MaxItems int
	// GuardShrink refuses a reload that loses all forbids or half the policies.
	GuardShrink bool
	// CompileDeadline bounds how long one snapshot may take to compile. The
	// default is 30 seconds.
	CompileDeadline time.Duration
	// MaxResults bounds the results in one answer to a search; those beyond it
	// are on further pages. The default is 10,000.
	MaxResults int
	// MaxCandidates bounds the entities that are decided on for one answer to a
	// search. The default is 250,000.
	MaxCandidates int
	// MaxAnswer bounds the bytes of an answer to a batch or a search. A batch with
	// a larger one is refused, and a search goes on on a further page. The default
	// is 8 MiB.
	MaxAnswer int
	// Scan waits until a search of a tenant may decide on many candidates, or a
	// batch on more than LightItems, and returns how it says that it has. Without it
	// none waits.
	Scan func(ctx context.Context, tenant string) (done func(), err error)
	// PageKey signs the tokens that lead to further pages. Engines that share a
	// key continue each other's searches. The default is a random one.
	PageKey []byte
	// Recorded is told of every entry that is on disk, before it is answered.
	Recorded func(context.Context, *decisionlog.Entry)
	// ItemError says how an error of one item of a batch is shown in that
	// item's answer. Without it the answer is a bare denial.
	ItemError func(error) *authzen.Error
	// Approvals says which claimed approvals stand. Without it none does.
	Approvals Approvals
	// Offer makes what a PEP is told of a denial that a person may lift; nil for
	// one that cannot be asked for. Without it a PEP is told nothing.
	Offer func(*authzen.RequestableDenial) (*authzen.AccessRequest, error)
}

// An Engine answers requests: it gathers what counts, decides, records the
// decision, and only then gives it. Its methods have the shape of the wire.
type Engine struct {
	log       *decisionlog.Log
	config    Config
	current   atomic.Pointer[snapshot.Snapshots]
	status    atomic.Pointer[Status]
	reloading sync.Mutex

	shadow       atomic.Pointer[snapshot.Snapshots] // nil without one
	shadowStatus atomic.Pointer[Status]

	compiler                     *snapshot.Compiler
	changed, shadowChanged       atomic.Pointer[time.Time]
	generation, shadowGeneration atomic.Int64
}

// NewEngine returns an engine that records in log. It decides nothing until
// [Engine.Reload].
func NewEngine(log *decisionlog.Log, c Config) *Engine {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.MaxItems = cmp.Or(c.MaxItems, 1000)
	c.MaxResults = cmp.Or(c.MaxResults, 10_000)
	c.MaxCandidates = cmp.Or(c.MaxCandidates, 250_000)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, 8<<20)
	if c.Scan == nil {
		c.Scan = func(context.Context, string) (func(), error) { return func() {}, nil }
	}
	if len(c.PageKey) == 0 {
		c.PageKey = []byte(rand.Text())
	}
	if c.Recorded == nil {
		c.Recorded = func(context.Context, *decisionlog.Entry) {}
	}
	if c.ItemError == nil {
		c.ItemError = func(error) *authzen.Error { return nil }
	}
	return &Engine{log: log, config: c, compiler: snapshot.NewCompiler(c.CompileDeadline, nil)}
}

// Snapshots returns what requests are decided by, or nil.
func (e *Engine) Snapshots() *snapshot.Snapshots { return e.current.Load() }

// HasTenant reports whether there is such a tenant, whether or not its policies
// could be loaded.
func (e *Engine) HasTenant(name string) bool {
	all := e.current.Load()
	if all == nil || !snapshot.ValidTenant(name) {
		return false
	}
	_, err := all.For(name)
	return err == nil || errors.Is(err, snapshot.ErrNoSnapshot)
}

// begin fixes what a request is decided by, and when.
func (e *Engine) begin(tenant string) (*snapshot.Snapshot, time.Time, error) {
	all := e.current.Load()
	if all == nil {
		return nil, time.Time{}, snapshot.ErrNoSnapshot
	}
	s, err := all.For(tenant)
	return s, e.config.Now().UTC(), err
}

// record puts a decision on disk. Nothing may be answered unless it succeeds.
func (e *Engine) record(ctx context.Context, call Call, entry *decisionlog.Entry, revision string, start time.Time, req any) (decisionlog.Receipt, error) {
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	body, err := appendRequest((*text)[:0], req)
	if err != nil {
		return decisionlog.Receipt{}, fmt.Errorf("encode request: %w", err)
	}
	if cap(body) <= keptText {
		*text = body
	}
	entry.ID, entry.Time, entry.Tenant, entry.Request = call.ID, start, call.Tenant, body
	entry.Revision, entry.Caller = revision, call.Caller
	entry.RequestID, entry.TraceID = call.RequestID, call.TraceID
	entry.LatencyMicros = e.config.Now().Sub(start).Microseconds()
	ctx, part := span(ctx, call, "record")
	defer part.End()
	receipt, err := e.log.Record(ctx, entry)
	if err != nil {
		return decisionlog.Receipt{}, fmt.Errorf("record decision: %w", err)
	}
	e.config.Recorded(ctx, entry)
	return receipt, nil
}

// release makes a decision what the PEP gets. No other place can say yes, and
// this one says what the log has.
func release(r decisionlog.Receipt, item int, c *authzen.DecisionContext) authzen.Decision {
	return authzen.Decision{Decision: r.Decision(item), Context: c}
}

// texts are the buffers of requests that have been recorded. A large one is not
// kept.
var texts = sync.Pool{New: func() any { return new([]byte) }}

const keptText = 16 << 10

// appendRequest appends a request as it is recorded, but for white space.
func appendRequest(b []byte, req any) ([]byte, error) {
	if single, ok := req.(*authzen.EvaluationRequest); ok {
		return single.AppendTo(b)
	}
	text, err := json.Marshal(req, jsontext.PreserveRawStrings(true))
	return append(b, text...), err
}

// Approvals says whether the approval that a request claims stands for it.
type Approvals interface {
	Verify(context.Context, *authzen.Reevaluation) (authzen.ApprovalStatus, error)
}

// evaluationInput is one request to decide, and what it is decided by.
type evaluationInput struct {
	snapshot *snapshot.Snapshot
	shadow   *snapshot.Snapshots // which decides, too, and is not heeded; nil for none
	time     time.Time
	call     Call
	item     string         // what the ids of its obligations begin with, in a batch
	offered  *offersInBatch // by the answer to the batch so far; nil for a single request
	request  *authzen.EvaluationRequest
}
