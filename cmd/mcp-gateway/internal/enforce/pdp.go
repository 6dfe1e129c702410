package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel/codes"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A PDPConfig says which PDP is asked, and how long.
type PDPConfig struct {
	URL    string        // base URL, without a tenant
	Client client.Config // its RequestID and Answered are set here
	// Failures in a row of a tenant, after which the PDP is not asked for Pause about
	// calls of this tenant. 0 is 5.
	Failures uint32
	Pause    time.Duration // 0 is a second
	// Capabilities says whether the PDP knows capabilities.
	Capabilities CapabilitySupport
	// OnBreak is told of a change of a tenant's breaker: its state, and the most open
	// state of all of them. A state is closed, half-open or open. Nil is nobody.
	OnBreak func(tenant, state, most string)
	// Asked is told how long a question took, and the error of one that has no
	// answer. Nil is nobody.
	Asked func(took time.Duration, err error)
}

// A PDP decides. It is safe for concurrent use.
type PDP struct {
	cfg    PDPConfig
	health probe

	mu      sync.Mutex
	tenants map[string]*tenantPDP
	states  map[string]gobreaker.State // of the breakers, by tenant
}

// A tenantPDP is the PDP of a tenant. It has a breaker of its own: a tenant whose
// policies do not load, or who asks more than it may, must not stop others.
type tenantPDP struct {
	client  *client.Client
	breaker *gobreaker.CircuitBreaker[struct{}]
	support support // of capabilities
}

// NewPDP prepares to ask.
func NewPDP(cfg PDPConfig) *PDP {
	if cfg.Failures == 0 {
		cfg.Failures = 5
	}
	if cfg.Pause == 0 {
		cfg.Pause = time.Second
	}
	if cfg.Client.Timeout == 0 {
		cfg.Client.Timeout = client.DefaultTimeout
	}
	if cfg.Client.Transport == nil { // one for the clients of all tenants
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DisableCompression, transport.MaxIdleConnsPerHost = true, 100
		cfg.Client.Transport = transport
	}
	cfg.Client.RequestID = requestID
	cfg.Client.Answered = recordDecisionID
	credentials := cfg.Client.Header
	cfg.Client.Header = func(ctx context.Context, header http.Header) error {
		if trace, _ := ctx.Value(traceKey{}).(string); trace != "" {
			header.Set("Traceparent", trace)
		}
		if credentials == nil {
			return nil
		}
		return credentials(ctx, header)
	}
	return &PDP{cfg: cfg, tenants: make(map[string]*tenantPDP), states: make(map[string]gobreaker.State)}
}

// newBreaker returns the breaker of a tenant.
func (p *PDP) newBreaker(tenant string) *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:          tenant,
		MaxRequests:   1,
		Timeout:       p.cfg.Pause,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= p.cfg.Failures },
		IsSuccessful:  isAlive,
		IsExcluded:    func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: p.breakerChanged,
	})
}

// breakerChanged tells of a change of a breaker. It does not ask a breaker, because
// that of the tenant is locked.
func (p *PDP) breakerChanged(tenant string, _, to gobreaker.State) {
	p.mu.Lock()
	p.states[tenant] = to
	most := p.mostOpen()
	p.mu.Unlock()
	if p.cfg.OnBreak != nil {
		p.cfg.OnBreak(tenant, to.String(), most.String())
	}
}

// mostOpen returns the most open state of a breaker.
func (p *PDP) mostOpen() gobreaker.State {
	most := gobreaker.StateClosed
	for _, state := range p.states {
		most = max(most, state) // closed, half-open, open
	}
	return most
}

// isAlive reports whether the PDP works although it may not have decided: what
// it says of one request is no reason not to ask about others.
func isAlive(err error) bool {
	var status *client.StatusError
	if errors.As(err, &status) {
		return status.Status >= 400 && status.Status < 500 && status.Status != http.StatusTooManyRequests
	}
	return err == nil
}

// ErrPaused means that the PDP was not asked, because it has kept failing.
var ErrPaused = errors.New("the PDP failed repeatedly, and the gateway pauses before it asks again")

// Do asks the tenant's PDP something, unless it has kept failing.
func (p *PDP) Do(tenant string, ask func(*client.Client) error) error {
	of := p.tenant(tenant)
	_, err := of.breaker.Execute(func() (struct{}, error) { return struct{}{}, ask(of.client) })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return ErrPaused
	}
	return err
}

func (p *PDP) client(tenant string) *client.Client { return p.tenant(tenant).client }

func (p *PDP) tenant(name string) *tenantPDP {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.tenants[name]
	if of == nil {
		of = &tenantPDP{client: client.New(p.base(name), p.cfg.Client), breaker: p.newBreaker(name)}
		p.tenants[name] = of
	}
	return of
}

func (p *PDP) base(tenant string) string {
	if tenant == "" {
		return p.cfg.URL
	}
	return p.cfg.URL + "/tenants/" + tenant
}

// An Answer is what the PDP said to a [Question]: a decision for each of its
// evaluations.
type Answer struct {
	Decisions    []authzen.Decision
	EvaluationID string // of the entry in the PDP's log, or ""
}

// Refusal returns the error by which the PDP refuses the gateway's credential, or
// labels from it, and nil where it does not or cannot be asked.
func (p *PDP) Refusal(ctx context.Context) error {
	if err := p.askNothing(ctx); refusesKey(err) || RefusesLabels(err) {
		return err
	}
	return nil
}

// askNothing sends a question that has nothing but labels. The PDP says whether it
// takes it from this caller before it finds that there is nothing to decide.
func (p *PDP) askNothing(ctx context.Context) error {
	_, err := p.client("").Evaluate(ctx, &authzen.EvaluationRequest{Context: jsontext.Value(`{"session":{"labels":[]}}`)})
	return err
}

// refusesKey reports whether an error of the PDP is about the gateway's credential.
func refusesKey(err error) bool {
	var status *client.StatusError
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// RefusesLabels reports whether the PDP does not take labels from the gateway.
func RefusesLabels(err error) bool {
	var status *client.StatusError
	return errors.As(err, &status) && status.Status == http.StatusBadRequest && strings.HasPrefix(status.Message, "/context/session")
}

// Ask asks a question that does not pass by itself.
func (p *PDP) Ask(ctx context.Context, tenant string, q *Question) (*Answer, error) {
	ctx, span := startChild(ctx, "decide")
	defer span.End()
	if span.IsRecording() {
		ctx = withTrace(ctx, traceParentOf(ctx))
	}
	heard := new(string)
	ctx = context.WithValue(ctx, decisionIDKey{}, heard)
	answer := new(Answer)
	begun := time.Now()
	err := p.Do(tenant, func(c *client.Client) error {
		switch {
		case q.Evaluation != nil:
			decision, err := c.Evaluate(ctx, q.Evaluation)
			if err != nil {
				return err
			}
			answer.Decisions = []authzen.Decision{*decision}
		case q.Evaluations != nil && len(q.Evaluations.Evaluations) > 0:
			response, err := c.Evaluations(ctx, q.Evaluations)
			if err != nil {
				return err
			}
			if got, asked := len(response.Evaluations), len(q.Evaluations.Evaluations); got != asked {
				return fmt.Errorf("the PDP answered %d evaluations of %d", got, asked)
			}
			answer.Decisions = response.Evaluations
		default:
			return errNoQuestion
		}
		return nil
	})
	if isAlive(err) {
		p.health.recordAnswer()
	}
	if p.cfg.Asked != nil {
		p.cfg.Asked(time.Since(begun), err)
	}
	if err != nil {
		span.SetStatus(codes.Error, "no decision")
		return nil, err
	}
	for i := range answer.Decisions {
		asDenial(&answer.Decisions[i])
	}
	answer.EvaluationID = *heard
	return answer, nil
}

type (
	decisionIDKey struct{}
	requestIDKey  struct{}
	traceKey      struct{}
)

// withTrace returns a context in which what the PDP is asked is of a trace.
func withTrace(ctx context.Context, trace string) context.Context {
	return context.WithValue(ctx, traceKey{}, trace)
}

// WithRequestID returns a context in which the PDP is asked under that
// X-Request-ID. An approval that is claimed again under the same one is not used
// again.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// PollTask polls a task of an approval. While the task is undecided, the PDP
// may hold the request for up to wait. It does not count for the circuit
// breaker.
func (p *PDP) PollTask(ctx context.Context, tenant string, task *authzen.TaskResponse, wait time.Duration) (*authzen.Approval, error) {
	return p.client(tenant).LookWithin(ctx, task, wait)
}

// recordDecisionID stores the Decision-ID of an answer where [PDP.Ask] reads
// it.
func recordDecisionID(ctx context.Context, header http.Header) {
	if heard, ok := ctx.Value(decisionIDKey{}).(*string); ok {
		*heard = header.Get("Decision-ID")
	}
}
