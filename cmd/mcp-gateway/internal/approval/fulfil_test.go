package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// request has alice request the tool paper, and returns the request.
func (h *house) request() sent { return sent{method: "tools/request", tool: "paper"} }

// requestID sends a request that waits, and returns its id.
func (h *house) requestID() string {
	h.t.Helper()
	s := h.send(h.request())
	if s.Result.Request == "" {
		h.t.Fatalf("%+v", s.Data)
	}
	return s.Result.Request
}

// by is a call that fulfils a request of alice.
func by(who, id string) sent {
	return sent{as: who, tool: "paper", rest: fmt.Sprintf(`,"onBehalfOf":"alice","requestId":%q`, id)}
}

// answer has the server answer a call with content, and returns what its client gets.
func (s *said) answer(t *testing.T, content string) string {
	t.Helper()
	m := s.disposition.Finish(context.Background(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(content)})
	if m == nil {
		t.Fatal("no answer")
	}
	return string(m.Encode())
}

const content = `{"content":"done"}`

// Both get the response of the server, and who is who. The requester gets it once by the
// same request; the next one is another request.
func TestFulfilled(t *testing.T) {
	h := build(t, nil)
	id := h.requestID()
	s := h.send(by("bob", id))
	if !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	if got := string(s.disposition.Forward.Encode()); strings.Contains(got, "onBehalfOf") || strings.Contains(got, "requestId") || !strings.Contains(got, `"arguments":{"text":"hello"}`) {
		t.Errorf("the server gets %s", got)
	}
	if got := s.answer(t, content); !strings.Contains(got, `"fulfilledBy":"bob"`) || !strings.Contains(got, `"originalRequester":"alice"`) {
		t.Errorf("bob gets %s", got)
	}
	if r := h.send(h.request()).Result; r.FulfilledBy != "bob" || r.Requester != "alice" || r.Content != "done" || r.Type != "complete" {
		t.Errorf("alice gets %+v", r)
	}
	if again := h.send(h.request()).Result; again.Request == "" || again.Request == id {
		t.Errorf("alice gets %+v for another request", again)
	}
	if tasks := h.tasks(); len(tasks) != 1 {
		t.Errorf("%d tasks wait at the PDP, not the one of the other request", len(tasks))
	}
}

// Of a hundred who fulfil a request at once, one carries it out.
func TestFulfilledOnce(t *testing.T) {
	h := build(t, nil)
	id := h.requestID()
	var went atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			s := h.send(by("bob", id))
			for s.Reason == enforce.ReasonPDP { // it has too much to do
				s = h.send(by("bob", id))
			}
			switch {
			case s.goes():
				went.Add(1)
			case s.Reason != enforce.ReasonSettled:
				t.Errorf("%+v", s.Data)
			}
		})
	}
	all.Wait()
	if n := went.Load(); n != 1 {
		t.Errorf("%d of 100 went", n)
	}
}

// Of a hundred whose calls are permitted at the same moment, one claims the request.
func TestClaimedOnce(t *testing.T) {
	h := build(t, nil)
	h.requestID()
	all, err := h.service.Requests("")
	if err != nil {
		t.Fatal(err)
	}
	call := &enforce.Call{Server: "desk", Caller: caller("bob"), Message: &wire.Message{ID: jsontext.Value("1"), Method: "tools/call", Params: jsontext.Value("{}")}}
	var went atomic.Int32
	var running sync.WaitGroup
	begin := make(chan struct{})
	for range 100 {
		running.Go(func() {
			<-begin
			v, err := h.service.Fulfil(t.Context(), &enforce.FulfillingCall{Call: call, Request: all[0], Digest: all[0].Digest})
			if refused := new(enforce.Refusal); err == nil && v.Forward != nil {
				went.Add(1)
			} else if !errors.As(err, &refused) || refused.Data.Reason != enforce.ReasonSettled {
				t.Error(err)
			}
		})
	}
	close(begin)
	running.Wait()
	if n := went.Load(); n != 1 {
		t.Errorf("%d of 100 went", n)
	}
}

// A person who approves and a participant who fulfils do not both carry a request out.
func TestApprovedOrFulfilled(t *testing.T) {
	h := build(t, nil)
	for range 10 {
		s := h.send(h.request())
		if s.Result.Request == "" { // the outcome of the one before
			s = h.send(h.request())
		}
		h.approve(h.tasks()...)
		var went atomic.Int32
		var all sync.WaitGroup
		for _, c := range []sent{h.request(), by("bob", s.Result.Request)} {
			all.Go(func() {
				if got := h.send(c); got.goes() {
					went.Add(1)
					got.answer(t, content)
				}
			})
		}
		all.Wait()
		if n := went.Load(); n != 1 {
			t.Fatalf("%d of 2 went", n)
		}
	}
}

func (h *house) withdraw(id, who string) {
	h.t.Helper()
	if err := h.service.Withdraw(h.t.Context(), caller(who), id, "duplicate"); err != nil {
		h.t.Error(err)
	}
}

// A request is fulfilled only as it is, by somebody else, who may.
func TestOnBehalfOf(t *testing.T) {
	h := build(t, nil)
	id := h.requestID()
	with := func(change func(*sent)) sent {
		c := by("bob", id)
		change(&c)
		return c
	}
	for name, c := range map[string]sent{
		"another requester":         with(func(c *sent) { c.rest = fmt.Sprintf(`,"onBehalfOf":"bob","requestId":%q`, id) }),
		"no requester":              with(func(c *sent) { c.rest = fmt.Sprintf(`,"requestId":%q`, id) }),
		"no request":                with(func(c *sent) { c.rest = `,"onBehalfOf":"alice"` }),
		"a requester of no text":    with(func(c *sent) { c.rest = fmt.Sprintf(`,"onBehalfOf":{"id":"alice"},"requestId":%q`, id) }),
		"another letter case":       with(func(c *sent) { c.rest = fmt.Sprintf(`,"onbehalfof":"alice","requestId":%q`, id) }),
		"a request that is unknown": with(func(c *sent) { c.rest = `,"onBehalfOf":"alice","requestId":"gw-AAAAAAAAAAAAAAAAAAAAAAAAAA"` }),
		"other arguments":           with(func(c *sent) { c.args = `{"text":"bye"}` }),
		"more arguments":            with(func(c *sent) { c.args = `{"text":"hello","x":1}` }),
		"another tool":              with(func(c *sent) { c.tool = "free" }),
		"another server":            with(func(c *sent) { c.server = "other" }),
		"more meta":                 with(func(c *sent) { c.meta = `,"baggage":"x"` }),
		"an answer of a person":     with(func(c *sent) { c.rest += `,"inputResponses":{}` }),
		"a state":                   with(func(c *sent) { c.rest += `,"requestState":"x"` }),
		"the requester":             with(func(c *sent) { c.as = "alice" }),
		"the requester's client":    with(func(c *sent) { c.claims = map[string]any{"client_id": "alice"} }),
		"the requester's party":     with(func(c *sent) { c.claims = map[string]any{"azp": "alice"} }),
		"the requester's principal": with(func(c *sent) {
			c.claims = map[string]any{"act": map[string]any{"sub": "x", "act": map[string]any{"sub": "alice"}}}
		}),
		"an actor of no form": with(func(c *sent) { c.claims = map[string]any{"act": "alice"} }),
		"who may not fulfil":  with(func(c *sent) { c.as = "mallory" }),
		"another tenant":      with(func(c *sent) { c.tenant = "acme" }),
	} {
		s := h.send(c)
		if s.goes() || s.disposition.Answer.Error == nil || !strings.Contains(string(s.disposition.Answer.Error), `"code":-32602`) {
			t.Errorf("%s: %s", name, s.disposition.Answer.Encode())
		}
	}
	own := h.send(by("erin", id)) // her own call needs an approval
	if own.goes() || own.Reason != enforce.ReasonDenied {
		t.Errorf("erin: %+v", own.Data)
	}
	if s := h.send(by("bob", id)); !s.goes() {
		t.Errorf("bob: %+v", s.Data)
	}
}

// Who acts for a participant may not fulfil the participant's requests.
func TestActorOfTheRequester(t *testing.T) {
	h := build(t, nil)
	c := h.request()
	c.claims = map[string]any{"act": map[string]any{"sub": "bob"}}
	id := h.send(c).Result.Request
	if s := h.send(by("bob", id)); s.goes() || s.Reason != enforce.ReasonRequest {
		t.Errorf("%+v", s.Data)
	}
	if s := h.send(by("dan", id)); !s.goes() {
		t.Errorf("%+v", s.Data)
	}
}

// A tools/call that waits is a request as well.
func TestFulfilledCall(t *testing.T) {
	h := build(t, nil)
	waits := sent{tool: "paper"}
	if s := h.send(waits); s.Reason != enforce.ReasonPending {
		t.Fatalf("%+v", s.Data)
	}
	all, err := h.service.Requests("")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if s := h.send(by("bob", all[0].ID)); !s.goes() {
		t.Fatalf("%+v", s.Data)
	} else {
		s.answer(t, content)
	}
	if r := h.send(waits).Result; r.FulfilledBy != "bob" || r.Content != "done" {
		t.Errorf("%+v", r)
	}
}

// The requester whose call is held, or who polls a task, gets the response as well.
func TestFulfilledWhileWaiting(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.Hold = time.Minute })
	held := make(chan *said, 1)
	go func() { held <- h.send(sent{tool: "paper"}) }()
	var id string
	h.await(func() bool {
		all, err := h.service.Requests("")
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 {
			id = all[0].ID
		}
		return id != ""
	})
	s := h.send(by("bob", id))
	h.await(func() bool { return len(h.tasks()) == 0 }) // the held call knows that nobody is to decide
	s.answer(t, content)
	if r := (<-held).Result; r.FulfilledBy != "bob" || r.Content != "done" {
		t.Errorf("the held call gets %+v", r)
	}

	polls := h.request()
	polls.caps = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	task := h.send(polls).Result.Task
	h.send(by("bob", task)).answer(t, content)
	for range 2 {
		s := h.send(sent{method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, task)})
		var status struct {
			Status string         `json:"status"`
			Result jsontext.Value `json:"result"`
		}
		if err := json.Unmarshal(s.disposition.Answer.Result, &status); err != nil || status.Status != "completed" || !strings.Contains(string(status.Result), `"fulfilledBy":"bob"`) {
			t.Errorf("the task is %s, %v", s.disposition.Answer.Result, err)
		}
	}
}

// A gateway that ends before the server answered does not repeat the call. The requester
// is told once that nobody knows what came of it.
func TestKilledWhileFulfilled(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.Holder = "serve" })
	id := h.requestID()
	if s := h.send(by("bob", id)); !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	h.restart()
	if s := h.send(by("dan", id)); s.goes() || s.Reason != enforce.ReasonSettled {
		t.Errorf("dan: %+v", s.Data)
	}
	if s := h.send(h.request()); s.goes() || s.Reason != enforce.Unknown {
		t.Errorf("alice: %+v", s.Data)
	}
	if again := h.send(h.request()).Result; again.Request == "" || again.Request == id {
		t.Errorf("alice: %+v", again)
	}
	if n := h.executed.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// A server that does not answer leaves an outcome that nobody knows, for both.
func TestFulfilledWithoutAnswer(t *testing.T) {
	h := build(t, nil)
	s := h.send(by("bob", h.requestID()))
	s.disposition.Finish(t.Context(), nil)
	if s := h.send(h.request()); s.Reason != enforce.Unknown {
		t.Errorf("%+v", s.Data)
	}
}

// A task of the server is that of the participant who fulfilled the request.
func TestFulfilledWithTask(t *testing.T) {
	for _, task := range []string{`{"resultType":"task","taskId":"t1"}`, `{"task":{"taskId":"t1"}}`} {
		h := build(t, nil)
		s := h.send(by("bob", h.requestID()))
		if got := s.answer(t, task); !strings.Contains(got, `"t1"`) || strings.Contains(got, "fulfilledBy") {
			t.Errorf("bob gets %s", got)
		}
		if s := h.send(h.request()); s.Reason != enforce.ReasonWithheld {
			t.Errorf("alice: %+v", s.Data)
		}
	}
}

// A server that asks for input gets none.
func TestFulfilledWithInput(t *testing.T) {
	h := build(t, nil)
	s := h.send(by("bob", h.requestID()))
	if got := s.answer(t, `{"resultType":"input_required","requestState":"x"}`); !strings.Contains(got, `"answer_withheld"`) {
		t.Errorf("bob gets %s", got)
	}
	if s := h.send(h.request()); s.Reason != enforce.ReasonWithheld {
		t.Errorf("alice: %+v", s.Data)
	}
}

// A request for which the time is over is not listed, and nobody fulfils it.
func TestFulfilledTooLate(t *testing.T) {
	var later atomic.Int64
	h := build(t, func(c *approval.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	id := h.requestID()
	later.Store(int64(2 * time.Hour))
	if all, err := h.service.Requests(""); err != nil || len(all) != 0 {
		t.Errorf("%d requests, %v", len(all), err)
	}
	if s := h.send(by("bob", id)); s.goes() || s.Reason != enforce.ReasonRequest {
		t.Errorf("%+v", s.Data)
	}
}

// The requester alone withdraws a request, which nobody fulfils then.
func TestWithdrawn(t *testing.T) {
	h := build(t, nil)
	id := h.requestID()
	for _, c := range []*enforce.Caller{caller("bob"), {Subject: caller("alice").Subject, Tenant: "acme"}} {
		if err := h.service.Withdraw(t.Context(), c, id, "busy"); err == nil {
			t.Errorf("%+v withdraws it", c)
		}
	}
	h.withdraw(id, "alice")
	if tasks := h.tasks(); len(tasks) != 0 {
		t.Errorf("%q wait at the PDP", tasks)
	}
	if s := h.send(by("bob", id)); s.goes() || s.Reason != enforce.ReasonRequest {
		t.Errorf("%+v", s.Data)
	}
	fulfilled := h.requestID()
	h.send(by("bob", fulfilled))
	if err := h.service.Withdraw(t.Context(), caller("alice"), fulfilled, "busy"); err == nil {
		t.Error("a request that is being fulfilled is withdrawn")
	}
}

// Who may request without an approval makes the call, if the policies permit it.
func TestFreeRequest(t *testing.T) {
	h := build(t, nil)
	c := h.request()
	c.tool = "free"
	if s := h.send(c); !s.goes() || s.disposition.Forward.Method != "tools/call" {
		t.Errorf("%+v", s.Data)
	}
	c.as = "frank" // who may request, and not call
	if s := h.send(c); s.goes() || s.Reason != enforce.ReasonDenied {
		t.Errorf("%+v", s.Data)
	}
}

func caller(id string) *enforce.Caller {
	return &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: id}}
}

// Nobody fulfils a request after the time that its tool allows.
func TestFulfilledLate(t *testing.T) {
	var ahead atomic.Int64
	h := build(t, func(c *approval.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	h.declared.Store(&enforce.Authorization{Required: true, Mode: enforce.ModeAutomatic, Timeout: 300})
	id := h.requestID()
	ahead.Store(int64(301 * time.Second))
	if s := h.send(by("bob", id)); s.goes() {
		t.Errorf("%+v", s.Data)
	}
	if left := h.tasks(); len(left) > 0 {
		t.Errorf("still asked: %s", left)
	}
}
