package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

var (
	unionSoak = flag.Duration("union.soak", 10*time.Second, "how long TestUnionSoak calls")
	unionHeap = flag.String("union.heap", "", "directory for a profile of the gateway's heap each minute of TestUnionSoak")
)

// Of TestUnionSoak.
const (
	soakServers  = 10
	soakSessions = 100
	fewSessions  = 20 // of a soak below longSoak, in which a loaded machine begins few
	longSoak     = time.Minute
	killInterval = 2 * time.Second
	// patience is how long a call may take that has an answer.
	patience = 40 * time.Second
	// From enoughSoak on, what is in memory after a garbage collection must not grow by
	// more than maxGrowth bytes a minute in the last half. It swings with the streams
	// that wait for killed servers. The trail takes about 1 MiB for the pages of a
	// segment, 17 minutes long at 140 calls a second, and begins anew with the next one.
	enoughSoak = 10 * time.Minute
	maxGrowth  = 512 << 10
	// Once all sessions have ended, a gateway has at most maxLeft bytes more in memory
	// than one that has just started: for as many calls as there were, this finds less
	// growth. A connection to a server is closed after idleTime.
	maxLeft  = 5 << 20
	idleTime = 2 * time.Minute
)

// A tally counts how often each call was carried out, by its id.
type tally struct {
	mu  sync.Mutex
	ran map[string]int
}

func (c *tally) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran[id]++
}

// of returns how often a call was carried out.
func (c *tally) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran[id]
}

// A soak is many clients of one endpoint, while parts of it are killed.
type soak struct {
	t       *testing.T
	url     string
	tally   tally
	servers []*mortal
	pdp     *exec.Cmd
	pdpAt   string
	home    string
	config  string
	address string
	heapAt  string
	begun   time.Time
	mu      sync.Mutex
	gateway *exec.Cmd

	asked, succeeded, failed, lost, lists, kills atomic.Int64
}

// Clients of one endpoint over ten servers call tools while a server, the PDP or the
// gateway is killed every other second: no call runs twice, each has an answer, and
// the gateway does not grow.
func TestUnionSoak(t *testing.T) {
	s := newSoak(t)
	ctx, stop := context.WithTimeout(t.Context(), *unionSoak)
	defer stop()
	var running sync.WaitGroup
	sessions := soakSessions
	if *unionSoak < longSoak {
		sessions = fewSessions
	}
	for i := range sessions {
		running.Go(func() { s.client(ctx, i) })
	}
	running.Go(func() { s.kill(ctx) })
	heaps := s.sample(ctx)
	running.Wait()
	t.Logf("%d sessions, %s: %d calls, %d succeeded, %d failed, %d without an answer; %d lists, %d kills",
		sessions, *unionSoak, s.asked.Load(), s.succeeded.Load(), s.failed.Load(), s.lost.Load(), s.lists.Load(), s.kills.Load())
	if s.lost.Load() > 0 || s.succeeded.Load() == 0 || *unionSoak >= longSoak && s.succeeded.Load() < s.failed.Load() {
		t.Error("calls have no answer, or most fail")
	}
	if *unionSoak >= enoughSoak {
		s.checkMemory(heaps)
	}
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	for id, n := range s.tally.ran {
		if n > 1 {
			t.Errorf("the call %s ran %d times", id, n)
		}
	}
	s.checkTrail()
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, tally: tally{ran: make(map[string]int)}, pdpAt: docpage.FreeAddress(t), address: docpage.FreeAddress(t), heapAt: docpage.FreeAddress(t), home: t.TempDir()}
	write(t, filepath.Join(s.home, "store", "all.cedar"), `@id("all") permit (principal, action, resource);`)
	s.startPDP()
	var names, servers strings.Builder
	for i := range soakServers {
		m := newMortal(t, i%2 == 0, func(server *mcp.Server) {
			type in struct {
				ID string `json:"id"`
			}
			mcp.AddTool(server, &mcp.Tool{Name: "run"}, func(ctx context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
				s.tally.add(in.ID)
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond) // some are killed meanwhile
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran " + in.ID}}}, nil, nil
			})
		})
		m.start()
		s.servers = append(s.servers, m)
		fmt.Fprintf(&names, "s%d, ", i)
		fmt.Fprintf(&servers, "  - {name: s%d, url: %q}\n", i, "http://"+m.address)
	}
	s.config, s.url = filepath.Join(s.home, "gateway.yaml"), "http://"+s.address+"/mcp"
	write(t, s.config, fmt.Sprintf("listen: %s\nstate: %s\npdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nendpoints: [{path: /mcp, servers: [%s]}]\nservers:\n%s",
		s.address, filepath.Join(s.home, "state"), "http://"+s.pdpAt, strings.TrimSuffix(names.String(), ", "), &servers))
	s.startGateway()
	s.begun = time.Now()
	return s
}

func (s *soak) startGateway() {
	c := exec.Command("measured", "serve", "--config", s.config)
	c.Env = append(os.Environ(), heapAddress+"="+s.heapAt)
	background(s.t, c, s.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateway = c
}

func (s *soak) running() *exec.Cmd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateway
}

func (s *soak) killGateway() {
	c := s.running()
	_ = c.Process.Kill()
	_ = c.Wait()
}

func (s *soak) startPDP() {
	dir, err := policyService()
	if err != nil {
		s.t.Error(err)
		return
	}
	s.pdp = exec.Command(filepath.Join(dir, "policy-service"), "serve", "--policies", filepath.Join(s.home, "store"),
		"--state", filepath.Join(s.home, "pdp"), "--listen", s.pdpAt, "--admin-listen", "127.0.0.1:0")
	background(s.t, s.pdp, s.pdpAt)
}

// kill kills something every other second, and starts it again. The gateway is
// killed in the first quarter: later its memory is measured.
func (s *soak) kill(ctx context.Context) {
	gateways := 0
	for tick := time.Tick(killInterval); ; {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		s.kills.Add(1)
		switch n := rand.IntN(10); {
		case gateways == 0 || n == 0 && time.Since(s.begun) < *unionSoak/4:
			gateways++
			s.killGateway()
			s.startGateway()
		case n <= 1:
			_ = s.pdp.Process.Kill()
			_ = s.pdp.Wait()
			s.startPDP()
		default:
			m := s.servers[rand.IntN(len(s.servers))]
			m.kill()
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond) // some find it dead
			m.start()
		}
	}
}

// client calls tools in a session of its own, with its stream open.
func (s *soak) client(ctx context.Context, i int) {
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	session := s.begin(ctx, web)
	var streaming sync.WaitGroup
	defer s.end(web, session)
	defer streaming.Wait()
	streaming.Go(func() { s.stream(ctx, web, session) })
	for n := 0; ctx.Err() == nil; n++ {
		if n%20 == 0 {
			_, _ = s.post(web, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
			s.lists.Add(1)
		}
		s.call(web, session, rand.IntN(soakServers), fmt.Sprintf("%d-%d", i, n))
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond)
	}
}

// begin begins a session, as soon as the gateway lets it.
func (s *soak) begin(ctx context.Context, web *http.Client) string {
	for ctx.Err() == nil {
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
		request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if response, err := web.Do(request); err == nil {
			response.Body.Close()
			if session := response.Header.Get("Mcp-Session-Id"); session != "" {
				return session
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ""
}

// end ends a session.
func (s *soak) end(web *http.Client, session string) {
	request, _ := http.NewRequestWithContext(context.Background(), http.MethodDelete, s.url, nil)
	request.Header = http.Header{"Mcp-Session-Id": {session}}
	if response, err := web.Do(request); err == nil {
		response.Body.Close()
	}
}

// stream keeps the stream of a session open.
func (s *soak) stream(ctx context.Context, web *http.Client, session string) {
	for ctx.Err() == nil {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
		request.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {session}}
		if response, err := web.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// call makes a call, and counts its answer. A connection that breaks with the
// gateway is one: the client knows.
func (s *soak) call(web *http.Client, session string, server int, id string) {
	s.asked.Add(1)
	begun := time.Now()
	answer, err := s.post(web, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"s%d__run","arguments":{"id":%q}}}`, id, server, id))
	ran := s.tally.of(id)
	switch {
	case strings.Contains(answer, `"text":"ran `+id+`"`):
		s.succeeded.Add(1)
		if ran != 1 {
			s.t.Errorf("the call %s succeeded, and ran %d times", id, ran)
		}
	case time.Since(begun) > patience, err == nil && !strings.Contains(answer, `"error"`) && !strings.Contains(answer, `"isError":true`):
		s.lost.Add(1)
		s.t.Errorf("the call %s has no answer after %s: %q, %v", id, time.Since(begun), answer, err)
	default:
		s.failed.Add(1)
	}
}

func (s *soak) post(web *http.Client, session, message string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(message))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {session}}
	response, err := web.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// checkMemory checks that the memory of the gateway does not grow, and that nothing
// stays of sessions that have ended.
func (s *soak) checkMemory(all []heap) {
	s.t.Helper()
	growth := slope(all, func(h heap) int64 { return h.Live })
	s.t.Logf("in the last half, live memory grows by %.3f MiB a minute, stacks by %.3f, resident memory by %.3f", growth/(1<<20),
		slope(all, func(h heap) int64 { return h.Stacks })/(1<<20), slope(all, func(h heap) int64 { return int64(h.resident) })/(1<<20))
	if growth > maxGrowth {
		s.t.Errorf("memory grows by more than %d bytes a minute", maxGrowth)
	}
	time.Sleep(idleTime)
	left, err := s.heap()
	if err != nil {
		s.t.Fatal(err)
	}
	s.saveProfile("left.pb.gz")
	s.killGateway()
	s.startGateway()
	fresh, err := s.heap()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("after all sessions: %s; a gateway that has just started: %s", left, fresh)
	if left.Live-fresh.Live > maxLeft {
		s.t.Errorf("more than %d bytes are left of sessions that have ended", maxLeft)
	}
}

// checkTrail verifies the audit trail: every call has an outcome.
func (s *soak) checkTrail() {
	s.t.Helper()
	s.killGateway()
	s.startGateway() // it gives an outcome to the calls before
	s.killGateway()
	trail := filepath.Join(filepath.Dir(s.config), "state", "trail")
	if out, err := policyServiceCommand(s.t, "log", "verify", "--state", trail); err != nil {
		s.t.Errorf("%v\n%s", err, out)
	}
	out, err := policyServiceCommand(s.t, "log", "export", "--state", trail)
	if err != nil {
		s.t.Fatal(err)
	}
	if calls, ends := strings.Count(out, `"gateway.call"`), strings.Count(out, `"gateway.outcome"`); calls != ends || calls == 0 {
		s.t.Errorf("%d calls have %d outcomes", calls, ends)
	}
}
