package approval_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// moves is a call of move that opens those drawers.
func moves(drawers ...string) sent {
	args, err := json.Marshal(map[string]any{"drawers": drawers})
	if err != nil {
		panic(err)
	}
	return sent{tool: "move", args: string(args)}
}

// One of several evaluations waits like a single one.
func TestOneOfSeveral(t *testing.T) {
	h := build(t, nil)
	s := h.send(moves("red", "white"))
	if s.Reason != enforce.ReasonPending || s.Task == "" || s.Tasks != nil || !slices.Equal(h.tasks(), []string{s.Task}) {
		t.Fatalf("%+v, at the PDP %q", s.Data, h.tasks())
	}
	if other := h.send(moves("red", "yellow")); other.Task == s.Task {
		t.Errorf("another call: %+v", other.Data)
	}
	h.approve(s.Task)
	h.restart()
	if s := h.send(moves("red", "white")); !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	h.restart() // before the server has answered
	if again := h.send(moves("red", "white")); again.goes() || again.Task == s.Task {
		t.Errorf("the next one: %+v", again.Data)
	}
}

// What a person approves lifts no other denial, and nobody is asked in vain.
func TestNobodyIsAskedInVain(t *testing.T) {
	h := build(t, nil)
	for _, c := range []sent{moves("sealed"), moves("red", "sealed"), moves("sealed", "red")} {
		if s := h.send(c); s.goes() || s.Reason != enforce.ReasonDenied {
			t.Errorf("%s: %+v", c.args, s.Data)
		}
	}
	if s := h.send(moves("red", "green")); s.Reason != enforce.ReasonMapping {
		t.Errorf("one that cannot be asked for: %+v", s.Data)
	}
	if s := h.send(moves("1", "2", "3", "4", "5", "6", "7", "8", "red")); s.Reason != enforce.ReasonTooMany {
		t.Errorf("more than are asked for: %+v", s.Data)
	}
	if waits := h.tasks(); len(waits) != 0 {
		t.Errorf("at the PDP %q wait", waits)
	}
	if s := h.send(moves("1", "2", "3", "4", "5", "6", "7", "8")); len(s.Tasks) != 8 { // the control
		t.Errorf("%+v", s.Data)
	}
}

// Each denial has its own approval. With some of them nothing goes on, and the
// client is told the same as with none; with all of them the call goes on, once.
func TestEachHasItsOwnApproval(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "white", "blue")
	first := h.send(c)
	if len(first.Tasks) != 2 || first.Task != first.Tasks[0] || len(h.tasks()) != 2 {
		t.Fatalf("%+v", first.Data)
	}
	for i, task := range first.Tasks {
		s := h.send(c)
		s.EvaluationID = first.EvaluationID
		if diff := cmp.Diff(first.Data, s.Data); diff != "" {
			t.Errorf("with %d approvals (-first +now):\n%s", i, diff)
		}
		h.approve(task)
		h.restart()
	}
	h.race(c, 50, first.Task)
	next := h.send(c)
	if next.goes() || len(next.Tasks) != 2 || slices.Contains(first.Tasks, next.Tasks[0]) || slices.Contains(first.Tasks, next.Tasks[1]) {
		t.Errorf("the next one: %+v", next.Data)
	}
}

// A no to one of several is a no to the call, and the others are asked no more.
func TestOneNoIsEnough(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	for n, decide := range []func(tasks []string){
		func(tasks []string) { h.decide(tasks[0], "deny", "carol") },
		func(tasks []string) { h.decide(tasks[1], "deny", "carol") },
		func(tasks []string) { h.approve(tasks[0]); h.decide(tasks[1], "deny", "carol") },
	} {
		c := sent{tool: c.tool, args: strings.Replace(c.args, "{", fmt.Sprintf(`{"n":%d,`, n), 1)}
		s := h.send(c)
		decide(s.Tasks)
		for range 2 {
			if got := h.send(c); got.goes() || got.Reason != enforce.ReasonNotApproved || !slices.Equal(got.Tasks, s.Tasks) {
				t.Errorf("%d: %+v", n, got.Data)
			}
		}
		if waits := h.tasks(); len(waits) != 0 {
			t.Errorf("%d: at the PDP %q wait", n, waits)
		}
	}
}

// A client that takes its call back takes back all that was asked.
func TestWithdrawSeveral(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	c.caps = forms
	s := h.send(c)
	if message := s.Result.Inputs["gw.approval"].Params.Message; !strings.Contains(message, h.tasks()[0]) || !strings.Contains(message, h.tasks()[1]) {
		t.Errorf("the client is told %q", message)
	}
	c.rest = fmt.Sprintf(`,"requestState":%q,"inputResponses":{"gw.approval":{"action":"decline"}}`, s.Result.State)
	if s := h.send(c); s.Reason != enforce.ReasonWithdrawn {
		t.Errorf("%+v", s.Data)
	}
	if left := h.tasks(); len(left) != 0 {
		t.Errorf("at the PDP %q wait", left)
	}
}

// Requests that the PDP has and the gateway does not know of are not made twice.
func TestLostAnswers(t *testing.T) {
	h := build(t, nil)
	submissions := authzen.PathRequests
	h.lose.Store(&submissions)
	c := moves("red", "blue")
	if s := h.send(c); s.Reason != enforce.ReasonPDP {
		t.Fatalf("%+v", s.Data)
	}
	h.restart()
	h.lose.Store(nil)
	s := h.send(c)
	waits := h.tasks()
	if slices.Sort(waits); s.Reason != enforce.ReasonPending || !slices.Equal(waits, slices.Sorted(slices.Values(s.Tasks))) {
		t.Errorf("%+v, at the PDP %q", s.Data, waits)
	}
}

// An approval that is good for one use is not used up by a re-evaluation whose
// answer nobody got: the next one is the same use.
func TestUsesOfSeveral(t *testing.T) {
	h := build(t, nil)
	c := moves("blue", "red")
	c.caps = polls
	s := h.send(c)
	look := func() string {
		return h.send(sent{method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)}).Result.Status
	}
	h.approve(h.tasks()...)
	evaluations := authzen.PathEvaluations
	h.lose.Store(&evaluations)
	for range 3 {
		if got := look(); got != "working" {
			t.Fatalf("without the PDP it is %s", got)
		}
	}
	h.restart() // once those are done
	if h.executed.Load() != 0 {
		t.Fatal("it is carried out")
	}
	h.lose.Store(nil)
	h.await(func() bool { return look() == "completed" })
	if h.executed.Load() != 1 {
		t.Errorf("carried out %d times", h.executed.Load())
	}
}

// Policies have the last word about all that was asked.
func TestPoliciesHaveTheLastWordOnSeveral(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	s := h.send(c)
	h.approve(s.Tasks...)
	h.fewer.Store(true) // the operator has it mapped otherwise
	if got := h.send(c); got.goes() || got.Reason != enforce.ReasonDenied {
		t.Errorf("%+v", got.Data)
	}
	if got := h.send(c); got.goes() || got.Reason != enforce.ReasonPending || got.Task == s.Task {
		t.Errorf("the next one: %+v", got.Data)
	}
}

// An approval that has been taken back before the last one came is none.
func TestOneOfSeveralRevoked(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	s := h.send(c)
	h.approve(s.Tasks[0])
	h.revoke(s.Tasks[0])
	h.approve(s.Tasks[1])
	if got := h.send(c); got.goes() || got.Reason != enforce.ReasonDenied || !slices.Equal(got.Tasks, s.Tasks) {
		t.Errorf("%+v", got.Data)
	}
	if got := h.send(c); got.goes() || got.Reason != enforce.ReasonPending || got.Task == s.Task {
		t.Errorf("the next one: %+v", got.Data)
	}
}

// What nobody decides in time is over, and all of it is asked no more.
func TestSweepSeveral(t *testing.T) {
	var ahead atomic.Int64
	h := build(t, func(c *approval.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	c := moves("red", "blue")
	s := h.send(c)
	h.approve(s.Task)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.send(c); got.Reason != enforce.ReasonPending { // the control
		t.Errorf("%+v", got.Data)
	}
	ahead.Store(int64(1000 * time.Hour))
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.send(c); got.goes() || got.Reason != enforce.ReasonNotApproved {
		t.Errorf("%+v", got.Data)
	}
	if waits := h.tasks(); len(waits) != 0 {
		t.Errorf("at the PDP %q wait", waits)
	}
}

// A tool that has changed is not the one that was approved, however many
// approvals there are.
func TestSupersededSeveral(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	c.caps = polls
	s := h.send(c)
	h.approve(h.tasks()...)
	changed := "sha256:2"
	h.current.Store(&changed)
	h.await(func() bool {
		return h.send(sent{method: "tasks/get", rest: fmt.Sprintf(`,"taskId":%q`, s.Result.Task)}).Result.Status == "failed"
	})
	if h.executed.Load() != 0 {
		t.Errorf("carried out %d times", h.executed.Load())
	}
}

// A server that wants to be called again is, under the same approvals.
func TestServersOwnRoundsOfSeveral(t *testing.T) {
	h := build(t, nil)
	c := moves("red", "blue")
	c.caps = forms
	s := h.send(c)
	h.approve(h.tasks()...)
	back := func(state string) sent {
		c := c
		c.rest = fmt.Sprintf(`,"requestState":%q`, state)
		return c
	}
	s = h.send(back(s.Result.State))
	if !s.goes() {
		t.Fatalf("%+v", s.Data)
	}
	got := s.disposition.Finish(t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(`{"resultType":"input_required","requestState":"theirs"}`)})
	state := strings.Split(strings.SplitAfter(string(got.Result), `"requestState":"`)[1], `"`)[0]
	if s := h.send(back(state)); !s.goes() || !strings.Contains(string(s.disposition.Forward.Params), `"requestState":"theirs"`) {
		t.Errorf("%+v", s.Data)
	}
}

// Who approves sees the arguments of the call: where a mapping has others there,
// nobody is asked.
func TestShownArguments(t *testing.T) {
	h := build(t, nil)
	for args, reason := range map[string]string{
		`{"drawers":["red"],"show":{"drawers":["pencils"]}}`: enforce.ReasonMapping,
		`{"drawers":["red"],"show":null}`:                    enforce.ReasonMapping,
		`{"drawers":["red"]}`:                                enforce.ReasonPending,
	} {
		if s := h.send(sent{tool: "move", args: args}); s.Reason != reason {
			t.Errorf("%s: %+v", args, s.Data)
		}
	}
	if waits := h.tasks(); len(waits) != 1 {
		t.Errorf("at the PDP %q wait", waits)
	}
}

// Nobody is asked about a call in the name of another: its caller could approve
// it.
func TestInTheNameOfAnother(t *testing.T) {
	h := build(t, nil)
	for as, reason := range map[string]string{"bob": enforce.ReasonDenied, "carol": enforce.ReasonDenied, "alice": enforce.ReasonPending} {
		if s := h.send(sent{tool: "move", args: fmt.Sprintf(`{"drawers":["red"],"as":%q}`, as)}); s.Reason != reason {
			t.Errorf("%s: %+v", as, s.Data)
		}
	}
	if waits := h.tasks(); len(waits) != 1 {
		t.Errorf("at the PDP %q wait", waits)
	}
}

// A refusal in time of one of several gives up the call, and its place.
func TestStayForSeveral(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.Hold = time.Minute })
	client := &talk{until: make(chan struct{})}
	c := moves("red", "blue")
	c.caps, c.client = forms, client
	got := make(chan *said, 1)
	go func() { got <- h.send(c) }()
	h.await(client.wasAsked)
	tasks := h.tasks()
	h.approve(tasks[0])
	if status := h.decide(tasks[1], "deny", "carol"); status != http.StatusOK {
		t.Fatal(status)
	}
	if s := <-got; s.goes() || s.Reason != enforce.ReasonNotApproved {
		t.Errorf("%+v", s.Data)
	}
}

// A call that an earlier version has kept, in clear and with single evaluations
// alone, goes on.
func TestKeptBefore(t *testing.T) {
	h := build(t, func(c *approval.Config) { c.PerCaller = 1 })
	task := h.send(sent{}).Task
	h.approve(task)
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	h.rewrite(func(text string) string {
		members := map[string]jsontext.Value{}
		if err := json.Unmarshal([]byte(text), &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "code")
		delete(members, "template")
		want := []string{"changed", "created", "definition", "denial", "digest", "handle", "method", "name", "params", "request", "server", "state", "subject", "task", "version"}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(members))); diff != "" {
			t.Errorf("what was kept has other members (-want +got):\n%s", diff)
		}
		before, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return string(before)
	})
	h.open()
	if s := h.send(sent{}); !s.goes() {
		t.Errorf("%+v", s.Data)
	}
}
