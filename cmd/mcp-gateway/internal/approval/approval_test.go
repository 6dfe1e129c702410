package approval_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
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

// One approval is one call, however many come for it at once, and although the
// PDP would permit any number.
func TestOnce(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{}).Task
	h.approve(task)
	h.race(sent{}, 100, task)
	if again := h.send(sent{}); again.goes() || again.Reason != enforce.ReasonPending || again.Task == task {
		t.Errorf("the next one: %+v", again.Data)
	}
}

// What goes to the server is what was approved, under the id and with the _meta
// of the message that came for it.
func TestForwardsWhatWasApproved(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{args: `{"text":"hello","n":1}`, rest: `,"task":{"ttl":1}`}).Task
	h.approve(task)
	for _, other := range []string{`{"text":"hello","n":2}`, `{"text":"hello"}`, `{"text":"hello","n":"1"}`, `{"text":"hello","n":1,"m":1}`} {
		if s := h.send(sent{args: other}); s.goes() || s.Task == task {
			t.Errorf("%s: %+v", other, s.Data)
		}
	}
	if s := h.send(sent{as: "bob", args: `{"text":"hello","n":1}`}); s.goes() || s.Task == task {
		t.Errorf("another caller: %+v", s.Data)
	}
	s := h.send(sent{args: `{ "n":1.0, "text":"\u0068ello" }`, rest: `,"task":{"ttl":2}`, caps: `{"x":1}`})
	if !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	const want = `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"x":1},"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"arguments":{"text":"hello","n":1},"name":"write","task":{"ttl":1}}`
	if got := string(s.disposition.Forward.Params); got != want {
		t.Errorf("the server gets %s", got)
	}
}

// An approval binds metadata that the protocol does not define, and shows it to
// the approver: a later message cannot bring other, and the server gets what was
// approved. What passes is of each message.
func TestBindsMeta(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{meta: `,"onBehalfOf":"alice","trace/id":"1"`}).Task
	var shown struct {
		Context struct {
			Meta jsontext.Value `json:"_meta"`
		} `json:"context"`
	}
	h.get("/admin/v1/requests/"+task, &shown)
	if got := string(shown.Context.Meta); got != `{"onBehalfOf":"alice"}` {
		t.Errorf("the approver sees %s", got)
	}
	h.approve(task)
	for _, other := range []string{``, `,"onBehalfOf":"root-admin"`, `,"onBehalfOf":"alice","more":1`} {
		if s := h.send(sent{meta: other}); s.goes() || s.Task == task {
			t.Errorf("%s: %+v", other, s.Data)
		}
	}
	s := h.send(sent{meta: `,"onBehalfOf":"alice","trace/id":"2","progressToken":7`})
	if !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	const want = `"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"2026-07-28","onBehalfOf":"alice","progressToken":7,"trace/id":"2"}`
	if got := string(s.disposition.Forward.Params); !strings.Contains(got, want) {
		t.Errorf("the server gets %s", got)
	}
}

// An approval of a call that has no tool binds what the call is about, and shows it
// to the approver: another of the same method is another request.
func TestBindsParams(t *testing.T) {
	h := build(t, nil)
	for _, test := range []struct{ method, one, other, shown string }{
		{"resources/read", `,"uri":"file:///a"`, `,"uri":"file:///b"`, ``},
		{"resources/subscribe", `,"uri":"file:///a"`, `,"uri":"file:///b"`, ``},
		{"subscriptions/listen", `,"notifications":{"resourceSubscriptions":["file:///a"]}`, `,"notifications":{"resourceSubscriptions":["file:///b"]}`,
			`{"notifications":{"resourceSubscriptions":["file:///a"]}}`},
		{"completion/complete", `,"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":"1"}`, `,"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":"2"}`,
			`{"argument":{"name":"x","value":"1"},"ref":{"type":"ref/prompt","name":"a"}}`},
		{"completion/complete", `,"ref":{"type":"ref/resource","uri":"file:///a"}`, `,"ref":{"type":"ref/resource","uri":"file:///b"}`, `{"ref":{"type":"ref/resource","uri":"file:///a"}}`},
		{"tasks/get", `,"taskId":"t1"`, `,"taskId":"t2"`, ``},
		{"tasks/cancel", `,"taskId":"t1"`, `,"taskId":"t2"`, ``},
		{"tasks/update", `,"taskId":"t1","inputResponses":{"a":1}`, `,"taskId":"t1","inputResponses":{"a":2}`, `{"inputResponses":{"a":1}}`},
	} {
		send := func(rest string) *said {
			c := sent{method: test.method, rest: rest}
			if test.method == "resources/subscribe" { // of versions with sessions
				c.client = new(talk)
			}
			return h.send(c)
		}
		one, other := send(test.one), send(test.other)
		if one.Task == "" || other.Task == "" || one.Task == other.Task || one.Digest == other.Digest {
			t.Fatalf("%s: %+v and %+v", test.method, one.Data, other.Data)
		}
		var shown struct {
			Context struct {
				Params jsontext.Value `json:"params"`
			} `json:"context"`
		}
		if h.get("/admin/v1/requests/"+one.Task, &shown); string(shown.Context.Params) != test.shown {
			t.Errorf("%s: the approver sees %s", test.method, shown.Context.Params)
		}
		h.approve(one.Task)
		if s := send(test.other); s.goes() || s.Task != other.Task {
			t.Errorf("%s: the other call: %+v", test.method, s.Data)
		}
		s := send(test.one)
		if !s.goes() {
			t.Fatalf("%s: the approved call: %+v", test.method, s.Data)
		}
		forwarded := map[string]jsontext.Value{}
		if err := json.Unmarshal(s.disposition.Forward.Params, &forwarded); err != nil {
			t.Fatal(err)
		}
		delete(forwarded, "_meta")
		got, err := json.Marshal(forwarded)
		sent, server := jsontext.Value("{"+strings.TrimPrefix(test.one, ",")+"}"), jsontext.Value(got)
		if err := errors.Join(err, sent.Canonicalize(), server.Canonicalize()); err != nil || !bytes.Equal(sent, server) {
			t.Errorf("%s: the server gets %s, %v", test.method, server, err)
		}
		s.disposition.Finish(t.Context(), nil)
	}
}

// Members of params that the protocol does not define, and notifications that
// it does not define, go no further.
func TestUndefinedGoesNoFurther(t *testing.T) {
	h := build(t, nil)
	for _, rest := range []string{`,"onBehalfOf":"root-admin"`, `,"capability":"cap_1"`, `,"proof":{}`, `,"requestId":"r"`} {
		s := h.send(sent{rest: rest})
		if s.goes() || s.Task != "" || s.Reason != enforce.ReasonInvalidMessage {
			t.Errorf("%s: %+v", rest, s.Data)
		}
	}
	for method, goes := range map[string]bool{
		"notifications/initialized": true, "notifications/roots/list_changed": true,
		"notifications/authorization/request": false, "notifications/tool_access_policy": false,
	} {
		call := &enforce.Call{Server: "desk", Caller: &enforce.Caller{}, Message: &wire.Message{Method: method}, Params: &wire.Params{}}
		if v := h.gate.Judge(t.Context(), call); (v.Forward != nil) != goes && !goes {
			t.Errorf("%s: %+v", method, v)
		}
	}
}

// Neither the caller nor its client approves, whatever the form says.
func TestOwnAnswerIsNoApproval(t *testing.T) {
	h := build(t, nil)
	s := h.send(sent{caps: forms})
	input := s.Result.Inputs["gw.approval"]
	if s.Result.Type != "input_required" || input.Method != "elicitation/create" || input.Params.Mode != "form" || !strings.Contains(input.Params.Message, "does not approve") {
		t.Fatalf("%+v", s.Result)
	}
	accepts := sent{caps: forms, rest: fmt.Sprintf(`,"requestState":%q,"inputResponses":{"gw.approval":{"action":"accept","content":{"approve":true}}}`, s.Result.State)}
	for range 3 {
		if again := h.send(accepts); again.goes() || again.Result.Type != "input_required" {
			t.Fatalf("%+v", again)
		}
	}
	task := h.tasks()[0]
	if status := h.decide(task, "approve", "alice"); status != http.StatusForbidden {
		t.Errorf("who asks may approve: %d", status)
	}
	h.approve(task)
	if s := h.send(accepts); !s.goes() || strings.Contains(string(s.disposition.Forward.Params), "gw.") || strings.Contains(string(s.disposition.Forward.Params), "requestState") {
		t.Errorf("%+v", s.disposition)
	}
}

// A state that the gateway has not sealed is the server's, and no answer beside it
// approves, whatever it is called.
func TestForgedState(t *testing.T) {
	h := build(t, nil)
	first := h.send(sent{caps: forms})
	for _, state := range []string{"theirs", "e30", first.Result.State[:len(first.Result.State)-2], "A" + first.Result.State} {
		for _, name := range []string{"gw.approval", "approval"} {
			s := h.send(sent{caps: forms, rest: fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"approve":true,"wait":true}}}`, state, name)})
			if s.goes() || s.Result.Type != "input_required" {
				t.Errorf("%.10s, %s: %+v", state, name, s.Data)
			}
		}
	}
	if left := h.tasks(); len(left) != 1 {
		t.Errorf("at the PDP %q wait", left)
	}
}

// Two processes use one store: a call waits once, and of all who resume it in
// either process, one carries it out.
func TestTwoProcesses(t *testing.T) {
	h := build(t, nil)
	other := &house{t: t, file: h.file, key: h.key, url: h.url, admin: h.admin, cfg: func(c *approval.Config) { c.Holder = "other" }}
	other.open()
	t.Cleanup(func() { other.close() })
	task := h.send(sent{}).Task
	if again := other.send(sent{}).Task; again != task {
		t.Errorf("the other process asks about %s beside %s", again, task)
	}
	h.approve(task)
	var went atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		for _, process := range []*house{h, other} {
			all.Go(func() {
				if process.send(sent{}).goes() {
					went.Add(1)
				}
			})
		}
	}
	all.Wait()
	if n := went.Load(); n != 1 {
		t.Errorf("the call is carried out %d times", n)
	}
}

// The limit of waiting calls is one of all processes.
func TestLimitOfTwoProcesses(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.PerCaller = 2 })
	other := &house{t: t, file: h.file, key: h.key, url: h.url, admin: h.admin, cfg: func(c *approval.Config) { c.PerCaller = 2 }}
	other.open()
	t.Cleanup(func() { other.close() })
	h.send(sent{args: `{"id":1}`})
	other.send(sent{args: `{"id":2}`})
	for _, process := range []*house{h, other} {
		if s := process.send(sent{args: `{"id":3}`}); s.Reason != enforce.ReasonTooMany {
			t.Errorf("a third call waits: %+v", s.Data)
		}
	}
}

// A client that declines takes its call back.
func TestWithdraw(t *testing.T) {
	h := build(t, nil)
	for _, answer := range []string{`{"action":"decline"}`, `{"action":"accept","content":{"wait":false}}`} {
		s := h.send(sent{caps: forms})
		back := sent{caps: forms, rest: fmt.Sprintf(`,"requestState":%q,"inputResponses":{"gw.approval":%s}`, s.Result.State, answer)}
		if s := h.send(back); s.Reason != enforce.ReasonWithdrawn {
			t.Errorf("%s: %+v", answer, s.Data)
		}
	}
	if left := h.tasks(); len(left) != 0 {
		t.Errorf("at the PDP %q wait", left)
	}
}

// A client that can open pages is led to the one where approvers decide.
func TestPage(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.Page = "https://console.example.com/requests/{task}" })
	s := h.send(sent{caps: pages})
	input := s.Result.Inputs["gw.approval"]
	if input.Params.Mode != "url" || input.Params.URL != "https://console.example.com/requests/"+h.tasks()[0] {
		t.Errorf("%+v", s.Result)
	}
	if s := h.send(sent{args: `{}`}); s.Page == "" || s.Reason != enforce.ReasonPending {
		t.Errorf("another client: %+v", s.Data)
	}
}

// What people are shown of a call has nothing in it that is not seen as it is:
// the names of tools are the server's.
func TestShownNames(t *testing.T) {
	const name = "\u202eetirw\u202c\n**done**"
	for _, caps := range []string{forms, pages} {
		h := build(t, func(c *approval.Config) { c.Page = "https://console.example.com/requests/{task}" })
		s := h.send(sent{tool: name, caps: caps})
		shown := s.Result.Inputs["gw.approval"].Params.Message
		if strings.ContainsAny(shown, "\u202e\u202c\n") || !strings.Contains(shown, `\u{202E}etirw\u{202C}`) {
			t.Errorf("%q", shown)
		}
	}
	h := build(t, nil)
	client := &talk{action: "decline", until: make(chan struct{})}
	close(client.until)
	h.send(sent{tool: name, caps: forms, client: client})
	if len(client.messages) != 1 || strings.ContainsAny(client.messages[0], "\u202e\u202c\n") {
		t.Errorf("%q", client.messages)
	}
}

// A client shows a call to its user once, however often it comes, and is told to
// come back twice; then it gets an error that says what waits. A dialog that is
// closed decides nothing. Each time the call is held, also if that is for less than a
// second.
func TestRounds(t *testing.T) {
	const hold = 50 * time.Millisecond
	h := build(t, func(c *approval.Config) { c.Hold = hold })
	var task string
	for n := range 2 {
		back := sent{caps: forms}
		for round := range 4 {
			begun := time.Now()
			s := h.send(back)
			held := time.Since(begun) >= hold
			quiet := round > 0 || n > 0 // there is nothing to show
			if round == 3 || n == 1 && round == 2 {
				if s.Reason != enforce.ReasonPending || !held {
					t.Errorf("call %d, round %d, held %v: %+v, %+v", n, round, held, s.Data, s.Result)
				}
				task = s.Task
				break
			}
			if s.Result.Type != "input_required" || s.Result.State == "" || len(s.Result.Inputs) > 0 == quiet || quiet && !held {
				t.Fatalf("call %d, round %d, held %v: %+v, %+v", n, round, held, s.Data, s.Result)
			}
			back.rest = fmt.Sprintf(`,"requestState":%q`, s.Result.State)
			if !quiet {
				back.rest += `,"inputResponses":{"gw.approval":{"action":"cancel"}}`
			}
		}
	}
	h.approve(task)
	if s := h.send(sent{caps: forms}); !s.goes() {
		t.Errorf("the approved call: %+v", s.Data)
	}
}

// A client that can wait by a task gets one, and is shown nothing.
func TestTaskGoesFirst(t *testing.T) {
	h := build(t, nil)
	s := h.send(sent{caps: `{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`})
	if s.Result.Type != "task" || s.Result.Task == "" || len(s.Result.Inputs) > 0 {
		t.Errorf("%+v, %+v", s.Data, s.Result)
	}
}

// What a client sends back is good for the call and the caller that it was given
// for, and no more (MCP 2026-07-28, "Multi Round-Trip Requests").
func TestTickets(t *testing.T) {
	h := build(t, nil)
	state := h.send(sent{caps: forms}).Result.State
	with := fmt.Sprintf(`,"requestState":%q`, state)
	for name, c := range map[string]sent{
		"another caller":    {as: "bob", caps: forms, rest: with},
		"another call":      {args: `{"text":"bye"}`, caps: forms, rest: with},
		"another caller, 2": {as: "alice2", caps: forms, rest: with},
	} {
		if s := h.send(c); s.goes() || s.Reason != enforce.ReasonState {
			t.Errorf("%s: %+v", name, s.Data)
		}
	}
	h.approve(h.tasks()[0])
	if s := h.send(sent{caps: forms, rest: with}); !s.goes() {
		t.Fatalf("the control: %+v", s.Data)
	}
	if s := h.send(sent{caps: forms, rest: with}); s.goes() || s.Reason != enforce.ReasonSettled {
		t.Errorf("again: %+v", s.Data)
	}
}

// A server that wants to be called again is, under the same approval: once for
// each time it wants to.
func TestServersOwnRounds(t *testing.T) {
	h := build(t, nil)
	s := h.send(sent{caps: forms})
	h.approve(h.tasks()[0])
	s = h.send(sent{caps: forms, rest: fmt.Sprintf(`,"requestState":%q`, s.Result.State)})
	wants := &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"resultType":"input_required","requestState":"theirs","inputRequests":{"name":{"method":"elicitation/create","params":{}}}}`)}
	got := s.disposition.Finish(t.Context(), wants)
	state := strings.Split(strings.SplitAfter(string(got.Result), `"requestState":"`)[1], `"`)[0]
	if state == "theirs" {
		t.Fatal("the state is not sealed")
	}
	answers := sent{caps: forms, rest: fmt.Sprintf(`,"requestState":%q,"inputResponses":{"name":{"action":"accept","content":{"a":1}}}`, state)}
	if s := h.send(sent{caps: forms}); s.goes() {
		t.Error("the same call without the state goes on")
	}
	s = h.send(answers)
	if !s.goes() || !strings.Contains(string(s.disposition.Forward.Params), `"requestState":"theirs"`) || !strings.Contains(string(s.disposition.Forward.Params), `"name":{"action":"accept"`) {
		t.Fatalf("%+v", s)
	}
	if s := h.send(answers); s.goes() || s.Reason != enforce.ReasonSettled {
		t.Errorf("the same round again: %+v", s.Data)
	}
	done := &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"content":[]}`)}
	if got := s.disposition.Finish(t.Context(), done); got != done {
		t.Errorf("%+v", got)
	}
}

// A talk is a client of the older era that answers what it is asked so, after a
// while.
type talk struct {
	mu       sync.Mutex
	asked    []string
	messages []string // what it was to show
	action   string
	until    chan struct{} // when it answers
}

func (k *talk) Notify(context.Context, *wire.Message) error { return nil }

func (k *talk) Ask(ctx context.Context, method string, params any) (*wire.Message, error) {
	k.mu.Lock()
	k.asked = append(k.asked, fmt.Sprint(method, " ", params.(map[string]any)["mode"]))
	k.messages = append(k.messages, fmt.Sprint(params.(map[string]any)["message"]))
	k.mu.Unlock()
	select {
	case <-k.until:
		return &wire.Message{Result: fmt.Appendf(nil, `{"action":%q}`, k.action)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wasAsked reports whether the client was asked once, by a form.
func (k *talk) wasAsked() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.asked, ",") == "elicitation/create form"
}

// A call of the older era waits on its stream: what its client answers is no
// approval, and may take the call back.
func TestPendingCall(t *testing.T) {
	now := make(chan struct{})
	close(now)
	for _, test := range []struct {
		name   string
		client *talk
		decide string
		goes   bool
		reason string
	}{
		{"approved while it is asked", &talk{until: make(chan struct{})}, "approve", true, ""},
		{"approved after it accepts", &talk{action: "accept", until: now}, "approve", true, ""},
		{"denied after it accepts", &talk{action: "accept", until: now}, "deny", false, enforce.ReasonNotApproved},
		{"declined", &talk{action: "decline", until: now}, "", false, enforce.ReasonWithdrawn},
		{"approved after its dialog is closed", &talk{action: "cancel", until: now}, "approve", true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := build(t, func(c *approval.Config) { c.Hold = time.Minute })
			got := make(chan *said, 1)
			go func() { got <- h.send(sent{caps: forms, client: test.client}) }()
			if test.decide != "" {
				h.await(test.client.wasAsked)
				if status := h.decide(h.tasks()[0], test.decide, "carol"); status != http.StatusOK {
					t.Fatal(status)
				}
			}
			s := <-got
			if s.goes() != test.goes || s.Reason != test.reason {
				t.Errorf("goes %v: %+v", s.goes(), s.Data)
			}
		})
	}
}

// A caller whose call a person denied is told what that person wrote, where the
// template lets it be told, also when it comes back later.
func TestToldWhy(t *testing.T) {
	for _, tool := range []string{"write", "told"} {
		h := build(t, nil)
		task := h.send(sent{tool: tool}).Task
		status := h.post("/admin/v1/requests/"+task+"/decision", []byte(`{"decision":"deny","approver":{"type":"user","id":"carol"},"comment":"not in the\u202e window"}`))
		if status != http.StatusOK {
			t.Fatal(status)
		}
		want := ""
		if tool == "told" {
			want = `not in the\u{202E} window`
		}
		for range 2 {
			s := h.send(sent{tool: tool})
			if s.goes() || s.Reason != enforce.ReasonNotApproved || s.Comment != want || !strings.Contains(string(s.disposition.Answer.Error), "the call was not approved") {
				t.Errorf("%s: %+v, %s", tool, s.Data, s.disposition.Answer.Error)
			}
			h.restart()
		}
	}
}

// Nothing that a caller sent can be read from what is on disk.
func TestKeptSealed(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{args: `{"api_key":"sk-live-123"}`, meta: `,"vendor/token":"sk-live-456"`, caps: polls}).Result.Task
	if task == "" {
		t.Fatal("the call does not wait")
	}
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"sk-live", "api_key", "alice"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s is in the file", secret)
		}
	}
	if !bytes.Contains(text, []byte(task)) {
		t.Error("the file is not the one that has the call")
	}
	h.open()
	h.approve(h.tasks()...)
	h.await(func() bool {
		h.send(sent{method: "tasks/get", rest: `,"taskId":"` + task + `"`})
		return h.executed.Load() == 1
	})
}

// What goes to the server is what the approval is bound to, also where what was
// kept is not.
func TestKeptOtherwise(t *testing.T) {
	h := build(t, nil)
	h.approve(h.send(sent{}).Task)
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	h.rewrite(func(text string) string { return strings.Replace(text, `{"text":"hello"}`, `{"text":"adieu"}`, 1) })
	h.open()
	if s := h.send(sent{}); s.goes() {
		t.Errorf("the server gets %s", s.disposition.Forward.Params)
	}
}

// A person's no is remembered, and theirs alone.
func TestRefused(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{}).Task
	if status := h.decide(task, "deny", "carol"); status != http.StatusOK {
		t.Fatal(status)
	}
	for range 2 {
		if s := h.send(sent{}); s.Reason != enforce.ReasonNotApproved || s.Task != task {
			t.Errorf("%+v", s.Data)
		}
	}
	h.restart()
	if s := h.send(sent{}); s.Reason != enforce.ReasonNotApproved {
		t.Errorf("after a restart: %+v", s.Data)
	}
}

// Policies have the last word: an approval lifts what asked for it and nothing
// else.
func TestPoliciesHaveTheLastWord(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{as: "eve"}).Task
	h.approve(task)
	if s := h.send(sent{as: "eve"}); s.goes() || s.Reason != enforce.ReasonDenied {
		t.Errorf("%+v", s.Data)
	}
}

// A PDP that does not know of the approval yet is asked again with it, whether a forbid
// or a permit waits for it. No person is asked twice.
func TestApprovalThatIsNotGrantedYet(t *testing.T) {
	for _, tool := range []string{"write", "waits"} {
		h := build(t, nil)
		task, other := h.send(sent{tool: tool}).Task, h.send(sent{tool: tool, args: `{"text":"other"}`}).Task
		h.approve(task)
		h.claim.Store(&other) // which is pending
		if s := h.send(sent{tool: tool}); s.goes() || s.Reason != enforce.ReasonDenied || s.RetryAfter == 0 || s.Task != task {
			t.Errorf("%s before it is granted: %+v", tool, s.Data)
		}
		h.claim.Store(nil)
		if s := h.send(sent{tool: tool}); !s.goes() {
			t.Errorf("%s once it is granted: %+v", tool, s.Data)
		}
	}
}

// A restart loses nothing: not what waits, not what was approved, and not that
// something was claimed, whatever became of it.
func TestRestart(t *testing.T) {
	h := build(t, nil)
	task := h.send(sent{}).Task
	h.restart()
	if s := h.send(sent{}); s.Task != task {
		t.Fatalf("%+v", s.Data)
	}
	h.approve(task)
	h.restart()
	s := h.send(sent{})
	if !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	h.restart() // before the server has answered
	if s := h.send(sent{}); s.goes() || s.Task == task {
		t.Errorf("it is carried out again: %+v", s.Data)
	}
}

// A request that the PDP has and the gateway does not know of is not made twice.
func TestLostAnswer(t *testing.T) {
	h := build(t, nil)
	submissions := authzen.PathRequests
	h.lose.Store(&submissions)
	if s := h.send(sent{}); s.Reason != enforce.ReasonPDP {
		t.Fatalf("%+v", s.Data)
	}
	h.restart()
	h.lose.Store(nil)
	s := h.send(sent{})
	if waits := h.tasks(); s.Reason != enforce.ReasonPending || len(waits) != 1 || waits[0] != s.Task {
		t.Errorf("%+v, at the PDP %q", s.Data, waits)
	}
}

// Nobody has more than so many calls wait, nor do all together, also after a
// restart.
func TestBounds(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.PerCaller, c.Limit = 3, 5 })
	wait := func(as string, n int) enforce.Data {
		return h.send(sent{as: as, args: fmt.Sprintf(`{"n":%d}`, n)}).Data
	}
	var first string
	for n := range 3 {
		d := wait("alice", n)
		if d.Reason != enforce.ReasonPending {
			t.Fatalf("%d: %+v", n, d)
		}
		if n == 0 {
			first = d.Task
		}
	}
	if d := wait("alice", 4); d.Reason != enforce.ReasonTooMany || d.RetryAfter == 0 {
		t.Errorf("%+v", d)
	}
	if d := wait("alice", 0); d.Task != first {
		t.Errorf("one that waits: %+v", d)
	}
	h.restart()
	for n := range 2 {
		if d := wait("bob", n); d.Reason != enforce.ReasonPending {
			t.Fatalf("%+v", d)
		}
	}
	if d := wait("carol", 0); d.Reason != enforce.ReasonTooMany {
		t.Errorf("%+v", d)
	}
	h.approve(first)
	if s := h.send(sent{args: `{"n":0}`}); !s.goes() {
		t.Errorf("%+v", s.Data)
	}
	if d := wait("carol", 0); d.Reason != enforce.ReasonPending {
		t.Errorf("after one has gone on: %+v", d)
	}
	if s := h.send(sent{args: `{"text":"` + strings.Repeat("x", 300<<10) + `"}`}); s.Reason != enforce.ReasonTooMany {
		t.Errorf("a large one: %+v", s.Data)
	}
}

// A client that polls finds what came of its call, which was carried out once.
func TestPolled(t *testing.T) {
	h := build(t, nil)
	s := h.send(sent{caps: polls})
	if s.Result.Type != "task" || s.Result.Status != "working" {
		t.Fatalf("%+v", s.Result)
	}
	poll := func(as, method string) *said {
		return h.send(sent{as: as, method: method, rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)})
	}
	if got := poll("bob", "tasks/get"); got.Reason == "" {
		t.Errorf("another caller: %+v", got.Result)
	}
	h.approve(h.tasks()[0])
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { poll("alice", "tasks/get") })
	}
	all.Wait()
	h.await(func() bool { return poll("alice", "tasks/get").Result.Status == "completed" })
	if got := poll("alice", "tasks/get"); got.Result.Status != "completed" || h.executed.Load() != 1 {
		t.Errorf("%+v, carried out %d times", got.Result, h.executed.Load())
	}
}

// The outcome of a call whose answer is too large for a task is that of the
// server's answer. The client learns that the call was carried out.
func TestAnswerTooLargeForTask(t *testing.T) {
	kept := &outcomes{make(chan string, 1)}
	h := build(t, func(c *approval.Config) { c.Trail = kept })
	h.answer = []byte(`{"content":["` + strings.Repeat("x", 2<<20) + `"]}`)
	s := h.send(sent{caps: polls})
	h.approve(h.tasks()[0])
	poll := func() *said {
		return h.send(sent{as: "alice", method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)})
	}
	h.await(func() bool { return poll().Result.Status != "working" })
	if got := <-kept.ended; got != enforce.Succeeded {
		t.Errorf("the outcome is %s", got)
	}
	if got := string(poll().disposition.Answer.Encode()); !strings.Contains(got, "the server carried out the call, but its answer is larger") || !strings.Contains(got, enforce.ReasonWithheld) {
		t.Errorf("the client gets %s", got)
	}
}

// A call that the gateway makes itself is decided again with the labels of that
// moment. Its response is kept as the client may have it, and each time that the
// client gets it, the caller has its labels first: if that fails, the client gets
// nothing.
func TestResultsOfDetachedCalls(t *testing.T) {
	kept := &keptResults{}
	h := build(t, func(c *approval.Config) { c.Results = kept })
	s := h.send(sent{caps: polls})
	h.approve(h.tasks()[0])
	poll := func() *said {
		return h.send(sent{as: "alice", method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)})
	}
	h.await(func() bool { return poll().Result.Status == "completed" })
	if kept.labelled.Load() == 0 {
		t.Error("the labels were not read")
	}
	h.restart()
	before := kept.given.Load()
	if got := string(poll().disposition.Answer.Encode()); !strings.Contains(got, `"result":{"delivered":true}`) || kept.given.Load() != before+1 {
		t.Errorf("%s, labels given %d times", got, kept.given.Load()-before)
	}
	kept.fails.Store(true)
	if got := string(poll().disposition.Answer.Encode()); strings.Contains(got, "delivered") || !strings.Contains(got, enforce.ReasonWithheld) {
		t.Errorf("without labels: %s", got)
	}
}

// keptResults are the obligations on results of a gate.
type keptResults struct {
	labelled, given atomic.Int64
	fails           atomic.Bool
}

func (k *keptResults) Deliver(_ context.Context, c *enforce.Call, response *wire.Message) *wire.Message {
	c.Results.Custom = []jsontext.Value{jsontext.Value(`{"action":"label","labels":["a"]}`)}
	return &wire.Message{ID: response.ID, Result: jsontext.Value(`{"delivered":true}`)}
}

func (k *keptResults) Label(c *enforce.Call) error {
	if k.fails.Load() {
		return errors.New("the disk is full")
	}
	if len(c.Results.Labels()) == 1 {
		k.given.Add(1)
	}
	return nil
}

func (k *keptResults) Labelled(_ *enforce.Call, q *enforce.Question) (*enforce.Question, error) {
	k.labelled.Add(1)
	return q, nil
}

// outcomes is a trail that passes on how calls ended.
type outcomes struct{ ended chan string }

func (o *outcomes) Begin(*enforce.Entry) (string, func(string), error) {
	return "call", func(how string) { o.ended <- how }, nil
}

func (*outcomes) EndLate(string, *enforce.Call, string) {}

func (*outcomes) Refuse(*enforce.Entry, string) {}

// A tool that has changed is not the one that was approved.
func TestSuperseded(t *testing.T) {
	h := build(t, nil)
	s := h.send(sent{caps: polls})
	h.approve(h.tasks()[0])
	changed := "sha256:2"
	h.current.Store(&changed)
	look := func() *said {
		return h.send(sent{method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)})
	}
	h.await(func() bool { return look().Result.Status == "failed" })
	if got := look(); got.Result.Status != "failed" || h.executed.Load() != 0 {
		t.Errorf("%+v, carried out %d times", got.Result, h.executed.Load())
	}
	if s := h.send(sent{}); s.goes() || s.Reason != enforce.ReasonPending {
		t.Errorf("%+v", s.Data)
	}
}

// What nobody decides in time is over, and forgotten after a while.
func TestSweep(t *testing.T) {
	var ahead atomic.Int64
	h := build(t, func(c *approval.Config) {
		c.PerCaller, c.Now = 1, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	task := h.send(sent{}).Task
	ahead.Store(int64(1000 * time.Hour))
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.send(sent{}); s.Reason != enforce.ReasonNotApproved || s.Task != task {
		t.Errorf("%+v", s.Data)
	}
	if s := h.send(sent{args: `{}`}); s.Reason != enforce.ReasonPending {
		t.Errorf("its place is not free: %+v", s.Data)
	}
	ahead.Add(int64(2 * time.Hour))
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.send(sent{}); s.Reason == enforce.ReasonNotApproved {
		t.Errorf("it is remembered for ever: %+v", s.Data)
	}
}
