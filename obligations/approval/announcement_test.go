package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A mailbox has what was delivered: "address event", or "address event+event (n more)".
type mailbox struct {
	*desk
	got    []string
	counts map[string]int // announcements by address
	fail   func(approval.Delivery) error
}

func (m *mailbox) deliver(_ context.Context, d approval.Delivery) error {
	if err := m.fail(d); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var events []string
	for _, a := range d.Announced {
		events = append(events, a.Event)
	}
	text := d.Address + " " + strings.Join(events, "+")
	if d.More > 0 {
		text += fmt.Sprintf(" (%d more)", d.More)
	}
	m.got = append(m.got, text)
	m.counts[d.Address] += len(events) + d.More
	return nil
}

// person returns a recipient with an address.
func person(id string) approval.Recipient {
	return approval.Recipient{Way: "mail", Address: id + "@example.com", Person: &authzen.Subject{Type: "approver", ID: id}}
}

// openMailbox returns a service whose policies let those recipients decide.
func openMailbox(t testing.TB, terms authzen.ApprovalTemplate, to ...approval.Recipient) *mailbox {
	t.Helper()
	m := &mailbox{desk: open(t, terms), counts: map[string]int{}, fail: func(approval.Delivery) error { return nil }}
	m.config.Recipients = func(context.Context, approval.Audience) ([]approval.Recipient, error) { return to, nil }
	m.config.Deliver = m.deliver
	m.reopen(t)
	return m
}

// step sweeps, announces and delivers once, and returns what was delivered, in order.
func (m *mailbox) step(t testing.TB) string {
	t.Helper()
	m.got = nil
	for _, do := range []func(context.Context) error{m.Sweep, m.Announce, m.Deliver} {
		if err := do(t.Context()); err != nil && !errors.Is(err, errUnreachable) {
			t.Fatal(err)
		}
	}
	slices.Sort(m.got)
	return strings.Join(m.got, ", ")
}

var errUnreachable = errors.New("connection refused")

// People are told of a request at its submission, its escalation, an hour before its end and at its
// end. Each gets one message about each event.
func TestPeopleAreToldOfEachEventOnce(t *testing.T) {
	terms := with(func(a *authzen.ApprovalTemplate) {
		a.DecideWithin, a.Escalation = lasting(4*time.Hour), lasting(time.Hour)
	})
	m := openMailbox(t, terms, person("carol"), person("dave"), person("carol"))
	m.submit(t, push)
	for _, test := range []struct {
		pass time.Duration
		want string
	}{
		{0, "carol@example.com submit, dave@example.com submit"},
		{time.Minute, ""},
		{time.Hour, "carol@example.com escalate, dave@example.com escalate"},
		{time.Minute, ""},
		{2*time.Hour - 2*time.Minute, "carol@example.com remind, dave@example.com remind"},
		{time.Minute, ""},
		{time.Hour, "carol@example.com end, dave@example.com end"},
		{time.Minute, ""},
	} {
		m.pass(test.pass)
		if got := m.step(t); got != test.want {
			t.Errorf("after %s: %q, want %q", test.pass, got, test.want)
		}
	}
	if got, want := m.events(t), "request/submit request/announce request/escalate request/announce request/announce request/expire request/announce"; got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// A request of two hours or less has no reminder, and one that is decided tells those who were told.
func TestShortRequestHasNoReminder(t *testing.T) {
	m := openMailbox(t, with(func(a *authzen.ApprovalTemplate) { a.DecideWithin = lasting(2 * time.Hour) }), person("carol"), person("dave"))
	id := m.submit(t, push).Task.ID
	m.step(t)
	m.pass(90 * time.Minute)
	if got := m.step(t); got != "" {
		t.Errorf("half an hour before the end: %s", got)
	}
	if _, err := m.Decide(t.Context(), id, approver("carol"), denies); err != nil {
		t.Fatal(err)
	}
	if got := m.step(t); got != "dave@example.com end" {
		t.Errorf("decided: %q", got)
	}
	if r, err := m.Request(t.Context(), id); err != nil || len(r.Deciders()) != 1 || r.Deciders()[0].ID != "carol" {
		t.Errorf("decided by %v, %v", r.Deciders(), err)
	}
}

// Nobody is told whose vote would not count: the requester, an actor, the PEP, in any spelling and by
// any name, and whoever has voted.
func TestNobodyIsToldWhoseVoteWouldNotCount(t *testing.T) {
	terms := with(func(a *authzen.ApprovalTemplate) {
		a.Quorum, a.DecideWithin, a.Escalation = 2, lasting(time.Hour), lasting(time.Minute)
	})
	channel := approval.Recipient{Way: "slack-ops"}
	alias := person("someone-else")
	alias.Address = "Agent-7"
	m := openMailbox(t, terms, person("agent-7"), person("AGENT-7"), person("gateway-1"), alias, person("carol"), person("dave"), channel)
	id := m.submit(t, push).Task.ID
	if got, want := m.step(t), " submit, carol@example.com submit, dave@example.com submit"; got != want {
		t.Errorf("submitted: %q, want %q", got, want)
	}
	if _, err := m.Decide(t.Context(), id, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	m.pass(time.Minute)
	if got, want := m.step(t), " escalate, dave@example.com escalate"; got != want {
		t.Errorf("carol has voted: %q, want %q", got, want)
	}
	m.pass(time.Hour)
	if got, want := m.step(t), " end, dave@example.com end"; got != want {
		t.Errorf("ended after carol's vote: %q, want %q", got, want)
	}
	if r, err := m.Request(t.Context(), id); err != nil || len(r.Deciders()) > 0 {
		t.Errorf("nobody decided, and %v are named, %v", r.Deciders(), err)
	}
}

// A delegate is told, and from then on nobody else.
func TestDelegateIsTold(t *testing.T) {
	m := openMailbox(t, with(func(a *authzen.ApprovalTemplate) { a.Escalation = lasting(time.Minute) }), person("carol"), person("dave"))
	id := m.submit(t, push).Task.ID
	m.step(t)
	to := approval.Decision{Decision: "delegate", To: &approval.Person{Type: "approver", ID: "dave"}}
	if _, err := m.Decide(t.Context(), id, approver("carol"), to); err != nil {
		t.Fatal(err)
	}
	if got := m.step(t); got != "dave@example.com delegate" {
		t.Errorf("delegated: %q", got)
	}
	m.pass(time.Minute)
	if got := m.step(t); got != "dave@example.com escalate" {
		t.Errorf("escalated: %q", got)
	}
}

// A message that fails is sent again with growing delays, eight times in all, also after a restart. The
// log says that a person was not reached, and a person who was not reached is not told of the end.
func TestMessagesAreRetried(t *testing.T) {
	m := openMailbox(t, plain, person("carol"), person("dave"))
	var attempts []time.Duration
	m.fail = func(d approval.Delivery) error {
		if d.Address != "dave@example.com" {
			return nil
		}
		attempts = append(attempts, m.time().Sub(morning))
		return errUnreachable
	}
	id := m.submit(t, push).Task.ID
	for n := range 55 * 60 {
		m.step(t)
		m.pass(time.Second)
		if n%600 == 0 {
			m.reopen(t)
		}
	}
	var want []time.Duration
	for _, after := range []int{0, 15, 45, 105, 225, 465, 945, 1905} {
		want = append(want, time.Duration(after)*time.Second)
	}
	if !slices.Equal(attempts, want) {
		t.Errorf("attempts after %v, want %v", attempts, want)
	}
	if _, err := m.Decide(t.Context(), id, approver("erin"), denies); err != nil {
		t.Fatal(err)
	}
	if got := m.step(t); got != "carol@example.com end" {
		t.Errorf("decided: %q", got)
	}
	if got := m.events(t); !strings.HasPrefix(got, "request/submit request/announce request/announce_fail approval/deny") {
		t.Errorf("the log has %s", got)
	}
}

// A message about a request that has ended is not sent any more.
func TestObsoleteMessagesAreNotSent(t *testing.T) {
	m := openMailbox(t, plain, person("carol"))
	m.fail = func(approval.Delivery) error { return errUnreachable }
	id := m.submit(t, push).Task.ID
	m.step(t)
	if _, err := m.Decide(t.Context(), id, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	m.fail = func(approval.Delivery) error { return nil }
	m.pass(time.Minute)
	if err := m.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.step(t); got != "" || len(m.counts) > 0 {
		t.Errorf("delivered %q, %v", got, m.counts)
	}
}

// No message is lost if the program ends before its delivery, or before the delivery is recorded. In
// the second case it is delivered twice.
func TestMessagesSurviveTheEndOfTheProgram(t *testing.T) {
	m := openMailbox(t, plain, person("carol"), person("dave"))
	m.submit(t, push)
	if err := m.Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.reopen(t)
	ctx, kill := context.WithCancel(t.Context())
	m.fail = func(approval.Delivery) error {
		kill() // after the delivery, before its record
		return nil
	}
	if err := m.Deliver(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("delivered: %v", err)
	}
	before := len(m.got)
	m.reopen(t)
	m.fail = func(approval.Delivery) error { return nil }
	if got := m.step(t); before == 0 || got != "carol@example.com submit, dave@example.com submit" {
		t.Errorf("%d before the end, then %q", before, got)
	}
}

// A burst of requests becomes a digest: a person gets five messages in a minute, and learns of all.
func TestBurstBecomesDigest(t *testing.T) {
	const requests = 300
	m := openMailbox(t, plain, person("carol"))
	for range requests {
		m.submit(t, push)
	}
	if got, want := m.step(t), "carol@example.com submit, carol@example.com submit, carol@example.com submit, carol@example.com submit, carol@example.com "+
		strings.TrimSuffix(strings.Repeat("submit+", 20), "+")+" (276 more)"; got != want {
		t.Errorf("first minute: %s, want %s", got, want)
	}
	m.submit(t, push)
	m.submit(t, push)
	m.pass(59 * time.Second)
	if got := m.step(t); got != "" {
		t.Errorf("a second later: %s", got)
	}
	m.pass(time.Second)
	if m.step(t); m.counts["carol@example.com"] != requests+2 {
		t.Errorf("told of %v, want %d", m.counts, requests+2)
	}
}

// A request whose approvers cannot be found delays no other, and is tried again after a minute.
func TestFailedSearchDelaysNoOther(t *testing.T) {
	m := openMailbox(t, plain, person("carol"))
	broken, asked := true, 0
	first := m.submit(t, push).Task.ID
	m.submit(t, push)
	find := m.config.Recipients
	m.config.Recipients = func(ctx context.Context, a approval.Audience) ([]approval.Recipient, error) {
		if a.Questions[0].Resource.ID == first && broken {
			asked++
			return nil, errUnreachable
		}
		return find(ctx, a)
	}
	m.reopen(t)
	for range 3 {
		m.step(t)
		m.pass(time.Second)
	}
	if m.counts["carol@example.com"] != 1 || asked != 1 {
		t.Errorf("carol was told of %d requests, and the other was tried %d times", m.counts["carol@example.com"], asked)
	}
	broken = false
	m.pass(time.Minute)
	if got := m.step(t); got != "carol@example.com submit" {
		t.Errorf("a minute later: %q", got)
	}
}
