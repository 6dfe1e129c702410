package main_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

// message returns an envelope of a guest, with a payload.
func (g *guest) message(to, payload string) string {
	return fmt.Sprintf(`{"protocol":"mcp-x/v0","id":"m","ts":"2024-01-01T12:00:00Z","from":%q,"to":[%q],"kind":"mcp","payload":%s}`, g.name, to, payload)
}

// call returns a call of a tool.
func (g *guest) call(to string, id int, tool, arguments string) string {
	return g.message(to, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments))
}

// A said is what tests read of a message.
type said struct {
	From    string `json:"from"`
	Payload struct {
		ID      any    `json:"id"`
		Method  string `json:"method"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
		Message string `json:"message"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Request struct {
					ExpiresAt time.Time `json:"expiresAt"`
				} `json:"authorizationRequest"`
			} `json:"data"`
		} `json:"error"`
		Result any `json:"result"`
	} `json:"payload"`
}

// hears returns the next message.
func (g *guest) hears() (s said) {
	g.Helper()
	text := g.next()
	if err := json.Unmarshal(text, &s); err != nil {
		g.Fatalf("%s: %v", text, err)
	}
	return s
}

func (h *house) welcomed(topic, name string) *guest {
	h.Helper()
	g := h.join(topic, name)
	if s := g.hears(); s.Payload.Type != "welcome" {
		h.Fatalf("%s is not welcomed: %+v", name, s)
	}
	return g
}

// Only participants come in, into topics that exist, if policies say so.
func TestJoin(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/room.cedar": `@id("all") permit (principal, action, resource) unless { principal == agent::"agent-m" };`})
	for _, test := range []struct {
		topic, token string
		status       int
	}{
		{"ops", tokenOf("agent-a"), http.StatusSwitchingProtocols},
		{"ops", " " + tokenOf("agent-a"), http.StatusUnauthorized},
		{"ops", "Agent-A-token", http.StatusUnauthorized},
		{"ops", "", http.StatusUnauthorized},
		{"ops", "token of nobody", http.StatusUnauthorized},
		{"ops", hashOf("agent-a"), http.StatusUnauthorized},
		{"nowhere", tokenOf("agent-a"), http.StatusNotFound},
		{"ops", tokenOf("agent-m"), http.StatusForbidden},
	} {
		if conn, response, _ := h.dial(test.topic, test.token); response == nil || response.StatusCode != test.status {
			t.Errorf("%+v: %v", test, response)
		} else if conn != nil {
			conn.CloseNow()
		}
	}
	h.pdp.kill()
	if _, response, _ := h.dial("ops", tokenOf("agent-a")); response == nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a PDP: %v", response)
	}
}

// What is no envelope of its sender reaches nobody.
func TestEnvelopes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, b := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	good := a.call("agent-b", 1, "read", "{}")
	for old, faulty := range map[string]string{
		`"mcp-x/v0"`:            `"mcp-x/v1"`,
		`"from":"agent-a"`:      `"from":"gateway"`,
		`"agent-a","to"`:        `"Agent-A","to"`,
		`"kind":"mcp"`:          `"kind":"chat"`,
		`["agent-b"]`:           `[]`,
		`"agent-b"`:             `"agent-a"`,
		`"to"`:                  `"bcc":["agent-m"],"to"`,
		`"from"`:                `"from":"agent-m","from"`,
		`"ts":"2024`:            `"ts":"soon 2024`,
		`"id":"m"`:              `"id":"` + strings.Repeat("m", 129) + `"`,
		`"jsonrpc":"2.0"`:       `"jsonrpc":"1.0"`,
		`"id":1`:                `"id":{}`,
		`"method":`:             `"result":{},"method":`,
		`"method":"tools/call"`: `"Method":"tools/call"`,
		`"name":"read"`:         `"name":"read","onBehalfof":"user-1"`,
		`"name":"read",`:        `"name":"","name2":"read",`,
		`{}`:                    `[]`,
		`}}}`:                   `}}`,
	} {
		text := strings.Replace(good, old, faulty, 1)
		if text == good {
			t.Fatalf("%s is not in %s", old, good)
		}
		a.send(text)
		if s := a.hears(); s.Payload.Type != "error" && s.Payload.Error.Code == 0 {
			t.Errorf("%s: %+v", text, s)
		}
	}
	b.idle()
	a.idle()
	a.send(good)
	if s := b.hears(); s.From != "agent-a" || s.Payload.Method != "tools/call" {
		t.Errorf("the good one: %+v", s)
	}
}

// Methods that policies do not permit or do not know reach nobody, and a list has no tools that its reader
// can never call.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/room.cedar": `@id("all")
permit (principal, action in [Action::"topic.join", Action::"tools/list", Action::"tools/call"], resource) unless { resource == tool::"agent-b:never" };
@id("asked") @requestable("person") forbid (principal, action == Action::"tools/call", resource == tool::"agent-b:asked") unless { context has approval };`})
	a, b := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	for id, method := range []string{"initialize", "resources/read", "elicitation/create"} {
		a.send(a.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)))
		if s := a.hears(); s.Payload.Type == "tool_call_blocked" {
			a.hears()
		} else if s.Payload.Error.Code != -32002 {
			t.Errorf("%s: %+v", method, s)
		}
	}
	b.idle()
	a.send(a.message("agent-b", `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`))
	b.hears()
	b.send(b.message("agent-a", `{"jsonrpc":"2.0","id":9,"result":{"tools":[{"name":"read"},{"name":"never"},{"name":"asked"}]}}`))
	if s := a.hears(); !cmp.Equal(s.Payload.Result, any(map[string]any{"tools": []any{map[string]any{"name": "read"}, map[string]any{"name": "asked"}}})) {
		t.Errorf("%+v", s)
	}
}

// A response that answers nothing of its recipient goes nowhere, and no more does a response of another
// than was asked.
func TestForeignResponses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, b, m := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b"), h.welcomed("ops", "agent-m")
	a.send(a.call("agent-b", 1, "read", "{}"))
	b.hears()
	answer := func(g *guest, to string, id int) {
		t.Helper()
		g.send(g.message(to, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`, id)))
		if s := g.hears(); s.Payload.Type != "error" {
			t.Errorf("%s: %+v", g.name, s)
		}
	}
	answer(m, "agent-a", 1)
	answer(b, "agent-m", 1)
	answer(b, "agent-a", 2)
	a.idle()
	m.idle()
	b.send(b.message("agent-a", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`))
	if s := a.hears(); s.Payload.Result == nil {
		t.Errorf("%+v", s)
	}
}

// An id is the same in every spelling, and nobody gets a result under an id that is its own for something
// else.
func TestIDs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/entities.json": `[{"uid":{"type":"Level","id":"full"},"attrs":{},"parents":[]},
		{"uid":{"type":"user","id":"user-1"},"attrs":{},"parents":[{"type":"Level","id":"full"}]},
		{"uid":{"type":"agent","id":"agent-a"},"attrs":{},"parents":[{"type":"Level","id":"full"}]}]`})
	a, b, person, newcomer := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b"), h.welcomed("ops", "user-1"), h.welcomed("ops", "newcomer")
	call := func(g *guest, id, method, more string) {
		g.send(g.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"name":"read"%s}}`, id, method, more)))
	}
	call(a, `"\u0061b"`, "tools/call", "")
	b.hears()
	call(a, `"ab"`, "tools/call", "")
	if s := a.hears(); s.Payload.Error.Code != -32602 {
		t.Errorf("%+v", s)
	}
	b.send(b.message("agent-a", `{"jsonrpc":"2.0","id":"a\u0062","result":{}}`))
	if s := a.hears(); s.Payload.ID != "ab" || s.Payload.Result == nil {
		t.Errorf("%+v", s)
	}
	call(newcomer, "1", "tools/request", "")
	call(newcomer, "2", "tools/request", "")
	for range 4 {
		person.hears()
	}
	call(person, "2", "tools/call", `,"onBehalfOf":"newcomer","requestId":1`)
	if s := person.hears(); s.Payload.Error.Message != `the id is that of another request of "newcomer"` {
		t.Errorf("%+v", s)
	}
	b.idle()
	call(person, "3", "tools/call", `,"onBehalfOf":"newcomer","requestId":1.0`)
	if s := b.hears(); s.From != "user-1" || s.Payload.ID != 3.0 {
		t.Errorf("%+v", s)
	}
}

// An owner's declaration narrows what policies permit, in each mode. One that is not understood is refused,
// and the one before it stays.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/room.cedar": `@id("all") permit (principal, action, resource) unless { resource == tool::"agent-b:never" || resource is access_request || resource is tool_request };
@id("asked") @requestable("person") forbid (principal, action == Action::"tools/call", resource is tool)
when { context has declared && context.declared == "approval" } unless { context has approval || resource == tool::"agent-b:unasked" };`})
	a, b := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	const ran, refused, waits, faulty = 0, -32002, -32001, -32602
	in, ago := time.Now().Add(time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for id, test := range []struct {
		policy, tool string
		want         int
	}{
		{`{"mode":"open"}`, "read", ran},
		{`{"mode":"open"}`, "never", refused},
		{`{"mode":"allowlist","default":"deny","rules":[{"agent":"agent-a","tools":["read"],"expires":"` + in + `"}]}`, "read", ran},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":["read"],"expires":"` + ago + `"}]}`, "read", refused},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":["read"]}]}`, "write", refused},
		{`{"mode":"allowlist","rules":[{"agent":"agent-m","tools":"*"}]}`, "read", refused},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":"*"}]}`, "never", refused},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":"*","requires_approval":true}]}`, "read", waits},
		{`{"mode":"open","rules":[{"agent":"agent-a","tools":"*","requires_approval":true}]}`, "unasked", refused},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":"*","requires_approval":true},{"agent":"agent-a","tools":["read"]}]}`, "read", ran},
		{`{"mode":"denylist","default":"allow","rules":[{"agent":"agent-a","tools":["write"]}]}`, "write", refused},
		{`{"mode":"denylist","rules":[{"agent":"agent-a","tools":["write"]}]}`, "read", ran},
		{`{"mode":"hybrid","default":"allow","rules":[{"agent":"agent-a","tools":["write"],"effect":"deny"},{"agent":"agent-a","tools":"*"}]}`, "write", refused},
		{`{"mode":"hybrid","default":"deny","rules":[{"agent":"agent-a","tools":["write"]}]}`, "write", ran},
		{`{"mode":"hybrid","default":"deny"}`, "read", refused},
		{`{"mode":"closed"}`, "read", faulty},
		{`{"mode":"hybrid"}`, "read", faulty},
		{`{"mode":"allowlist","default":"allow"}`, "read", faulty},
		{`{"mode":"denylist","rules":[{"agent":"agent-a","tools":"*","requires_approval":true}]}`, "read", faulty},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":"read"}]}`, "read", faulty},
		{`{"mode":"allowlist","rules":[{"agent":"agent-a","tools":["read"],"expire":"` + in + `"}]}`, "read", faulty},
		{`{"mode":"open","owner":"agent-m"}`, "read", faulty},
	} {
		b.send(`{"protocol":"mcp-x/v0","from":"agent-b","kind":"system","payload":{"type":"tool_access_policy","policy":` + test.policy + `}}`)
		if test.want == faulty {
			if s := b.hears(); s.Payload.Code != faulty {
				t.Errorf("%s: %+v", test.policy, s)
			}
			a.idle()
			continue
		}
		a.hears()
		a.send(a.call("agent-b", id, test.tool, "{}"))
		if test.want == ran {
			b.hears()
			b.send(b.message("agent-a", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)))
		}
		s := a.hears()
		if s.Payload.Type == "tool_call_blocked" {
			s = a.hears()
		}
		if s.Payload.Error.Code != test.want {
			t.Errorf("%s, %s: %+v, want %d", test.policy, test.tool, s, test.want)
		}
	}
	b.idle()
}

// Who carries out a request needs to be permitted the call.
func TestFulfillerIsPermittedTheCall(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/delegation.cedar": `@id("not-people") forbid (principal is user, action == Action::"tools/call", resource == tool::"agent-b:never");`})
	b, person, newcomer := h.welcomed("ops", "agent-b"), h.welcomed("ops", "user-1"), h.welcomed("ops", "newcomer")
	newcomer.send(newcomer.message("agent-b", `{"jsonrpc":"2.0","id":1,"method":"tools/request","params":{"name":"never"}}`))
	person.hears()
	person.hears()
	person.send(person.message("agent-b", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"never","onBehalfOf":"newcomer","requestId":1}}`))
	if s := person.hears(); s.Payload.Type != "tool_call_blocked" {
		t.Errorf("%+v", s)
	}
	if s := person.hears(); s.Payload.Error.Code != -32002 {
		t.Errorf("%+v", s)
	}
	b.idle()
	newcomer.idle()
}

// An approval is no permit: the PDP decides anew, here without the capability that the call presented.
func TestApprovedCallIsDecidedAnew(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, b, person := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b"), h.welcomed("ops", "user-1")
	a.send(a.message("agent-b", `{"jsonrpc":"2.0","id":1,"method":"capabilities/request","params":{"tools":["deploy"],"duration":60}}`))
	granted, _ := a.hears().Payload.Result.(map[string]any)
	token := fmt.Sprint(granted["token"])
	a.send(a.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"deploy","arguments":{"target":"production"},"capability":%q}}`, token)))
	if s := a.hears(); s.Payload.Error.Code != -32001 {
		t.Fatalf("%+v", s)
	}
	task := person.asked()
	(&conversation{house: h}).operate("capabilities", "revoke", capabilityOf(token), "--as", "user:user-1")
	person.send(person.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","method":"authorization/respond","params":{"authorizationId":%q,"decision":"approve"}}`, task)))
	if s := a.hears(); s.Payload.Error.Code != -32003 {
		t.Errorf("%+v", s)
	}
	b.idle()
}

// A person who decides on what one participant asks does not decide on another's call: an id of the room
// is good for the owner of that call alone.
func TestConfusedPerson(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, b, m, person := h.welcomed("forms", "agent-a"), h.welcomed("forms", "agent-b"), h.welcomed("forms", "agent-m"), h.welcomed("forms", "user-1")
	a.send(a.call("agent-b", 1, "deploy", `{"target":"production"}`))
	task := person.asked()
	form := person.hears().Payload.ID

	// agent-m has agent-a's word for the id, and asks the person about something harmless.
	a.send(a.call("agent-m", 2, "read", `{}`))
	m.hears()
	request := fmt.Sprintf(`{"id":%q,"tool":"read","arguments":{},"requester":"agent-a","reason":"harmless"}`, task)
	m.send(m.message("agent-a", fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"Authorization required","data":{"authorizationRequest":%s}}}`, request)))
	if s := m.hears(); s.Payload.Message != "the authorizationRequest has an id of the room" {
		t.Errorf("%+v", s)
	}
	m.send(m.message("user-1", `{"jsonrpc":"2.0","method":"notifications/authorization/request","params":`+request+`}`))
	if s := m.hears(); s.Payload.Type != "error" {
		t.Errorf("%+v", s)
	}
	m.send(m.message("user-1", fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"elicitation/create","params":{"message":"harmless"}}`, form)))
	if s := m.hears(); s.Payload.Error.Message != "the id is that of a form of the room" {
		t.Errorf("%+v", s)
	}
	person.idle()
	person.send(person.message("agent-m", fmt.Sprintf(`{"jsonrpc":"2.0","method":"authorization/respond","params":{"authorizationId":%q,"decision":"approve"}}`, task)))
	if s := person.hears(); s.Payload.Type != "error" {
		t.Errorf("%+v", s)
	}
	person.send(person.message("agent-m", fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"approve":true}}}`, form)))
	if s := person.hears(); s.Payload.Message != "the form is of agent-b: answer it there" {
		t.Errorf("%+v", s)
	}
	a.idle()
	b.idle()

	// Nobody else's answer to the form counts either.
	m.send(m.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"approve":true}}}`, form)))
	if s := m.hears(); s.Payload.Message != "the approver may not decide this request" {
		t.Errorf("%+v", s)
	}
	b.idle()
	person.send(person.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"approve":true}}}`, form)))
	if s := b.hears(); s.From != "agent-a" || s.Payload.Method != "tools/call" {
		t.Errorf("%+v", s)
	}
}

// A message that is too long ends the connection.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, b := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	a.send(a.call("agent-b", 1, "read", `{"text":"`+strings.Repeat("x", 64<<10)+`"}`))
	if code := a.closed(); code != websocket.StatusMessageTooBig {
		t.Errorf("closed with %v", code)
	}
	b.idle()
}

// closed returns the code with which a connection ends.
func (g *guest) closed() websocket.StatusCode {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	for {
		if _, _, err := g.conn.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// A participant that does not read is dropped, and others do not wait for it.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"store/room.cedar": `@id("all") permit (principal, action, resource);`})
	a, b := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	slow := h.welcomed("ops", "agent-m")
	policy := fmt.Sprintf(`{"protocol":"mcp-x/v0","from":"agent-a","kind":"system","payload":{"type":"tool_access_policy","policy":{"mode":"open","rules":[{"agent":%q,"tools":"*"}]}}}`, strings.Repeat("x", 60<<10))
	left := make(chan struct{})
	go func() {
		defer close(left)
		for b.said("leave") != "agent-m" {
		}
	}()
	for {
		select {
		case <-left:
			a.idle()
			if code := slow.closed(); code != websocket.StatusPolicyViolation && code != -1 {
				t.Errorf("closed with %v", code)
			}
			return
		default:
			a.send(policy)
		}
	}
}

// said returns of whom the next message tells this event of presence, or "".
func (g *guest) said(event string) string {
	_, text, err := g.conn.Read(g.Context())
	var told struct {
		Payload struct {
			Event       string `json:"event"`
			Participant string `json:"participantId"`
		} `json:"payload"`
	}
	if err != nil || json.Unmarshal(text, &told) != nil || told.Payload.Event != event {
		return ""
	}
	return told.Payload.Participant
}

// Calls that wait, and requests for access, are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a, _ := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b")
	for id := range 20 {
		a.send(a.call("agent-b", id, "deploy", `{"target":"production"}`))
		s := a.hears()
		if left := time.Until(s.Payload.Error.Data.Request.ExpiresAt); s.Payload.Error.Code != -32001 || left > 5*time.Minute || left < 4*time.Minute {
			t.Fatalf("%d: %+v, and %s are left", id, s, left)
		}
	}
	a.send(a.call("agent-b", 20, "deploy", `{"target":"production"}`))
	if s := a.hears(); s.Payload.Error.Code != -32603 || s.Payload.Error.Message != "too many calls wait" {
		t.Errorf("%+v", s)
	}
	m := h.welcomed("ops", "agent-m")
	for id := range 11 {
		m.send(m.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"capabilities/request","params":{"tools":["read"],"duration":60}}`, id)))
		s := m.hears()
		if refused := s.Payload.Error.Code == -32603; refused != (id == 10) {
			t.Errorf("%d: %+v", id, s)
		}
	}
	// Another connection replaces the first, and changes nothing of the bounds.
	again := h.welcomed("ops", "agent-m")
	if code := m.closed(); code != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", code)
	}
	again.send(again.message("agent-b", `{"jsonrpc":"2.0","id":1,"method":"capabilities/request","params":{"tools":["read"],"duration":60}}`))
	if s := again.hears(); s.Payload.Error.Code != -32603 {
		t.Errorf("%+v", s)
	}
}

var kills = flag.Int("room.kills", 10, "how many kills of TestKills")

// Kills at any moment: a call reaches its owner once at most, and who is answered is answered by the
// owner.
func TestKills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	runs := 0
	for round := range *kills {
		a, b, person := h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b"), h.welcomed("ops", "user-1")
		a.send(a.call("agent-b", round, "deploy", `{"target":"production"}`))
		if s := a.hearsOf(round); s.Payload.Error.Code != -32001 {
			t.Fatalf("%+v", s)
		}
		vote := person.message("agent-b", fmt.Sprintf(`{"jsonrpc":"2.0","method":"authorization/respond","params":{"authorizationId":%q,"decision":"approve"}}`, person.asked()))
		person.send(vote)
		seen, first := make(chan int, 1), make(chan struct{})
		go func() { seen <- b.calls(round, first) }()
		if round%2 == 0 {
			<-first // at the moment the owner has it
		} else {
			time.Sleep(time.Duration(round%40) * time.Millisecond) // each round is killed at another moment
		}
		h.room.kill()
		before, state := <-seen, h.state(round)
		if before > 1 || before == 1 && state != "sent" {
			t.Fatalf("round %d: the owner saw the call %d times, and it is %s", round, before, state)
		}
		h.startRoom()
		a, b, person = h.welcomed("ops", "agent-a"), h.welcomed("ops", "agent-b"), h.welcomed("ops", "user-1")
		if state == "waiting" {
			person.send(vote)
			if s := b.hears(); s.Payload.ID != float64(round) {
				t.Fatalf("%+v", s)
			}
		}
		if b.idle(); state == "waiting" || before == 1 {
			runs++
		}
		b.send(b.message("agent-a", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`, round)))
		if s := a.hearsOf(round); s.Payload.Result == nil {
			t.Fatalf("%+v", s)
		}
		for _, g := range []*guest{a, b, person} {
			g.conn.CloseNow()
		}
	}
	t.Logf("%d of %d calls ran", runs, *kills)
}

// hearsOf returns the next message about a call. An answer comes again if the connection ended before the
// room noted that it was delivered.
func (g *guest) hearsOf(id int) said {
	g.Helper()
	for {
		if s := g.hears(); s.Payload.ID == float64(id) {
			return s
		}
	}
}

// state returns the state of a call of a room that does not run.
func (h *house) state(id int) (state string) {
	h.Helper()
	db, err := bbolt.Open(filepath.Join(h.dir, "mcpx-room.db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		h.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("calls")).ForEach(func(_, text []byte) error {
			var c struct {
				ID    int    `json:"id"`
				State string `json:"state"`
			}
			err := json.Unmarshal(text, &c)
			if c.ID == id {
				state = c.State
			}
			return err
		})
	})
	if err != nil {
		h.Fatal(err)
	}
	return state
}

// asked returns the authorization that a person is asked for.
func (g *guest) asked() string {
	g.Helper()
	var asked struct {
		Payload struct {
			Params struct {
				ID string `json:"id"`
			} `json:"params"`
		} `json:"payload"`
	}
	if text := g.next(); json.Unmarshal(text, &asked) != nil || asked.Payload.Params.ID == "" {
		g.Fatalf("%s is not asked: %s", g.name, text)
	}
	return asked.Payload.Params.ID
}

// calls counts the calls with an id that come until the connection ends, and tells of the first.
func (g *guest) calls(id int, first chan<- struct{}) (n int) {
	for {
		_, text, err := g.conn.Read(g.Context())
		if err != nil {
			return n
		}
		var s said
		if json.Unmarshal(text, &s) == nil && s.Payload.Method == "tools/call" && s.Payload.ID == float64(id) {
			if n++; n == 1 {
				close(first)
			}
		}
	}
}

// A configuration with faults is refused, with all of them and their places.
func TestConfigFaults(t *testing.T) {
	t.Parallel()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "room.yaml")
	text := "listen: 0.0.0.0:80\ntopic: {}\nparticipants:\n  - {id: gateway, type: agent, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(bin, "mcpx-room"), "--config", file).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	want := `mcpx-room: room.yaml: topics: must name a topic
room.yaml:1:1: listen: must be an address on loopback, because tokens are sent in clear
room.yaml:2:1: unknown field "topic" (did you mean "topics"?)
room.yaml:4:6: participants.0.id: must be a name of letters, digits, dots, dashes and underscores that no other has
room.yaml:4:32: participants.0.sha256: must be the SHA-256 of a token that no other has, as 64 hexadecimal digits
`
	if diff := cmp.Diff(want, strings.ReplaceAll(string(out), file, "room.yaml")); diff != "" {
		t.Error(diff)
	}
}
