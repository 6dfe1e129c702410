package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// triesPerSecond is the rate of tries of one caller.
const triesPerSecond = 5

// errTryRate rejects a caller's tries above that rate.
var errTryRate = errors.New("you try too often: wait a second")

// A Try is a request that somebody tries. It is decided, explained and recorded, and permits nothing.
type Try struct {
	Tenant  string         `json:"tenant,omitzero"`
	Request jsontext.Value `json:"request"`     // an AuthZEN evaluation request
	By      string         `json:"by,omitzero"` // current or shadow; "" means current
}

// A Tried is the answer to a Try. No member of its top level is a decision, so that a PEP cannot take
// it for one.
type Tried struct {
	Try         bool                 `json:"try"` // always true
	By          TriedBy              `json:"by"`
	Explanation *explain.Explanation `json:"explanation"`
	Shadow      *TriedShadow         `json:"shadow,omitempty"` // the other store's answer; nil without one
	Test        string               `json:"test,omitzero"`    // a test file that expects this answer; absent if no test can
}

// A TriedBy names the policies that decided a try.
type TriedBy struct {
	Store    string    `json:"store"` // current or shadow
	Tenant   string    `json:"tenant,omitzero"`
	Revision string    `json:"revision"`
	Time     time.Time `json:"time"`
	ID       string    `json:"id"` // Decision-ID of the entry of kind admin
}

// A TriedShadow is the shadow's answer to a request that the current policies have decided.
type TriedShadow struct {
	Revision    string               `json:"revision,omitzero"`
	Effect      replay.Effect        `json:"effect,omitzero"` // the change that the shadow would make; absent for none
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	Problem     string               `json:"problem,omitzero"` // why it decides nothing
}

// A TryStart is a request to begin with.
type TryStart struct {
	Tenant  string         `json:"tenant,omitzero"`
	Request jsontext.Value `json:"request,omitzero"` // absent if there is none
	From    string         `json:"from,omitzero"`    // Decision-ID of its decision
	Masked  []string       `json:"masked,omitempty"` // JSON Pointers into the request: values that the log has masked
	Example bool           `json:"example,omitzero"` // the request was made of names in the policy store
}

// triesHandler decides requests that permit nothing.
type triesHandler struct {
	engine *evaluation.Engine
	log    *decisionlog.Log
	rates  *admission.RateLimits
}

// start answers with the request of the decision ?from=, or with the last one, for callers with access to
// the log. Others, and all without a last one, get an example.
func (h *triesHandler) start(c echo.Context) error {
	if err := knownQuery(c, "from", "tenant"); err != nil {
		return err
	}
	ctx := c.Request().Context()
	who, authenticated := ctx.Value(callerKey{}).(callers.Caller)
	from, tenant, reads := c.QueryParam("from"), c.QueryParam("tenant"), !authenticated || who.May(ScopeAudit)
	var err error
	var out TryStart
	switch {
	case from != "" && !reads:
		return callers.ErrForbidden
	case from != "":
		out, err = h.from(ctx, who, from)
	case reads:
		out, err = h.last(ctx, decisionlog.Filter{Kind: decisionlog.KindEvaluation, Tenant: tenant, Tenants: who.Tenants})
	}
	if err == nil && out.Request == nil {
		out, err = h.example(view{who.Tenants}, tenant)
	}
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, out)
}

// from returns the request of a logged decision.
func (h *triesHandler) from(ctx context.Context, who callers.Caller, id string) (TryStart, error) {
	record, item, err := h.log.Lookup(ctx, id)
	if err != nil {
		return TryStart{}, err
	}
	if !(view{who.Tenants}).sees(record.Tenant) {
		return TryStart{}, decisionlog.ErrNoEntry
	}
	return startOf(&record.Entry, max(item, 0))
}

// lastLook limits the entries that the search for the last request reads.
var lastLook = decisionlog.Look{Entries: 10_000, Time: time.Second}

// last returns the request of the last decision.
func (h *triesHandler) last(ctx context.Context, f decisionlog.Filter) (out TryStart, err error) {
	found, err := h.log.Latest(ctx, f, 1, lastLook)
	if err != nil {
		return out, err
	}
	for line, err := range h.log.Select(ctx, found.Filter) {
		if err != nil {
			return out, err
		}
		entry, err := replay.ReadEntry(line)
		if err != nil {
			return out, err
		}
		return startOf(entry, 0)
	}
	return out, nil
}

// example returns a request about the policies in force: those of a tenant, or of the first one that the
// caller may see. It returns the zero value if they name too little.
func (h *triesHandler) example(v view, tenant string) (out TryStart, err error) {
	all := h.engine.Snapshots()
	if all == nil {
		return out, nil
	}
	names := slices.DeleteFunc(all.Tenants(), func(name string) bool { return !v.sees(name) || tenant != "" && name != tenant })
	if all.HasTenants() && len(names) == 0 {
		return out, nil
	}
	out.Tenant = tenant
	if all.HasTenants() {
		out.Tenant = names[0]
	}
	one, err := all.For(out.Tenant)
	if err != nil {
		return TryStart{}, err
	}
	request := one.Example()
	if request == nil {
		return TryStart{}, nil
	}
	out.Example = true
	out.Request, err = json.Marshal(request, json.Deterministic(true))
	return out, err
}

// startOf returns the request of a decision of an entry.
func startOf(e *decisionlog.Entry, item int) (TryStart, error) {
	decisions, err := replay.MaskedDecisions(e)
	if err != nil || item >= len(decisions) || decisions[item].Request == nil {
		return TryStart{}, authzen.Invalid("", "names an entry without an evaluation request: %s", e.ID)
	}
	d := decisions[item]
	request, err := json.Marshal(d.Request, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return TryStart{}, fmt.Errorf("encode request: %w", err)
	}
	return TryStart{Tenant: d.Tenant, Request: request, From: d.ID, Masked: d.Masked}, nil
}

// try decides a request, records that somebody tried it, and answers with the explanation.
func (h *triesHandler) try(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	var t Try
	if err := decodeKnown(c, &t); err != nil {
		return err
	}
	who := callerFrom(c.Request().Context())
	if len(who.Tenants) == 1 && t.Tenant == "" {
		t.Tenant = who.Tenants[0]
	}
	if !(view{who.Tenants}).sees(t.Tenant) {
		return snapshot.ErrUnknownTenant
	}
	if !h.rates.Allow(who.ID) {
		return errTryRate
	}
	tried, err := h.decide(&t)
	if err != nil {
		return err
	}
	if err := h.record(c, who.ID, &t, tried); err != nil {
		return err
	}
	tried.Test = h.test(&t, tried)
	return writeJSON(c, http.StatusOK, tried)
}

// decide decides a request with the chosen policies and, if these are the current ones, also with the
// shadow. No approval and no capability is looked up, so none is used up.
func (h *triesHandler) decide(t *Try) (*Tried, error) {
	all := h.engine.Snapshots()
	switch t.By {
	case "", revisionCurrent:
		t.By = revisionCurrent
	case revisionShadow:
		if all = h.engine.ShadowSnapshots(); all == nil {
			return nil, authzen.Invalid("/by", "there is no shadow store")
		}
	default:
		return nil, authzen.Invalid("/by", "must be %s or %s", revisionCurrent, revisionShadow)
	}
	if len(t.Request) == 0 {
		return nil, authzen.Invalid("/request", "is required")
	}
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(t.Request, &request); err != nil {
		return nil, below("/request", err)
	}
	env := snapshot.Environment{Time: time.Now().UTC()}
	explanation, err := explainBy(all, t.Tenant, &request, env)
	if err != nil {
		return nil, below("/request", err)
	}
	out := &Tried{Try: true, By: TriedBy{Store: t.By, Tenant: t.Tenant, Revision: explanation.Revision, Time: env.Time}, Explanation: explanation}
	if shadow := h.engine.ShadowSnapshots(); shadow != nil && t.By == revisionCurrent {
		out.Shadow = trySecond(all, shadow, t.Tenant, &request, env)
	}
	return out, nil
}

// below places an error of a request below a member of the body.
func below(member string, err error) error {
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		return invalid.Below(member)
	}
	return err
}

func explainBy(all *snapshot.Snapshots, tenant string, r *authzen.EvaluationRequest, env snapshot.Environment) (*explain.Explanation, error) {
	if all == nil {
		return nil, snapshot.ErrNoSnapshot
	}
	one, err := all.For(tenant)
	if err != nil {
		return nil, err
	}
	return explain.Explain(one, r, env)
}

// test returns a test file that expects the answer, or "".
func (h *triesHandler) test(t *Try, tried *Tried) string {
	all := h.engine.Snapshots()
	if t.By == revisionShadow {
		all = h.engine.ShadowSnapshots()
	}
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(t.Request, &request); err != nil || all == nil {
		return ""
	}
	result, err := resultBy(all, t.Tenant, &request, snapshot.Environment{Time: tried.By.Time})
	if err != nil {
		return ""
	}
	logged := replay.Logged{ID: tried.By.ID, Tenant: t.Tenant, Time: tried.By.Time, Request: &request, Result: *result}
	text, err := policytest.FromDecisions([]replay.Logged{logged})
	if err != nil {
		return ""
	}
	return string(text)
}

// trySecond returns the shadow's answer, and the difference to that of the current policies.
func trySecond(current, shadow *snapshot.Snapshots, tenant string, r *authzen.EvaluationRequest, env snapshot.Environment) *TriedShadow {
	explanation, err := explainBy(shadow, tenant, r, env)
	if err != nil {
		return &TriedShadow{Problem: err.Error()}
	}
	out := &TriedShadow{Revision: explanation.Revision, Explanation: explanation}
	before, errBefore := resultBy(current, tenant, r, env)
	after, errAfter := resultBy(shadow, tenant, r, env)
	if errBefore == nil && errAfter == nil {
		out.Effect = replay.EffectOf(before, after)
	}
	return out
}

func resultBy(all *snapshot.Snapshots, tenant string, r *authzen.EvaluationRequest, env snapshot.Environment) (*decisionlog.Result, error) {
	one, err := all.For(tenant)
	if err != nil {
		return nil, err
	}
	outcome, err := one.Decide(r, env)
	if err != nil {
		return nil, err
	}
	result := outcome.Result()
	return &result, nil
}

// A triedRequest is the request of an entry about a try.
type triedRequest struct {
	Action   string         `json:"action"` // try
	By       string         `json:"by"`     // the person or program
	Store    string         `json:"store"`
	Revision string         `json:"revision"`
	Answer   string         `json:"answer"` // allow or deny
	Request  jsontext.Value `json:"request"`
}

// record records a try, which gets the id of the entry. The entry is on disk before the answer is given.
func (h *triesHandler) record(c echo.Context, who string, t *Try, tried *Tried) error {
	entry, err := adminEntry(triedRequest{
		"try", who, tried.By.Store, tried.By.Revision, decisionlog.DecisionString(tried.Explanation.Decision), t.Request,
	})
	if err != nil {
		return err
	}
	entry.Time, entry.Tenant, entry.Revision = tried.By.Time, t.Tenant, tried.By.Revision
	entry.Caller, entry.RequestID, entry.TraceID = who, requestID(c), traceID(c.Request().Context())
	tried.By.ID = entry.ID
	if err := h.log.Append(c.Request().Context(), entry); err != nil {
		return fmt.Errorf("record try: %w", err)
	}
	return nil
}
