package capability_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A store is a service with a clock and a log.
type store struct {
	*capability.Service
	dir    string
	config capability.Config

	mu      sync.Mutex
	now     time.Time
	records []capability.Record
	uses    []capability.Use // of the log; its index is the position among all entries
	size    uint64           // entries in the log
	broken  error            // error of the log
	reads   []uint64         // indexes from which the log was read
}

var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func open(t testing.TB) *store {
	t.Helper()
	return openWith(t, func(*capability.Config) {})
}

func openWith(t testing.TB, change func(*capability.Config)) *store {
	t.Helper()
	s := &store{dir: t.TempDir(), now: morning}
	s.config = capability.Config{
		Record: s.record, Recorded: s.recorded, UsesSince: s.usesSince, LogSize: s.logSize, Now: s.time,
		OnError: func(err error) { t.Error(err) },
	}
	change(&s.config)
	s.reopen(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// reopen opens the service again after a clean end.
func (s *store) reopen(t testing.TB) {
	t.Helper()
	if s.Service != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.open(t)
}

// open opens the service.
func (s *store) open(t testing.TB) {
	t.Helper()
	opened, err := capability.Open(s.dir, s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.Service = opened
}

func (s *store) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *store) pass(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(by)
}

func (s *store) record(_ context.Context, r capability.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.records = append(s.records, r)
	s.size++
	return nil
}

func (s *store) recorded(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.ID == id {
			return true, nil
		}
	}
	return false, s.broken
}

func (s *store) usesSince(_ context.Context, from uint64, yield func(capability.Use) error) error {
	s.mu.Lock()
	uses := append([]capability.Use(nil), s.uses...)
	s.reads = append(s.reads, from)
	s.mu.Unlock()
	for _, u := range uses {
		if u.Index < from {
			continue
		}
		if err := yield(u); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) logSize() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

func (s *store) breakLog(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// append adds the entry of an answered decision to the log.
func (s *store) append(u capability.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.Index = s.size
	s.uses = append(s.uses, u)
	s.size++
}

// events returns the events in the log, in order.
func (s *store) events(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.records {
		var body struct {
			Event  string           `json:"event"`
			Status capability.State `json:"status"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if r.Kind != capability.RecordKind {
			t.Errorf("a record has the kind %s", r.Kind)
		}
		all = append(all, body.Event+"/"+string(body.Status))
	}
	return strings.Join(all, " ")
}

var (
	gateway = capability.Caller{Tenant: "acme", ID: "gateway-1"}
	agent   = authzen.Subject{Type: "agent", ID: "agent-a"}
	owner   = authzen.Subject{Type: "user", ID: "olga"}
	admin   = capability.Actor{Subject: owner, Caller: "admin-token"}
)

func lasting(d time.Duration) authzen.Duration { return authzen.Duration{Duration: d} }

// terms returns terms for an hour.
func terms(change func(*capability.Terms), tools ...string) capability.Terms {
	t := capability.Terms{Holder: agent, Tools: tools, Duration: lasting(time.Hour)}
	if change != nil {
		change(&t)
	}
	return t
}

// uses returns terms with a number of uses.
func uses(n int) capability.Terms {
	return terms(func(t *capability.Terms) { t.Constraints.MaxUses = n }, "files:read_file")
}

func (s *store) issue(t testing.TB, terms capability.Terms) *capability.Capability {
	t.Helper()
	c, err := s.Issue(t.Context(), gateway, "", terms, capability.Grant{Issuer: &owner})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *store) request(t testing.TB, terms capability.Terms, task string) *capability.Capability {
	t.Helper()
	c, err := s.Request(t.Context(), gateway, "", terms, capability.Proposal{Task: task, Template: "tool-owner", DecideBy: s.time().Add(10 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *store) sweep(t testing.TB) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// call returns the question of a tool call by the agent. arguments may be "".
func (s *store) call(tool, arguments string, claim *authzen.CapabilityClaim) *authzen.CapabilityQuestion {
	server, name, _ := strings.Cut(tool, ":")
	context := `{"gateway":{"server":"` + server + `","tool":"` + name + `"}`
	if arguments != "" {
		context += `,"arguments":` + arguments
	}
	return &authzen.CapabilityQuestion{
		Tenant: gateway.Tenant, Time: s.time(), Claim: claim,
		Request: &authzen.EvaluationRequest{
			Subject: agent, Action: authzen.Action{Name: "tools/call"}, Resource: authzen.Resource{Type: "document", ID: "d1"},
			Context: jsontext.Value(context + "}"),
		},
	}
}

// claim returns a claim of an id, which may be "", with use.
func claim(id string, use bool) *authzen.CapabilityClaim {
	return &authzen.CapabilityClaim{ID: id, Use: &use}
}

func (s *store) find(t testing.TB, q *authzen.CapabilityQuestion) authzen.CapabilityStatus {
	t.Helper()
	status, err := s.Find(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if status.Capability != nil && status.Denied != "" {
		t.Errorf("a capability covers the request and is denied: %s", status.Denied)
	}
	return status
}

// found returns the id of the capability that covers a question, or "".
func (s *store) found(t testing.TB, q *authzen.CapabilityQuestion) string {
	t.Helper()
	if v := s.find(t, q).Capability; v != nil {
		return v.ID
	}
	return ""
}

// decide decides a call as the engine does: it takes a use, and the log has its entry before the
// answer. It reports whether the call was answered with a permit.
func (s *store) decide(t testing.TB, q *authzen.CapabilityQuestion) bool {
	t.Helper()
	status := s.find(t, q)
	if status.Capability == nil {
		return false
	}
	if status.Consume != nil {
		if _, err := status.Consume(); errors.Is(err, authzen.ErrCapabilityEnded) {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if used := status.Capability; status.Consume != nil || used.Proof != "" {
		s.append(capability.Use{Tenant: q.Tenant, ID: used.ID, Call: used.Call, Proof: used.Proof, Unused: status.Consume == nil, Time: q.Time})
	}
	return true
}

// requested returns a question with a request id.
func requested(q *authzen.CapabilityQuestion, id string) *authzen.CapabilityQuestion {
	q.RequestID = id
	return q
}

// crash ends the service without its last snapshot, and opens it again.
func (s *store) crash(t testing.TB) {
	t.Helper()
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	s.open(t)
}
