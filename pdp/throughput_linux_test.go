package pdp_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	throughputRounds = flag.Int("throughput.rounds", 0, "rounds in which TestThroughput measures everything; 0 is a few of the most telling")
	throughputSlice  = flag.Duration("throughput.slice", 500*time.Millisecond, "how long a round measures each")
	throughputJSON   = flag.String("throughput.json", "", "file for the measurements as JSON")
)

// A floor is a server that does less than the service, or the service without
// its log. Each is a process of its own: this test binary.
type floor func(policies int) (http.Handler, error)

var floors = map[string]floor{
	"net/http":  func(int) (http.Handler, error) { return http.HandlerFunc(constantly), nil },
	"echo":      bareEcho,
	"cedar-go":  cedarLoop,
	"ours, off": func(policies int) (http.Handler, error) { return pdp.NewUnlogged(numbered(policies)) },
}

const floorEnv = "PDP_TEST_FLOOR"

func TestMain(m *testing.M) {
	serve, found := floors[os.Getenv(floorEnv)]
	if !found {
		os.Exit(m.Run())
	}
	if err := runFloor(serve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runFloor serves until the process is killed.
func runFloor(serve floor) error {
	policies, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	handler, err := serve(policies)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listening on http://%s (admin none)\n", listener.Addr())
	return pdp.NewServer(handler, slog.New(slog.DiscardHandler)).Serve(listener)
}

// constantly reads a body and answers what does not depend on it: nothing over
// HTTP can be faster.
func constantly(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"decision":true}`) // who asked is gone
}

// bareEcho is the same over echo.
func bareEcho(int) (http.Handler, error) {
	router := echo.New()
	router.POST(authzen.PathEvaluation, func(c echo.Context) error {
		if _, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, 1<<20)); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(`{"decision":true}`))
	})
	return router, nil
}

// cedarLoop is what one writes in an hour: it reads what it needs of a request,
// has cedar-go try every policy, and keeps no log.
func cedarLoop(policies int) (http.Handler, error) {
	store := numbered(policies)
	source, err := fs.ReadFile(store, "users.cedar")
	if err != nil {
		return nil, err
	}
	set, err := cedar.NewPolicySetFromBytes("users.cedar", source)
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(store, "entities.json")
	if err != nil {
		return nil, err
	}
	var entities cedar.EntityMap
	if err := json.Unmarshal(text, &entities); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Subject, Resource struct{ Type, ID string }
			Action            struct{ Name string }
		}
		if err := json.UnmarshalRead(r.Body, &asked, json.MatchCaseInsensitiveNames(true)); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		decision, _ := cedar.Authorize(set, entities, cedar.Request{
			Principal: cedar.NewEntityUID(cedar.EntityType(asked.Subject.Type), cedar.String(asked.Subject.ID)),
			Action:    cedar.NewEntityUID("Action", cedar.String(asked.Action.Name)),
			Resource:  cedar.NewEntityUID(cedar.EntityType(asked.Resource.Type), cedar.String(asked.Resource.ID)),
		})
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"decision":%t}`, bool(decision))
	}), nil
}

// An asked is a request, and what it is answered.
type asked struct {
	name, path, body, answer string
	decisions                int
}

var (
	askedSingle = asked{"single", authzen.PathEvaluation, benchBody, `{"decision":true}`, 1}
	askedBatch  = asked{
		"batch of 50", authzen.PathEvaluations,
		benchBody[:len(benchBody)-1] + `,"evaluations":[` + strings.Repeat(`{},`, 49) + `{}]}`,
		`{"evaluations":[` + strings.Repeat(`{"decision":true},`, 49) + `{"decision":true}]}`, 50,
	}
	askedSearch = asked{
		"search", authzen.PathSearchResource,
		`{"subject":{"type":"user","id":"user-3"},"action":{"name":"read"},"resource":{"type":"record"},"context":{"time":"2026-11-20T09:30:00Z"}}`,
		`{"results":[{"type":"record","id":"record-1"}]}`, 1,
	}
)

// A row is what is measured of a server by a number of clients.
type row struct {
	Server   string `json:"server"`
	Policies int    `json:"policies"`
	Asked    string `json:"asked"`
	Clients  int    `json:"clients"`

	Ratio     float64 `json:"ratio"`            // of requests a second, to echo's in the same round; the median
	Requests  float64 `json:"requests_per_s"`   // of all rounds
	P50       float64 `json:"p50_ms"`           //
	P99       float64 `json:"p99_ms"`           //
	CPU       float64 `json:"cpu_us"`           // of the server, a request
	Allocs    float64 `json:"allocs,omitzero"`  // a request, where the server tells
	RSS       int64   `json:"rss_mib,omitzero"` // at the end
	ColdStart float64 `json:"cold_start_ms"`    // from its start to its first answer

	asked  asked
	server *measured
	load   *load
	rates  []float64 // by round
	cpu    time.Duration
	allocs float64
}

func (r *row) name() string {
	return fmt.Sprintf("%s, %d policies, %s, %d clients", r.Server, r.Policies, r.Asked, r.Clients)
}

// A measured is a server process.
type measured struct {
	address, admin string
	pid            int
	coldStart      time.Duration
}

// A bench measures rows, in rounds in which they take turns: what else the
// machine does meets them all.
type bench struct {
	t       *testing.T
	dir     string
	plain   string // this test binary, without the race detector
	program string // the program itself
	servers map[string]*measured
	rows    []*row
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), servers: map[string]*measured{}}
	b.plain, b.program = filepath.Join(b.dir, "floors"), filepath.Join(b.dir, "policy-service")
	b.build("test", "-c", "-o", b.plain, ".")
	b.build("build", "-o", b.program, "../cmd/policy-service")
	return b
}

func (b *bench) build(args ...string) {
	b.t.Helper()
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "GOFLAGS=") // no race detector
	if out, err := command.CombinedOutput(); err != nil {
		b.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// add adds a row.
func (b *bench) add(server string, policies int, a asked, clients int) {
	b.t.Helper()
	key := fmt.Sprint(server, policies)
	if b.servers[key] == nil {
		b.servers[key] = b.start(server, policies)
	}
	s := b.servers[key]
	b.rows = append(b.rows, &row{
		Server: server, Policies: policies, Asked: a.name, Clients: clients,
		ColdStart: milliseconds(s.coldStart), asked: a, server: s, load: newLoad(s.address, clients, a),
	})
}

// start starts a server and has it answer once.
func (b *bench) start(server string, policies int) *measured {
	b.t.Helper()
	command := exec.Command(b.plain, strconv.Itoa(policies))
	command.Env = append(os.Environ(), floorEnv+"="+server)
	if durability, found := strings.CutPrefix(server, "ours, "); found && floors[server] == nil {
		dir := filepath.Join(b.dir, server, strconv.Itoa(policies))
		if err := os.CopyFS(filepath.Join(dir, "policies"), numbered(policies)); err != nil {
			b.t.Fatal(err)
		}
		command = exec.Command(b.program, "serve", "--policies", filepath.Join(dir, "policies"), "--state", filepath.Join(dir, "state"),
			"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--durability", durability)
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	m := &measured{pid: command.Process.Pid}
	lines := bufio.NewScanner(stderr)
	for m.address == "" && lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "listening on http://%s (admin %s", &m.address, &m.admin); n == 0 {
			b.t.Log(lines.Text())
		}
	}
	go io.Copy(io.Discard, stderr)
	m.admin = strings.TrimSuffix(m.admin, ")")
	one := newLoad(m.address, 1, askedSingle)
	if err := one.connections[0].ask(); err != nil {
		b.t.Fatal(err)
	}
	m.coldStart = time.Since(began)
	return m
}

// round measures every row once, and a lone commit of a log.
func (b *bench) round(slice time.Duration, commits *commits) {
	b.t.Helper()
	for _, r := range b.rows {
		before, cpu, allocs := len(r.load.latencies), r.server.cpu(b.t), r.server.allocs(b.t)
		elapsed := r.load.elapsed
		r.load.run(b.t, slice)
		r.rates = append(r.rates, float64(len(r.load.latencies)-before)/(r.load.elapsed-elapsed).Seconds())
		r.cpu += r.server.cpu(b.t) - cpu
		r.allocs += r.server.allocs(b.t) - allocs
	}
	commits.run(b.t, slice)
}

// conclude fills in the rows.
func (b *bench) conclude() {
	echoes := map[int]*row{}
	for _, r := range b.rows {
		if r.Server == "echo" {
			echoes[r.Clients] = r
		}
	}
	for _, r := range b.rows {
		ratios := make([]float64, len(r.rates))
		for i, rate := range r.rates {
			ratios[i] = rate / echoes[r.Clients].rates[i]
		}
		slices.Sort(ratios)
		n := float64(len(r.load.latencies))
		r.Ratio, r.Requests = ratios[len(ratios)/2], r.load.rate()
		r.P50, r.P99 = milliseconds(quantile(r.load.latencies, 0.5)), milliseconds(quantile(r.load.latencies, 0.99))
		r.CPU, r.Allocs, r.RSS = float64(r.cpu.Microseconds())/n, r.allocs/n, r.server.rss(b.t)
	}
}

// table writes the rows in Markdown.
func (b *bench) table() string {
	var out strings.Builder
	out.WriteString("\n| server | policies | asked | clients | ratio | requests/s | p50 ms | p99 ms | CPU µs | allocs | RSS MiB | cold start ms |\n|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range b.rows {
		fmt.Fprintf(&out, "| %s | %d | %s | %d | %.2f | %.0f | %.2f | %.2f | %.1f | %.0f | %d | %.0f |\n",
			r.Server, r.Policies, r.Asked, r.Clients, r.Ratio, r.Requests, r.P50, r.P99, r.CPU, r.Allocs, r.RSS, r.ColdStart)
	}
	return out.String()
}

// cpu is how much processor time the process has had.
func (m *measured) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if err := cmp.Or(errUser, errSystem); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100)
}

// rss is how much memory the process has, in MiB.
func (m *measured) rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", m.pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize()) >> 20
}

// allocs is how much the process has allocated, or 0 where it does not tell.
func (m *measured) allocs(t *testing.T) float64 {
	t.Helper()
	if m.admin == "none" {
		return 0
	}
	_, page := get(t, m.admin+"/metrics")
	for line := range strings.Lines(page) {
		if value, found := strings.CutPrefix(line, "go_memstats_mallocs_total "); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// commits are appends to a strict log of their own, one after the other.
type commits struct {
	log       *decisionlog.Log
	latencies []time.Duration
}

func newCommits(t testing.TB) *commits {
	t.Helper()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &commits{log: log}
}

func (c *commits) run(t testing.TB, duration time.Duration) {
	t.Helper()
	for started, before := time.Now(), time.Now(); before.Sub(started) < duration; before = time.Now() {
		err := c.log.Append(context.Background(), &decisionlog.Entry{
			ID: "commit", Time: before, Kind: decisionlog.KindEvaluation, Request: jsontext.Value(benchBody), Result: new(decisionlog.Result),
		})
		if err != nil {
			t.Fatal(err)
		}
		c.latencies = append(c.latencies, time.Since(before))
	}
}

// A groupCommit is as little as a log can be that writes and flushes together
// what callers have at the same time: no form, no hashes, no reader.
type groupCommit struct {
	file *os.File
	mu   sync.Mutex
	at   int64
	next []byte
	done chan struct{} // closed once next is on disk

	latencies []time.Duration
	elapsed   time.Duration
}

// groupBytes is where the file begins again, so that it does not grow.
const groupBytes = 4 << 20

func newGroupCommit(t *testing.T) *groupCommit {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "group"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, groupBytes+1<<20)); err != nil {
		t.Fatal(err)
	}
	return &groupCommit{file: file, done: make(chan struct{})}
}

// run has so many callers write lines, each once the one before is on disk.
func (g *groupCommit) run(t *testing.T, duration time.Duration, callers int) {
	t.Helper()
	line := []byte(strings.Repeat("x", 600))
	stop := make(chan struct{})
	var flusher, writers sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := g.flush(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	started := time.Now()
	took := make([][]time.Duration, callers)
	for i := range callers {
		writers.Go(func() {
			for before := time.Now(); before.Sub(started) < duration; before = time.Now() {
				g.mu.Lock()
				g.next = append(g.next, line...)
				done := g.done
				g.mu.Unlock()
				<-done
				took[i] = append(took[i], time.Since(before))
			}
		})
	}
	writers.Wait()
	g.elapsed += time.Since(started)
	close(stop)
	flusher.Wait()
	g.latencies = append(g.latencies, slices.Concat(took...)...)
}

func (g *groupCommit) flush() error {
	g.mu.Lock()
	batch, done := g.next, g.done
	g.next, g.done = nil, make(chan struct{})
	g.mu.Unlock()
	if len(batch) == 0 {
		runtime.Gosched()
		return nil
	}
	if g.at > groupBytes {
		g.at = 0
	}
	if _, err := g.file.WriteAt(batch, g.at); err != nil {
		return err
	}
	g.at += int64(len(batch))
	err := syscall.Fdatasync(int(g.file.Fd()))
	close(done)
	return err
}

// usual is what make bench has measured on two quiet processors: the ratio of
// requests a second to a bare echo handler's, and allocations a request.
var usual = map[string]struct{ ratio, allocs float64 }{
	"ours, strict, 10 policies, single, 32 clients":      {0.37, 94},
	"ours, strict, 10000 policies, single, 32 clients":   {0.36, 94},
	"ours, strict, 10 policies, batch of 50, 32 clients": {0.07, 2246},
	"ours, strict, 10 policies, search, 32 clients":      {0.33, 112},
}

// check holds a row to what it usually is: worse by a third is a mistake. Where
// others work, too, their turns make the ratio what it is, and only allocations
// count.
func (r *row) check(t *testing.T, quiet bool) {
	t.Helper()
	want, known := usual[r.name()]
	if !known {
		return
	}
	if r.Allocs > want.allocs*4/3 {
		t.Errorf("%s: %.0f allocations, usually %.0f", r.name(), r.Allocs, want.allocs)
	}
	if quiet && r.Ratio < want.ratio*2/3 {
		t.Errorf("%s: %.2f of a bare echo handler, usually %.2f", r.name(), r.Ratio, want.ratio)
	}
}

// quiet reports whether the machine has had little to do.
func quiet(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		t.Fatal(err)
	}
	return load <= float64(runtime.NumCPU())
}

// TestThroughput measures the service beside floors, all of them processes of
// their own, in rounds that take turns. Short, it holds that nothing has become
// worse by a third; make bench measures at length.
func TestThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures time")
	}
	rounds, slice := *throughputRounds, *throughputSlice
	long := rounds > 0
	if !long {
		rounds, slice = 5, 100*time.Millisecond
	}
	b := newBench(t)
	b.add("echo", 0, askedSingle, 32)
	if long {
		b.add("net/http", 0, askedSingle, 32)
		for _, policies := range []int{10, 1000, 10_000} {
			for _, server := range []string{"cedar-go", "ours, strict", "ours, batched", "ours, off"} {
				b.add(server, policies, askedSingle, 32)
			}
		}
		b.add("echo", 0, askedSingle, 256)
		b.add("ours, strict", 10, askedSingle, 256)
		b.add("ours, batched", 10, askedSingle, 256)
	} else {
		b.add("ours, strict", 10, askedSingle, 32)
		b.add("ours, strict", 10_000, askedSingle, 32)
	}
	b.add("ours, strict", 10, askedBatch, 32)
	b.add("ours, strict", 10, askedSearch, 32)
	wasQuiet := quiet(t) // before it measures
	alone, group, flush := newCommits(t), newGroupCommit(t), newGroupCommit(t)
	for range rounds {
		b.round(slice, alone)
		group.run(t, slice, 32)
		flush.run(t, slice, 1)
	}
	b.conclude()
	t.Log(b.table())
	for name, took := range map[string][]time.Duration{"a lone entry": alone.latencies, "a bare write and flush": flush.latencies} {
		t.Logf("%s: p50 %.2f ms, p99 %.2f ms", name, milliseconds(quantile(took, 0.5)), milliseconds(quantile(took, 0.99)))
	}
	t.Logf("a bare group commit, 32 callers: %.0f lines/s, p50 %.2f ms, p99 %.2f ms", float64(len(group.latencies))/group.elapsed.Seconds(),
		milliseconds(quantile(group.latencies, 0.5)), milliseconds(quantile(group.latencies, 0.99)))
	if *throughputJSON != "" {
		text, err := json.Marshal(b.rows, jsontext.Multiline(true))
		if err := errors.Join(err, os.WriteFile(*throughputJSON, text, 0o600)); err != nil {
			t.Error(err)
		}
	}
	for _, r := range b.rows {
		r.check(t, wasQuiet)
	}
}
