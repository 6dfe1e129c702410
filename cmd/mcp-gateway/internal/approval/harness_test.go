package approval_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// The policies that decide: write waits for carol, an approval is good for any
// number of uses, so that what is carried out once is so by the gateway alone.
// Waits is like write, with a permit in place of a forbid. Move asks about each drawer,
// too: red is like write, blue is good for one use, sealed is opened by nobody, and of
// green nobody can ask.
var policies = fstest.MapFS{
	"desk.cedar": {Data: []byte(`
		@id("all") permit (principal, action == Action::"tools/call", resource) unless { resource == tool::"waits" };
		@id("waiting") @approval("desk") permit (principal, action == Action::"tools/call", resource == tool::"waits");
		@id("writing") @requestable("desk")
		forbid (principal, action == Action::"tools/call", resource == tool::"write")
		unless { context has approval && context.approval.template == "desk" };
		@id("telling") @requestable("telling")
		forbid (principal, action == Action::"tools/call", resource == tool::"told")
		unless { context has approval && context.approval.template == "telling" };
		@id("editing") @requestable("edited")
		forbid (principal, action == Action::"tools/call", resource == tool::"edited")
		unless { context has approval && context.approval.template == "edited" };
		@id("odd") @requestable("desk")
		forbid (principal, action == Action::"tools/call", resource == tool::"\u{202e}etirw\u{202c}\n**done**")
		unless { context has approval && context.approval.template == "desk" };
		@id("others") @requestable("desk") forbid (principal, action, resource == tool::"")
		unless { context has approval && context.approval.template == "desk" };
		@id("of others") permit (principal, action, resource == tool::"");
		@id("banned") forbid (principal == user::"eve", action, resource) unless { resource == tool::"write" && !(context has approval) };
		@id("approvers") permit (principal == user::"carol", action, resource is access_request);
		@id("drawers") permit (principal, action == Action::"open", resource is drawer);
		@id("red") @requestable("desk") forbid (principal, action == Action::"open", resource)
		when { [drawer::"red", drawer::"1", drawer::"2", drawer::"3", drawer::"4", drawer::"5", drawer::"6", drawer::"7", drawer::"8"].contains(resource) }
		unless { context has approval && context.approval.template == "desk" };
		@id("blue") @requestable("once") forbid (principal, action == Action::"open", resource == drawer::"blue")
		unless { context has approval && context.approval.template == "once" };
		@id("green") @requestable("form") forbid (principal, action == Action::"open", resource == drawer::"green")
		unless { context has approval };
		@id("sealed") forbid (principal, action == Action::"open", resource == drawer::"sealed");
		@id("restricted") @requestable("desk")
		forbid (principal, action == Action::"tools/call", resource == tool::"paper")
		unless { [user::"bob", user::"dan", user::"mallory", user::"erin"].contains(principal) || context has approval && context.approval.template == "desk" };
		@id("own approval") @requestable("desk")
		forbid (principal == user::"erin", action == Action::"tools/call", resource == tool::"paper") unless { context has approval };
		@id("requests") @approval("desk") permit (principal, action == Action::"tools/request", resource == tool::"paper");
		@id("free requests") permit (principal, action == Action::"tools/request", resource == tool::"free");
		@id("no calls") forbid (principal == user::"frank", action == Action::"tools/call", resource);
		@id("fulfilment") permit (principal, action == Action::"tools/fulfil", resource is tool_request)
		unless { principal == user::"mallory" };
		@id("askers, too") permit (principal == user::"alice", action, resource is access_request);`)},
	"config.yaml": {Data: []byte("approval_templates: {desk: {uses: 0}, telling: {tell_comment: true, tell_approvers: true}, once: {uses: 1}, edited: {edit: [text]}, form: {request_schema: {required: [ticket]}}}\n")},
}

// A house is a PDP, and a gateway that has calls wait.
type house struct {
	t          *testing.T
	url        string // of the PDP
	admin      string
	file       string
	key        *seal.Key
	cfg        func(*approval.Config)
	lose       atomic.Pointer[string] // the path where the answers of the PDP are lost
	claim      atomic.Pointer[string] // the id that is claimed in place of an approval's
	fewer      atomic.Bool            // move is mapped to fewer evaluations
	gate       *enforce.Gate
	service    *approval.Service
	close      func() error // ends the service
	executed   atomic.Int32 // for nobody who waits
	answer     []byte       // of the server to such a call; nil is an empty result
	current    atomic.Pointer[string]
	declared   atomic.Pointer[enforce.Authorization] // by every tool
	definition atomic.Pointer[string]                // of every tool; nil is one of text
	ran        atomic.Pointer[wire.Message]          // for nobody who waits, the last one
	banned     atomic.Bool                           // the mapping reads the arguments of edited
	misfit     atomic.Bool                           // no tool takes bye
}

// build starts the PDP and opens the service as cfg changes it.
func build(t *testing.T, cfg func(*approval.Config)) *house {
	t.Helper()
	h := &house{t: t, file: filepath.Join(t.TempDir(), "approvals.db"), key: newKey(t), cfg: cfg}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- pdp.Run(ctx, pdp.Config{
			Policies: policies, State: t.TempDir(), Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
			Ready: func(at pdp.Addresses) {
				h.url, h.admin = at.Main, at.Admin
				close(ready)
			},
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // a server waits for those that were never used
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	h.open()
	t.Cleanup(func() { h.close() })
	return h
}

// RoundTrip loses answers, and changes claims.
func (h *house) RoundTrip(r *http.Request) (*http.Response, error) {
	if id := h.claim.Load(); id != nil && r.URL.Path == authzen.PathEvaluation {
		if err := claimID(r, *id); err != nil {
			return nil, err
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && h.lose.Load() != nil && r.URL.Path == *h.lose.Load() {
		response.Body.Close()
		return nil, errors.New("the connection is lost")
	}
	return response, err
}

// claimID has a request that claims an approval claim one with this id.
func claimID(r *http.Request, id string) error {
	var evaluation authzen.EvaluationRequest
	if err := json.UnmarshalRead(r.Body, &evaluation); err != nil {
		return err
	}
	context, err := jsonobject.Parse(evaluation.Context)
	if err != nil {
		return err
	}
	if context["approval"] != nil {
		context.Put("approval", fmt.Appendf(nil, `{"id":%q}`, id))
	}
	if evaluation.Context, err = context.Encode(); err != nil {
		return err
	}
	body, err := json.Marshal(&evaluation)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

// open opens the service on what is on disk.
func (h *house) open() {
	h.t.Helper()
	log := slog.New(slog.NewTextHandler(h.t.Output(), nil))
	decides := enforce.NewPDP(enforce.PDPConfig{URL: h.url, Client: client.Config{Timeout: 20 * time.Second, Transport: h}, Failures: 1000})
	cfg := approval.Config{
		File: h.file, PDP: decides, Seal: h.key, Log: log, Settings: approval.Settings{PerCaller: 100, Limit: 1000, Refused: time.Hour, Wait: time.Minute},
		Definition: func(string, string) string { return h.digest() }, PassingMeta: []string{"trace/id"},
		Tasks: true,
	}
	cfg.Edited = func(ctx context.Context, c *enforce.Call, arguments jsontext.Value) (*enforce.Question, string, error) {
		return h.gate.Edited(ctx, c, arguments)
	}
	if h.cfg != nil {
		h.cfg(&cfg)
	}
	obligations := client.Obligations{authzen.ObligationCustom: enforce.OnResult}
	cfg.Checker = enforce.NewChecker(obligations, enforce.Denial{})
	var err error
	if h.service, err = approval.Open(cfg); err != nil {
		h.t.Fatal(err)
	}
	h.gate = enforce.New(enforce.Config{
		PDP: decides, Log: log, Obligations: obligations,
		Map: h.question,
		Tools: enforcetest.Tools{Find: func(_ context.Context, c *enforce.Call) (*enforce.Tool, error) {
			if h.misfit.Load() && bytes.Contains(c.Params.Arguments, []byte("bye")) {
				return nil, &enforce.Refusal{Data: enforce.Data{Reason: enforce.ReasonArguments}}
			}
			definition := jsontext.Value(`{"inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`)
			if other := h.definition.Load(); other != nil {
				definition = jsontext.Value(*other)
			}
			return &enforce.Tool{Definition: definition, Digest: h.digest(), Authorization: h.declared.Load()}, nil
		}},
		Tasks:       enforcetest.Tasks{Own: h.service.Own},
		PassingMeta: []string{"trace/id"},
		Approvals:   h.service,
		Requests:    h.service, MapRequest: h.requested, MapFulfil: fulfilment,
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		h.service.Run(ctx, func(_ context.Context, _ *enforce.Call, m *wire.Message) (*wire.Message, error) {
			h.executed.Add(1)
			h.ran.Store(m)
			answer := jsontext.Value(`{"content":[]}`)
			if h.answer != nil {
				answer = h.answer
			}
			return &wire.Message{ID: jsontext.Value("1"), Result: answer}, nil
		})
	})
	h.close = sync.OnceValue(func() error {
		stop()
		running.Wait()
		return nil
	})
}

// rewrite changes the one call that a closed service has kept, and keeps it in
// clear.
func (h *house) rewrite(change func(text string) string) {
	h.t.Helper()
	db, err := bbolt.Open(h.file, 0o600, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		calls := tx.Bucket([]byte("calls"))
		handle, sealed := calls.Cursor().First()
		var text jsontext.Value
		if err := h.key.Open("record", string(sealed), &text); err != nil {
			return err
		}
		return calls.Put(handle, []byte(change(string(text))))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// question asks about the tool and, of move, about the drawers that its
// arguments name.
func (h *house) question(c *enforce.Call) (*enforce.Question, error) {
	tool := &authzen.EvaluationRequest{
		Subject: c.Caller.Subject, Action: authzen.Action{Name: c.Message.Method}, Resource: authzen.Resource{Type: "tool", ID: c.Params.Name},
	}
	if h.banned.Load() {
		tool.Context = fmt.Appendf(nil, `{"read":%s}`, c.Params.Arguments)
	}
	if c.Params.Name != "move" {
		return &enforce.Question{Evaluation: tool}, nil
	}
	var arguments struct {
		Drawers []string       `json:"drawers"`
		As      string         `json:"as"` // whom the drawers are opened for
		Show    jsontext.Value `json:"show"`
	}
	if err := json.Unmarshal(c.Params.Arguments, &arguments); err != nil {
		return nil, err
	}
	all := []*authzen.EvaluationRequest{tool}
	for _, drawer := range arguments.Drawers {
		open := &authzen.EvaluationRequest{Subject: authzen.Subject{Type: "user", ID: cmp.Or(arguments.As, c.Caller.Subject.ID)}, Action: authzen.Action{Name: "open"}, Resource: authzen.Resource{Type: "drawer", ID: drawer}}
		if arguments.Show != nil {
			open.Context = fmt.Appendf(nil, `{"arguments":%s}`, arguments.Show)
		}
		all = append(all, open)
	}
	if h.fewer.Load() {
		all = all[len(all)-1:]
	}
	batch := new(authzen.EvaluationsRequest)
	for _, request := range all {
		item, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		batch.Evaluations = append(batch.Evaluations, item)
	}
	return &enforce.Question{Evaluations: batch}, nil
}

// requested asks about the tool of a request.
func (h *house) requested(c *enforce.Call) (*enforce.Question, error) {
	question, err := h.question(c)
	if err != nil {
		return nil, err
	}
	question.Evaluation.Action.Name = "tools/request"
	return question, nil
}

// fulfilment asks whether a caller may fulfil a request.
func fulfilment(c *enforce.Call, r *enforce.Request) (*authzen.EvaluationRequest, error) {
	return &authzen.EvaluationRequest{
		Subject: c.Caller.Subject, Action: authzen.Action{Name: "tools/fulfil"}, Resource: authzen.Resource{Type: "tool_request", ID: r.ID},
	}, nil
}

func (h *house) digest() string {
	if d := h.current.Load(); d != nil {
		return *d
	}
	return "sha256:1"
}

// restart closes the service and opens it again.
func (h *house) restart() {
	h.t.Helper()
	if err := h.close(); err != nil {
		h.t.Fatal(err)
	}
	h.open()
}

// A said is what the client is told.
type said struct {
	disposition *enforce.Disposition
	enforce.Data
	Result struct {
		Request     string `json:"requestId"`
		FulfilledBy string `json:"fulfilledBy"`
		Requester   string `json:"originalRequester"`
		Content     string `json:"content"`
		Type        string `json:"resultType"`
		State       string `json:"requestState"`
		Task        string `json:"taskId"`
		Status      string `json:"status"`
		Inputs      map[string]struct {
			Method string `json:"method"`
			Params struct {
				Mode    string `json:"mode"`
				URL     string `json:"url"`
				Message string `json:"message"`
			} `json:"params"`
		} `json:"inputRequests"`
	}
}

// goes reports whether the call goes on.
func (s *said) goes() bool { return s.disposition.Forward != nil }

const (
	forms = `{"elicitation":{"form":{}}}`
	pages = `{"elicitation":{"url":{}}}`
	polls = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// A sent is a stateless call of write by alice, but for what it says.
type sent struct {
	as, tool, args, caps string
	rest                 string // further members of params, each after a comma
	meta                 string // further members of _meta, each after a comma
	method               string
	tenant               string
	server               string         // "" is desk
	claims               map[string]any // of the token
	client               enforce.Client
	ctx                  context.Context
}

// await waits for what another goroutine, or the PDP, is about to do.
func (h *house) await(done func() bool) {
	h.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(30 * time.Second); !done(); <-look.C {
		if time.Now().After(deadline) {
			h.t.Fatal("it does not happen")
		}
	}
}

func (h *house) send(c sent) *said {
	h.t.Helper()
	if c.as == "" {
		c.as = "alice"
	}
	if c.tool == "" {
		c.tool = "write"
	}
	if c.args == "" {
		c.args = `{"text":"hello"}`
	}
	if c.method == "" {
		c.method = "tools/call"
	}
	if c.ctx == nil {
		c.ctx = h.t.Context()
	}
	caps := c.caps
	if caps == "" {
		caps = "{}"
	}
	rest := c.rest
	if c.method == "tools/call" || c.method == "tools/request" {
		rest = fmt.Sprintf(`,"name":%q,"arguments":%s`, c.tool, c.args) + rest
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s%s}%s}}`, c.method, caps, c.meta, rest)
	m, err := wire.Parse([]byte(body))
	if err != nil {
		h.t.Error(err)
		return nil
	}
	params, err := m.Read()
	if err != nil {
		h.t.Error(err)
		return nil
	}
	call := &enforce.Call{
		Server: cmp.Or(c.server, "desk"), Caller: &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: c.as}, Tenant: c.tenant, Claims: c.claims}, Message: m, Params: params, RequestID: "r",
		Stateless: c.client == nil, Capabilities: params.Meta.Capabilities, Client: c.client,
	}
	out := &said{disposition: h.gate.Judge(c.ctx, call)}
	if answer := out.disposition.Answer; answer != nil && answer.Error != nil {
		var read struct {
			Data enforce.Data `json:"data"`
		}
		err = json.Unmarshal(answer.Error, &read)
		out.Data = read.Data
	} else if answer != nil {
		err = json.Unmarshal(answer.Result, &out.Result)
	}
	if err != nil {
		h.t.Error(err)
	}
	return out
}

// decide has a person decide on a task. The status is that of the PDP's answer.
func (h *house) decide(task, decision, approver string) int {
	h.t.Helper()
	return h.post("/admin/v1/requests/"+task+"/decision", fmt.Appendf(nil, `{"decision":%q,"approver":{"type":"user","id":%q}}`, decision, approver))
}

// post asks the admin listener of the PDP.
func (h *house) post(path string, body []byte) int {
	h.t.Helper()
	response, err := http.Post(h.admin+path, "application/json", bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func (h *house) approve(tasks ...string) {
	h.t.Helper()
	for _, task := range tasks {
		if status := h.decide(task, "approve", "carol"); status != http.StatusOK {
			h.t.Fatalf("the approval is answered %d", status)
		}
	}
}

// race has a call that is approved come so often at once. One of them goes on;
// the others are refused, or wait for other tasks.
func (h *house) race(c sent, times int, task string) {
	h.t.Helper()
	var went atomic.Int32
	var all sync.WaitGroup
	for range times {
		all.Go(func() {
			s := h.send(c)
			for s.Reason == enforce.ReasonPDP { // it has too much to do
				s = h.send(c)
			}
			switch {
			case s.goes():
				went.Add(1)
			case s.Reason != enforce.ReasonSettled && (s.Reason != enforce.ReasonPending || s.Task == task):
				h.t.Errorf("%+v", s.Data)
			}
		})
	}
	all.Wait()
	if n := went.Load(); n != 1 {
		h.t.Errorf("%d of %d went", n, times)
	}
}

// tasks lists the tasks that wait at the PDP.
func (h *house) tasks() (ids []string) {
	h.t.Helper()
	var list struct {
		Requests []struct {
			ID string `json:"id"`
		} `json:"requests"`
	}
	h.get("/admin/v1/requests?status=pending", &list)
	for _, r := range list.Requests {
		ids = append(ids, r.ID)
	}
	return ids
}

// revoke takes the approval of a task back.
func (h *house) revoke(task string) {
	h.t.Helper()
	var request struct {
		Items []struct {
			Approval struct {
				ID string `json:"id"`
			} `json:"approval"`
		} `json:"items"`
	}
	h.get("/admin/v1/requests/"+task, &request)
	status := h.post("/admin/v1/approvals/"+request.Items[0].Approval.ID+"/revoke", []byte(`{"approver":{"type":"user","id":"carol"},"reason":"no more"}`))
	if status != http.StatusOK {
		h.t.Fatalf("the revocation is answered %d", status)
	}
}

func (h *house) get(path string, answer any) {
	h.t.Helper()
	response, err := http.Get(h.admin + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.UnmarshalRead(response.Body, answer); err != nil {
		h.t.Fatal(err)
	}
}

// newKey returns a key.
func newKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}
