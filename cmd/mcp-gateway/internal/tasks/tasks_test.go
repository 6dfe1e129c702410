package tasks_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/tasks"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A desk is a gate that lets everything through that is not about tasks of
// others, and counts whom it asks.
type desk struct {
	*tasks.Owners
	t     *testing.T
	gate  *enforce.Gate
	asked atomic.Int32
	file  string
	now   time.Time
}

func newDesk(t *testing.T, cfg tasks.Config) *desk {
	t.Helper()
	d := &desk{t: t, file: filepath.Join(t.TempDir(), "tasks.db"), now: now}
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":true}`)
	}))
	t.Cleanup(decides.Close)
	d.gate = enforce.New(enforce.Config{
		PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Log: slog.New(slog.DiscardHandler),
		Map: func(c *enforce.Call) (*enforce.Question, error) {
			return &enforce.Question{Evaluation: &authzen.EvaluationRequest{
				Subject: c.Caller.Subject, Action: authzen.Action{Name: c.Message.Method}, Resource: authzen.Resource{Type: "x", ID: "x"},
			}}, nil
		},
		Tasks: enforcetest.Tasks{
			Own: func(_ context.Context, c *enforce.Call) (*enforce.Disposition, error) { return nil, d.Check(c) },
			Filter: func(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error) {
				result, err := d.Owners.FilterResult(ctx, c, m.Result)
				return &wire.Message{ID: m.ID, Result: result}, err
			},
		},
	})
	d.open(cfg)
	t.Cleanup(func() { d.Close() })
	return d
}

func (d *desk) open(cfg tasks.Config) {
	d.t.Helper()
	cfg.File, cfg.Now = d.file, func() time.Time { return d.now }
	var err error
	if d.Owners, err = tasks.Open(cfg); err != nil {
		d.t.Fatal(err)
	}
}

// call is one by TENANT/TYPE/ID/SERVER.
func call(t *testing.T, as, method, params string) *enforce.Call {
	t.Helper()
	m, err := wire.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if err != nil {
		t.Fatal(err)
	}
	read, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	who := strings.Split(as, "/")
	return &enforce.Call{Server: who[3], Caller: &enforce.Caller{Tenant: who[0], Subject: authzen.Subject{Type: who[1], ID: who[2]}}, Message: m, Params: read}
}

// send sends a call and, where it goes on, has it answered with a result. It
// returns what the caller gets.
func (d *desk) send(as, method, params, result string) string {
	d.t.Helper()
	v := d.gate.Judge(d.t.Context(), call(d.t, as, method, params))
	if v.Forward == nil {
		return string(v.Answer.Encode())
	}
	got := v.Finish(d.t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(result)})
	return string(got.Encode())
}

const (
	alice = "acme/user/alice/crm"
	older = `{"task":{"taskId":"t1","status":"working","ttl":60000}}`
	newer = `{"resultType":"task","taskId":"t2","status":"working","ttlMs":60000}`
	none  = `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the task does not exist","data":{"reason_code":"invalid_message"}}}`
)

// begin has alice begin both tasks.
func (d *desk) begin() {
	d.t.Helper()
	for _, result := range []string{older, newer} {
		if got := d.send(alice, "tools/call", `{"name":"slow"}`, result); !strings.Contains(got, result) {
			d.t.Fatal(got)
		}
	}
}

// A task is that of the caller whose call began it, at the server that began it;
// for anybody else it is not there, as one is not that there never was, and nobody
// is asked (CZ-77).
func TestTasksOfOthers(t *testing.T) {
	d := newDesk(t, tasks.Config{})
	d.begin()
	for _, id := range []string{"t1", "t2"} {
		for method, params := range map[string]string{
			"tasks/get": `{"taskId":%q}`, "tasks/result": `{"taskId":%q}`, "tasks/cancel": `{"taskId":%q}`, "tasks/update": `{"taskId":%q,"inputResponses":{}}`,
			"subscriptions/listen": `{"notifications":{"toolsListChanged":true,"taskIds":[%q]}}`,
			"tools/call":           `{"name":"slow","_meta":{"io.modelcontextprotocol/relatedTaskIds":[%q]}}`,
			"prompts/get":          `{"name":"slow","_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}}`,
		} {
			asked := d.asked.Load()
			if got := d.send(alice, method, fmt.Sprintf(params, id), `{"ok":1}`); !strings.Contains(got, `"ok":1`) || d.asked.Load() != asked+1 {
				t.Errorf("%s of %s: %s", method, id, got)
			}
			for _, other := range []string{"acme/user/bob/crm", "acme/agent/alice/crm", "/user/alice/crm", "else/user/alice/crm", "acme/user/alice/erp"} {
				asked := d.asked.Load()
				for _, named := range []string{id, "t0", ""} {
					if got := d.send(other, method, fmt.Sprintf(params, named), `{"ok":1}`); got != none {
						t.Errorf("%s by %s of %q: %s", method, other, named, got)
					}
				}
				if d.asked.Load() != asked {
					t.Errorf("%s by %s: the PDP is asked", method, other)
				}
			}
			if got := d.send(alice, method, fmt.Sprintf(params, "t0"), `{"ok":1}`); got != none {
				t.Errorf("%s of what there never was: %s", method, got)
			}
		}
	}
}

// Of a list of tasks a caller sees the own, and of how others stand nothing.
func TestTasksThatAreTold(t *testing.T) {
	d := newDesk(t, tasks.Config{})
	d.begin()
	const all = `{"tasks":[{"taskId":"t1"},{"taskId":"t2"},{"taskId":"t3"}],"nextCursor":"2"}`
	for as, want := range map[string]string{
		alice:               `{"nextCursor":"2","tasks":[{"taskId":"t1"},{"taskId":"t2"}]}`,
		"acme/user/bob/crm": `{"nextCursor":"2","tasks":[]}`,
	} {
		if got := d.send(as, "tasks/list", `{}`, all); !strings.Contains(got, `"result":`+want) {
			t.Errorf("%s: %s", as, got)
		}
	}
	for _, result := range []string{`{"tasks":{}}`, `{}`, `{"tasks":["t1"]}`, `{"tasks":[{"taskId":1}]}`} {
		if got := d.send(alice, "tasks/list", `{}`, result); !strings.Contains(got, `"code":-32603`) {
			t.Errorf("%s: %s", result, got)
		}
	}
	for as, want := range map[string]bool{alice: true, "acme/user/bob/crm": false} {
		for _, method := range []string{"notifications/tasks", "notifications/tasks/status"} {
			m := &wire.Message{Method: method, Params: jsontext.Value(`{"taskId":"t1","status":"completed"}`)}
			if got := d.AllowsNotification(call(t, as, "subscriptions/listen", `{}`), m); got != want {
				t.Errorf("%s hears %s: %v", as, method, got)
			}
		}
		if !d.AllowsNotification(call(t, as, "subscriptions/listen", `{}`), &wire.Message{Method: "notifications/message"}) {
			t.Errorf("%s hears nothing", as)
		}
	}
}

// Whose a task is is remembered over a restart, and as long as the server keeps
// it.
func TestRemembered(t *testing.T) {
	d := newDesk(t, tasks.Config{})
	d.begin()
	d.send(alice, "tools/call", `{}`, `{"resultType":"task","taskId":"t3","ttlMs":172800000}`)
	d.send(alice, "tools/call", `{}`, `{"task":{"taskId":"t4","ttl":null}}`)
	stands := func(after time.Duration, want ...string) {
		t.Helper()
		d.now = now.Add(after)
		for range 2 {
			var got []string
			for _, id := range []string{"t1", "t2", "t3", "t4"} {
				if strings.Contains(d.send(alice, "tasks/get", fmt.Sprintf(`{"taskId":%q}`, id), `{"ok":1}`), `"ok":1`) {
					got = append(got, id)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("after %s there are %q, want %q", after, got, want)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d.open(tasks.Config{})
		}
	}
	stands(0, "t1", "t2", "t3", "t4")
	stands(23*time.Hour, "t1", "t2", "t3", "t4")
	stands(25*time.Hour, "t3", "t4")
	stands(49*time.Hour, "t4")
	stands(31 * 24 * time.Hour)
}

// What cannot be remembered is not handed out, nor is what is somebody else's.
func TestNotRemembered(t *testing.T) {
	d := newDesk(t, tasks.Config{PerCaller: 2, Limit: 3})
	begin := func(as, id string) bool {
		t.Helper()
		got := d.send(as, "tools/call", `{}`, fmt.Sprintf(`{"resultType":"task","taskId":%q,"ttlMs":1}`, id))
		goes := strings.Contains(got, id)
		if !goes && !strings.Contains(got, "upstream_unavailable") {
			t.Errorf("%s begins %.10s: %s", as, id, got)
		}
		return goes
	}
	for _, step := range []struct {
		as, id string
		goes   bool
	}{
		{alice, "t1", true}, {alice, "t1", true}, {alice, "t2", true}, {alice, "t3", false},
		{"acme/user/bob/crm", "t1", false}, {"acme/user/bob/crm", "t4", true}, {"acme/user/carol/crm", "t5", false},
		{alice, strings.Repeat("x", 40_000), false},
	} {
		if got := begin(step.as, step.id); got != step.goes {
			t.Errorf("%s begins %.10s: %v", step.as, step.id, got)
		}
	}
	d.now = now.Add(48 * time.Hour)
	if !begin("acme/user/carol/crm", "t1") || !begin(alice, "t6") || !begin(alice, "t7") {
		t.Error("there is no place although the others are over")
	}
	d.Close()
	if begin(alice, "t8") {
		t.Error("what is not on disk is handed out")
	}
	if got := d.send(alice, "tasks/get", `{"taskId":"t6"}`, `{"ok":1}`); !strings.Contains(got, `"code":-32603`) {
		t.Errorf("whose it is cannot be read: %s", got)
	}
	d.open(tasks.Config{})
}

// The obligations of a call that began a task are those of its result, after a
// restart and where the server names the task again in another call. A notification
// does not carry the result past them.
func TestObligationsOfTask(t *testing.T) {
	d := newDesk(t, tasks.Config{})
	begin := call(t, alice, "tools/call", `{"name":"slow"}`)
	begin.Results.Custom = []jsontext.Value{jsontext.Value(`{"action":"redact","paths":["/ssn"]}`)}
	status := &wire.Message{Method: "notifications/tasks/status", Params: jsontext.Value(`{"taskId":"t1","status":"completed"}`)}
	other := call(t, alice, "tools/call", `{"name":"fast"}`)
	d.answer(other, `{"task":{"taskId":"t2","status":"working"}}`)
	for _, named := range []*enforce.Call{begin, call(t, alice, "tools/call", `{"name":"fast"}`)} {
		d.answer(named, `{"task":{"taskId":"t1","status":"working"}}`)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d.open(tasks.Config{})
		for method, want := range map[string]string{
			"tasks/result": `"result":{"structuredContent":{}}`, "tasks/get": `"result":{"result":{"structuredContent":{}},"taskId":"t1"}`,
		} {
			result := map[string]string{"tasks/result": `{"structuredContent":{"ssn":1}}`, "tasks/get": `{"taskId":"t1","result":{"structuredContent":{"ssn":1}}}`}[method]
			if got := d.send(alice, method, `{"taskId":"t1"}`, result); !strings.Contains(got, want) {
				t.Errorf("%s: %s", method, got)
			}
		}
		if d.AllowsNotification(begin, status) {
			t.Error("the notification passes")
		}
	}
	if got := d.send(alice, "tasks/result", `{"taskId":"t2"}`, `{"structuredContent":{"ssn":1}}`); !strings.Contains(got, "ssn") {
		t.Errorf("another task: %s", got)
	}
}

// answer has the server answer a call.
func (d *desk) answer(c *enforce.Call, result string) {
	d.t.Helper()
	if got := d.gate.Judge(d.t.Context(), c).Finish(d.t.Context(), &wire.Message{ID: jsontext.Value("1"), Result: jsontext.Value(result)}); got.Result == nil {
		d.t.Fatal(string(got.Encode()))
	}
}
