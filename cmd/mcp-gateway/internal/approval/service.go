package approval

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Config says how calls wait.
type Config struct {
	File string // of the store, which several processes may use
	// Holder names this process among those that use the store. What it has claimed
	// when it opens the store is of a former run.
	Holder string
	PDP    *enforce.PDP
	Seal   *seal.Key
	// Checker discharges the obligations of decisions.
	Checker *enforce.Checker
	// Results carries out obligations on results. Nil carries out none.
	Results Results
	// Definition returns the digest of a tool's definition as it is by now. Nil
	// says that none is pinned.
	Definition func(server, tool string) string
	// Tasks lets clients poll for calls: a server that has not declared tasks must
	// not answer with one (SEP-2663).
	Tasks bool
	// PassingMeta is [enforce.Config.PassingMeta].
	PassingMeta []string
	Settings
	// Edited makes a call one with the arguments that its approver has changed
	// ([enforce.Gate.Edited]). With nil, such a call does not run.
	Edited func(context.Context, *enforce.Call, jsontext.Value) (*enforce.Question, string, error)
	// Mask masks what looks like secrets in a JSON value for people. Nil masks nothing.
	Mask  func(jsontext.Value) (jsontext.Value, error)
	Trail enforce.Trail    // nil is enforce.NopTrail
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger
}

// Settings are those that [Service.Configure] replaces.
type Settings struct {
	// Page is the URL at which approvers decide, with {task} for the task. "" is
	// none that clients could be led to.
	Page string
	// Hold is how long a call waits on its connection before its client is told
	// that it waits; Wait is that of one on whose stream the client can be told
	// meanwhile. Refused is how long a refusal counts for the same call.
	Hold, Wait, Refused time.Duration
	// PerCaller and Limit bound the calls that wait.
	PerCaller, Limit int
}

// Results carries out obligations on results, as the gate does ([enforce.Gate]).
type Results interface {
	// Deliver returns the response that the client of a call gets. It is for calls
	// that no client waits for.
	Deliver(context.Context, *enforce.Call, *wire.Message) *wire.Message
	// Label gives the caller the labels of the obligations of a call.
	Label(*enforce.Call) error
	// Labelled returns a question with the present labels of the caller.
	Labelled(*enforce.Call, *enforce.Question) (*enforce.Question, error)
}

// A Service keeps the calls that wait. It is safe for concurrent use.
type Service struct {
	cfg   Config
	store *store
	once  singleflight.Group // attaching, by key

	settings atomic.Pointer[Settings]

	// approved are calls to execute that no client waits for. When the queue is
	// full, a call is queued at a later poll.
	approved chan detached
}

// A detached call is approved, and no client waits for its response.
type detached struct {
	record    record
	question  *enforce.Question
	approvals enforce.Approvals
}

// maxQueued bounds the detached calls that wait for [Service.Run].
const maxQueued = 256

// An Execute sends the message of a call to the call's server, and returns the
// response.
type Execute func(ctx context.Context, of *enforce.Call, m *wire.Message) (*wire.Message, error)

// Open opens the store and takes up what a former run of this process
// has left.
func Open(cfg Config) (*Service, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Trail == nil {
		cfg.Trail = enforce.NopTrail{}
	}
	opened, err := openStore(cfg.File, cfg.Seal, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	s := &Service{cfg: cfg, store: opened, approved: make(chan detached, maxQueued)}
	s.Configure(cfg.Settings)
	if err := s.GiveUp(cfg.Holder); err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	return s, nil
}

// Configure replaces the settings, for calls that begin to wait afterwards.
func (s *Service) Configure(settings Settings) { s.settings.Store(&settings) }

// GiveUp ends what a process had claimed that has ended. It has an outcome that
// nobody knows, and is not carried out again.
func (s *Service) GiveUp(holder string) error {
	var lost []record
	err := s.store.all(func(r *record) error {
		if r.State == claimed && r.Holder == holder {
			lost = append(lost, *r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range lost {
		if _, err := s.store.move(&r, unknown, nil); err != nil {
			return err
		}
	}
	return nil
}

// Sweep forgets what nobody will ask about, and gives up what nobody has decided
// in time.
func (s *Service) Sweep(ctx context.Context) error {
	var gone []string
	var late []record
	now := s.cfg.Now()
	err := s.store.all(func(r *record) error {
		switch {
		case r.State == asking && now.Sub(r.Changed) > s.settings.Load().Refused:
			gone = append(gone, r.Handle)
		case r.State == waiting && now.After(r.expires()):
			late = append(late, *r)
		case r.ended() && now.Sub(r.Changed) > s.settings.Load().Refused:
			gone = append(gone, r.Handle)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for i := range late {
		s.expire(ctx, &late[i])
	}
	return s.store.forget(gone)
}

// Run sweeps every minute and executes approved calls that no client waits for,
// until ctx ends and they have returned.
func (s *Service) Run(ctx context.Context, execute Execute) {
	var executing sync.WaitGroup
	defer executing.Wait()
	for tick := time.NewTicker(time.Minute); ; {
		select {
		case d := <-s.approved:
			executing.Go(func() { s.executeDetached(ctx, d, execute) })
		case <-tick.C:
			if err := s.Sweep(ctx); err != nil {
				s.cfg.Log.ErrorContext(ctx, "approvals", "error", err)
			}
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// Bounds of the params of a call that waits, and of all that is kept of it, in
// bytes.
const (
	maxKept   = 256 << 10
	maxRecord = 1 << 20
)

// attachWaiting returns the record of the call that waits, and makes one where none
// does.
func (s *Service) attachWaiting(ctx context.Context, d *enforce.DeniedCall) (*record, error) {
	key := keyOf(d.Caller, d.Digest, d.Requested)
	found, err, _ := s.once.Do(key, func() (any, error) {
		r, err := s.store.current(key)
		if err != nil {
			return nil, err
		}
		was := ""
		if r != nil {
			was = r.Handle
		}
		if r != nil && r.State == asking {
			if err = s.requestApprovals(context.WithoutCancel(ctx), r); err == nil || !isRefused(err) {
				return r, err
			}
			s.discard(ctx, r) // the PDP does not want it any more
			r, was = nil, ""
		}
		if r != nil && (r.waits() || r.untold() || r.State == refused && r.Reason == enforce.ReasonNotApproved && s.cfg.Now().Sub(r.Changed) < s.settings.Load().Refused) {
			return r, nil
		}
		r, err = s.submit(context.WithoutCancel(ctx), d, was)
		if errors.Is(err, errMoved) { // another process asks about the same call
			return s.store.current(key)
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	r := *found.(*record) // others have it, too
	return &r, nil
}

// submit keeps the call and asks that a person lift its denial. Was is the handle
// of the last such call, or "".
func (s *Service) submit(ctx context.Context, d *enforce.DeniedCall, was string) (*record, error) {
	params, err := s.kept(d.Message.Method, d.Message.Params)
	if err != nil {
		return nil, err
	}
	tooLarge := refusal(d.Refusal, enforce.ReasonTooMany, "the call is too large to wait for a person")
	if len(params) > maxKept {
		return nil, tooLarge
	}
	asks, err := newApprovalRequests(d)
	if err != nil {
		return nil, err
	}
	actors, err := d.Caller.Actors()
	if err != nil {
		return nil, err
	}
	r := &record{
		Requested: d.Requested, Why: d.Reason, Actors: actors, Template: templateOf(asks),
		Handle: handlePrefix + rand.Text(), Tenant: d.Caller.Tenant, Subject: authzen.Subject{Type: d.Caller.Subject.Type, ID: d.Caller.Subject.ID},
		Server: d.Server, Session: d.Session, Method: d.Message.Method, Name: d.Binding.Name, Definition: d.Binding.Definition, Digest: d.Digest,
		Params: params, Request: d.Question.Evaluation, Batch: d.Question.Evaluations, approvalRequest: asks[0], More: asks[1:],
		Denial: d.Refusal.Data.EvaluationID, Code: d.Refusal.Code, Version: d.Params.Meta.ProtocolVersion, Authorization: d.Call.Authorization(),
	}
	if whole, err := json.Marshal(r); err != nil {
		return nil, err
	} else if len(whole) > maxRecord {
		return nil, tooLarge
	}
	err = s.store.add(r, was, quotas{s.settings.Load().PerCaller, s.settings.Load().Limit})
	if errors.Is(err, errTooMany) {
		refused := refusal(d.Refusal, enforce.ReasonTooMany, "too many calls wait for a person")
		refused.Data.RetryAfter = 60
		return nil, refused
	}
	if err != nil {
		return nil, fmt.Errorf("store the call: %w", err)
	}
	if err := s.requestApprovals(ctx, r); err != nil {
		if isRefused(err) {
			s.discard(ctx, r)
		}
		return nil, err
	}
	return r, nil
}

// isRefused reports whether the PDP did not take a request, and will not.
func isRefused(err error) bool {
	var status *client.StatusError
	return errors.As(err, &status) && status.Status >= 400 && status.Status < 500 || errors.Is(err, client.ErrForeign)
}

// discard deletes a call for which the PDP accepts no access request.
func (s *Service) discard(ctx context.Context, r *record) {
	s.cancel(ctx, r, noLongerNeeded)
	if err := s.store.forget([]string{r.Handle}); err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "error", err)
	}
}

// approvalContext adds the arguments, and what else of the params is bound, to the context of a
// submission, for the person who decides: what they see is what the digest is
// of. Where a mapping has others there, nobody is asked. It adds what a requester said,
// and within which bounds an approver may change arguments.
func approvalContext(context jsontext.Value, d *enforce.DeniedCall) (jsontext.Value, error) {
	b, reason := &d.Binding, d.Reason
	members, err := jsonobject.Parse(context)
	if err != nil {
		return nil, err
	}
	all := jsonobject.Object{"arguments": b.Arguments, "_meta": b.Meta}
	if b.Others != nil {
		all["params"] = b.Others
	}
	for name, bound := range all {
		if said, taken := members[name]; taken && !same(said, bound) {
			return nil, &enforce.Refusal{
				Code: wire.CodeParams, Status: 200, Message: "the mapping shows the approver a different " + name + " than the call has",
				Data: enforce.Data{Reason: enforce.ReasonMapping},
			}
		} else if !taken && bound != nil {
			members[name] = bound
		}
	}
	if schema := inputSchema(d.Tool); schema != nil && members["input_schema"] == nil {
		members.Put("input_schema", schema)
	}
	if _, taken := members["reason"]; reason != "" && !taken {
		if err := members.Set("reason", plain.Text(reason)); err != nil {
			return nil, err
		}
	}
	return members.Encode()
}

// same reports whether two texts are one JSON value, integers to the last digit.
func same(a, b jsontext.Value) bool {
	x, y, exact := a.Clone(), b.Clone(), jsontext.CanonicalizeRawInts(false)
	return x.Canonicalize(exact) == nil && y.Canonicalize(exact) == nil && bytes.Equal(x, y)
}

// handlePrefix begins the handles of calls, which are tasks of the gateway to
// those clients that poll them.
const handlePrefix = "gw-"

const memberMeta = "_meta"

// kept returns what of the params of a call is kept.
func (s *Service) kept(method string, params jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(params)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	members.Remove(wire.PassingParams(method)...)
	_, meta, err := wire.SplitMeta(params, s.cfg.PassingMeta)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	members.Put(memberMeta, meta)
	return members.Encode()
}

// assemble returns the message that goes to the server: what was kept, under the
// id and with the passing members of the message that came now.
func (s *Service) assemble(r *record, now *wire.Message, state *resumeState) (*wire.Message, error) {
	members, err := jsonobject.Parse(r.Params)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	came, err := jsonobject.Parse(now.Params)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	for _, name := range wire.PassingParams(r.Method) {
		members.Put(name, came[name])
	}
	ofMessage, _, err := wire.SplitMeta(now.Params, s.cfg.PassingMeta)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	meta, err := wire.MergeMeta(ofMessage, members[memberMeta])
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	members.Put(memberMeta, meta)
	if state != nil { // what the gateway said comes back to the gateway, and goes no further
		members.Put("requestState", state.Upstream)
		if err := withoutOurs(members); err != nil {
			return nil, err
		}
	}
	params, err := members.Encode()
	if err != nil {
		return nil, err
	}
	return &wire.Message{ID: now.ID, Method: r.Method, Params: params}, s.covers(r, params)
}

// errChanged means that a message is not the one that was approved.
var errChanged = errors.New("the message differs from the one that was approved")

// covers returns an error unless params are those that the approval of the call
// is bound to.
func (s *Service) covers(r *record, params jsontext.Value) error {
	binding, err := wire.Bind(r.Server, r.Definition, &wire.Message{Method: r.Method, Params: params}, s.cfg.PassingMeta)
	if err != nil {
		return err
	}
	if digest, err := binding.Digest(); err != nil || digest != r.Digest {
		return errors.Join(errChanged, err)
	}
	return nil
}

// withoutOurs removes the responses to what the gateway asked.
func withoutOurs(params jsonobject.Object) error {
	if params["inputResponses"] == nil {
		return nil
	}
	responses, err := jsonobject.Parse(params["inputResponses"])
	if err != nil {
		return fmt.Errorf("inputResponses: %w", err)
	}
	for name := range responses {
		if strings.HasPrefix(name, inputPrefix) {
			delete(responses, name)
		}
	}
	others, err := responses.EncodeMembers()
	params.Put("inputResponses", others)
	return err
}

// deny ends a call that a person has denied, with what that person wrote.
func (s *Service) deny(ctx context.Context, r *record, because error) {
	comment := ""
	if denied := new(notApproved); errors.As(because, &denied) {
		comment = denied.comment
	}
	s.finish(ctx, r, enforce.ReasonNotApproved, comment)
}

// refuse ends a call that waits.
func (s *Service) refuse(ctx context.Context, r *record, reason string) { s.finish(ctx, r, reason, "") }

// noLongerNeeded is the reason with which the PDP is told that nobody waits any more.
const noLongerNeeded = "no_longer_needed"

// finish ends a call that waits. Where it no longer does, nothing happens.
func (s *Service) finish(ctx context.Context, r *record, reason, comment string) {
	s.finishAs(ctx, r, reason, comment, noLongerNeeded)
}

// finishAs is finish with the reason for the PDP.
func (s *Service) finishAs(ctx context.Context, r *record, reason, comment, cancelled string) {
	ended, err := s.store.move(r, refused, func(r *record) { r.Reason, r.Comment = reason, comment })
	if errors.Is(err, errMoved) {
		return
	}
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "error", err)
		return
	}
	*r = *ended
	s.cfg.Trail.Refuse(r.entry(nil), reason)
	if reason == enforce.ReasonWithdrawn || len(r.More) > 0 { // a single one has ended
		s.cancel(ctx, r, cancelled)
	}
}

// entry is what is kept of the call, and of the approvals by which it is carried
// out.
func (r *record) entry(approvals enforce.Approvals) *enforce.Entry {
	var ids []string
	for _, a := range r.asks() {
		if approval := approvals[a.Item]; approval != nil {
			ids = append(ids, approval.ID)
		}
	}
	call := &enforce.Call{
		Server: r.Server, Caller: &enforce.Caller{Subject: r.Subject, Tenant: r.Tenant}, RequestID: r.Handle,
		Message: &wire.Message{ID: jsontext.Value(`""`), Method: r.Method, Params: r.Params}, Params: &wire.Params{Name: r.Name, URI: r.Name},
		Tool: &enforce.Tool{Digest: r.Definition},
	}
	return &enforce.Entry{Call: call, Decisions: enforce.Decisions(r.Denial), Digest: r.Digest, Task: strings.Join(r.tasks(), " "), Approval: strings.Join(ids, " ")}
}

// refusal is another reason for what was refused already.
func refusal(because *enforce.Refusal, reason, message string) *enforce.Refusal {
	r := *because
	r.Message, r.Data.Reason, r.Why = message, reason, ""
	return &r
}
