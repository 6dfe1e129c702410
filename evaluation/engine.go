package evaluation

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrTooManyItems means that a batch has more items than Config.MaxItems.
	ErrTooManyItems = errors.New("the batch has too many items")
	// ErrLargeAnswer means that the answer to a batch has more bytes than Config.MaxAnswer.
	ErrLargeAnswer = errors.New("the answer would be too large: ask for fewer evaluations at once")
)

// Config configures an Engine. Its zero value works.
type Config struct {
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// MaxItems limits the items of a batch. The default is 1000.
	MaxItems int
	// GuardShrink refuses a reload that loses all forbids or half the policies.
	GuardShrink bool
	// Ways names the ways in which people are notified of Access Requests. Approval templates may name no
	// others. nil means that they are unknown.
	Ways []string
	// CompileDeadline limits the time to compile one snapshot. The default is 30 seconds.
	CompileDeadline time.Duration
	// MaxResults limits the results on one page of a search. The default is 10,000.
	MaxResults int
	// MaxCandidates limits the entities that a search decides for one page. The default is 250,000.
	MaxCandidates int
	// MaxAnswer limits the bytes of an answer to a batch or a search. A batch over the limit is refused. A
	// search continues on another page. The default is 8 MiB.
	MaxAnswer int
	// Scan blocks until a tenant's search over many candidates, or batch of more than LightItems, may
	// start. The caller calls done at the end. By default nothing waits.
	Scan func(ctx context.Context, tenant string) (done func(), err error)
	// PageKey signs page tokens. Engines that share a key can continue each other's searches. The default
	// is a random key.
	PageKey []byte
	// Recorded receives every entry that is on disk, before the answer is returned.
	Recorded func(context.Context, *decisionlog.Entry)
	// ItemError converts the error of a batch item to the error in that item's answer. By default the answer
	// is a denial without an error.
	ItemError func(error) *authzen.Error
	// Approvals returns the status of claimed approvals. By default no approval is active.
	Approvals Approvals
	// Capabilities finds the capability that covers a request. By default there are none.
	Capabilities Capabilities
	// CapabilityEndpoint returns the URL at which a tenant's PEPs ask for capabilities. By default no
	// denial offers one.
	CapabilityEndpoint func(tenant string) string
	// Offer creates the offer for a denial that an approval can lift, or nil if no one can request it. By
	// default there are no offers.
	Offer func(*authzen.RequestableDenial) (*authzen.AccessRequest, error)
}

// An Engine decides requests: it gathers the input, decides, records the decision, and only then returns
// it. Its methods take and return AuthZEN messages.
type Engine struct {
	log       *decisionlog.Log
	config    Config
	current   atomic.Pointer[snapshot.Snapshots]
	status    atomic.Pointer[Status]
	reloading sync.Mutex
	reloads   reloadHistory

	shadow       atomic.Pointer[snapshot.Snapshots] // nil without one
	shadowStatus atomic.Pointer[Status]

	compiler                     *snapshot.Compiler
	changed, shadowChanged       atomic.Pointer[time.Time]
	generation, shadowGeneration atomic.Int64
}

// NewEngine returns an engine that records in log. It decides nothing until [Engine.Reload].
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
	compile := func(ctx context.Context, a snapshot.Archive) (*snapshot.Snapshot, error) {
		return snapshot.CompileFor(ctx, a, c.Ways)
	}
	return &Engine{log: log, config: c, compiler: snapshot.NewCompiler(c.CompileDeadline, compile)}
}

// Snapshots returns the active snapshots, or nil.
func (e *Engine) Snapshots() *snapshot.Snapshots { return e.current.Load() }

// HasTenant reports whether the tenant exists, whether or not its policies are loaded.
func (e *Engine) HasTenant(name string) bool {
	all := e.current.Load()
	if all == nil || !snapshot.ValidTenant(name) {
		return false
	}
	_, err := all.For(name)
	return err == nil || errors.Is(err, snapshot.ErrNoSnapshot)
}

// Revision returns the revision of the policies that decide for a tenant, or "" if none are loaded.
func (e *Engine) Revision(tenant string) string {
	s, _, err := e.begin(tenant)
	if err != nil {
		return ""
	}
	return s.Revision()
}

// CheckSubject returns an error if no request of a tenant can have that subject. path is its place in
// the message that names it.
func (e *Engine) CheckSubject(tenant, path string, of authzen.Subject) error {
	s, _, err := e.begin(tenant)
	if err != nil {
		return err
	}
	return s.CheckSubject(path, of)
}

// begin returns the snapshot and the time for a request.
func (e *Engine) begin(tenant string) (*snapshot.Snapshot, time.Time, error) {
	all := e.current.Load()
	if all == nil {
		return nil, time.Time{}, snapshot.ErrNoSnapshot
	}
	s, err := all.For(tenant)
	return s, e.config.Now().UTC(), err
}

// Approvals checks the approvals that requests claim.
type Approvals interface {
	Verify(context.Context, *authzen.Reevaluation) (authzen.ApprovalStatus, error)
}

// evaluationInput is one request with everything that decides it.
type evaluationInput struct {
	snapshot *snapshot.Snapshot
	shadow   *snapshot.Snapshots // also decides, without effect on the answer; nil for none
	time     time.Time
	call     Call
	item     string          // prefix of obligation ids, in a batch
	offered  *offersInBatch  // offers in the answer to the batch so far; nil for a single request
	proven   map[string]bool // proofs that the batch has taken so far; nil for a single request
	request  *authzen.EvaluationRequest
}

// ApprovalTemplate returns the terms of approvals for a tenant. A template that config.yaml does not
// name has the default terms.
func (e *Engine) ApprovalTemplate(tenant, name string) (authzen.ApprovalTemplate, error) {
	all := e.current.Load()
	if all == nil {
		return authzen.ApprovalTemplate{}, snapshot.ErrNoSnapshot
	}
	s, err := all.For(tenant)
	if err != nil {
		return authzen.ApprovalTemplate{}, err
	}
	if terms, ok := s.Templates[name]; ok {
		return terms, nil
	}
	return snapshot.ApprovalTemplate{}.Compile()
}
