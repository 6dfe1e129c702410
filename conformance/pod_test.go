package conformance_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var podFull = flag.Bool("pod.full", false, "attack the pod at full length, and hold what is promised of the time that decisions take")

const (
	// podMemory is the limit of the pod's memory in bytes. Nothing else is in there.
	podMemory = 512 << 20
	// maxBeside is how long the slowest hundredth of decisions may take beside an
	// attack, and looseBeside what a machine may do that has much else to do.
	maxBeside   = 50 * time.Millisecond
	looseBeside = 3 * time.Second
	// podRate is how many decisions a second the tenant that keeps to the rules asks.
	podRate = 50
	// quiet is how long decisions are asked with nothing beside them.
	podQuiet = 2 * time.Second
)

// TestPod attacks the service as deploy/kubernetes runs it, in one way after the
// other, beside a tenant that keeps to the rules: the process stays, its memory is
// that of the pod, and every decision of that tenant is answered and in the log.
func TestPod(t *testing.T) {
	p := newPod(t)
	t.Run("nothing", func(t *testing.T) { p.row(t, "nothing", func() string { time.Sleep(podQuiet); return "" }) })
	for _, a := range podAttacks {
		t.Run(a.name, func(t *testing.T) { p.row(t, a.name, func() string { return a.run(p) }) })
	}
	p.end()
	t.Logf("\n| attack | what came back | p99 beside it | VmHWM |\n|---|---|--:|--:|\n%s", strings.Join(p.table, "\n"))
}

// A pod is the service with the settings of deploy/kubernetes, two tenants and
// their keys.
type pod struct {
	t      *testing.T
	server *server
	dir    string // of the policy store
	state  string
	scale  int // how many times as much as the short form
	steady *steady
	table  []string
	peak   int64
}

// The keys of the pod: of a tenant that attacks, of one that keeps to the rules,
// of a PEP of all tenants, and of who operates the service.
const (
	acmeKey     = "psk_acme"
	betaKey     = "psk_beta"
	operatorKey = "psk_operator"
)

func newPod(t *testing.T) *pod {
	t.Helper()
	all := manifests(t)
	settings := all["ConfigMap/policy-service-settings"].Data["config.yaml"]
	c := all["StatefulSet/policy-service"].Spec.Template.Spec.Containers[0]
	if c.Resources.Limits.Memory != "512Mi" {
		t.Fatalf("the pod has %s", c.Resources.Limits.Memory)
	}
	p := &pod{t: t, state: t.TempDir(), scale: 1}
	if *podFull {
		p.scale = 10
	}
	dir := t.TempDir()
	p.dir = filepath.Join(dir, "policies")
	place(t, filepath.Join(dir, "config.yaml"), podSettings(here(settings, dir, p.state)))
	for name, text := range newCertificate(t) {
		place(t, filepath.Join(dir, "tls", name), text)
	}
	for name, text := range podStore() {
		place(t, filepath.Join(p.dir, name), text)
	}
	process := exec.Command(podProgram(t), strings.Fields(strings.ReplaceAll(strings.Join(c.Args, " "), settingsDir, dir))...)
	process.Env = []string{"POLICY_SERVICE_PAGE_KEY=of-the-test"}
	for _, v := range c.Env {
		if v.Value != "" {
			process.Env = append(process.Env, v.Name+"="+v.Value)
		}
	}
	p.server = launch(t, process)
	p.steady = newSteady(p.server)
	return p
}

// podProgram builds the program as it is shipped, without the race detector: what
// that needs counts as memory.
func podProgram(t *testing.T) string {
	t.Helper()
	if err := look(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policy-service")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/policy-service").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

var podAuth = regexp.MustCompile(`(?m)^auth:\n  api_keys:\n`)

// podSettings are those of the pod for this host alone, with keys.
func podSettings(settings string) string {
	key := func(id, key, more string) string {
		return fmt.Sprintf("    - {id: %s, sha256: %x, %s}\n", id, sha256.Sum256([]byte(key)), more)
	}
	keys := key("acme", acmeKey, "tenants: [acme]") + key("beta", betaKey, "tenants: [beta]") +
		key("operator", operatorKey, "scopes: [admin, audit]")
	settings = podAuth.ReplaceAllString(settings, "${0}"+keys)
	return strings.ReplaceAll(settings, "0.0.0.0:", "127.0.0.1:")
}

// podStore has two tenants: acme, whose PEPs ask for approvals and search among
// many entities, and beta.
func podStore() map[string]string {
	var entities strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&entities, `,{"uid":{"type":"doc","id":"d%05d"},"attrs":{"n":%d},"parents":[]}`, i, i)
	}
	return map[string]string{
		"guard.cedar": `@id("guard") forbid (principal, action == Action::"never", resource);`,
		"tenants/acme/acme.cedar": `
@id("read") permit (principal, action == Action::"read", resource);
@id("write") @approval("sre") permit (principal, action == Action::"write", resource);
@id("scan") permit (principal, action == Action::"scan", resource) when { resource.n * 3 > 100 && resource.n * 7 < 90000 };`,
		"tenants/acme/config.yaml":   "approval_templates:\n  sre: {ttl: 15m}\n",
		"tenants/acme/entities.json": "[" + entities.String()[1:] + "]",
		"tenants/beta/beta.cedar":    betaPolicy(true),
	}
}

// betaPolicy is the policy of the tenant that keeps to the rules, before or after
// its last change.
func betaPolicy(before bool) string {
	text := `@id("read") permit (principal, action == Action::"read", resource);`
	if before {
		return text
	}
	return text + "\n" + `@id("changed") permit (principal, action == Action::"changed", resource);`
}

// row runs an attack, beside which decisions are asked, and writes its row.
func (p *pod) row(t *testing.T, name string, attack func() string) {
	t.Helper()
	p.resetPeak()
	p.steady.begin()
	took := time.Now()
	back := attack()
	duration := time.Since(took).Round(10 * time.Millisecond)
	beside := p.steady.finish()
	peak := p.peakMemory()
	p.peak = max(p.peak, peak)
	p99 := percentile(beside.took, 99)
	p.table = append(p.table, fmt.Sprintf("| %s | %s in %v | %v of %d | %d MiB |", name, back, duration, p99, len(beside.took), peak>>20))
	t.Log(p.table[len(p.table)-1])
	select {
	case <-p.server.done:
		t.Fatalf("%s: the service has ended:\n%s", name, p.server.log())
	default:
	}
	for _, err := range beside.errs[:min(3, len(beside.errs))] {
		t.Errorf("%s: a decision beside it: %v (%d such)", name, err, len(beside.errs))
	}
	bound := looseBeside
	if *podFull {
		bound = maxBeside
	}
	if p99 > bound {
		t.Errorf("%s: decisions beside it took up to %v", name, p99)
	}
	if peak > podMemory {
		t.Errorf("%s: %d MiB of memory", name, peak>>20)
	}
}

// end ends the service in order, and holds that its log has every decision that
// was answered.
func (p *pod) end() {
	p.t.Helper()
	p.steady.close()
	p.server.end(p.t)
	reader, err := decisionlog.OpenReadOnly(p.state)
	must(p.t, err)
	defer reader.Close()
	logged := loggedIDs(p.t, reader)
	lost := 0
	for _, id := range p.steady.ids {
		if !logged[id] {
			lost++
		}
	}
	if lost > 0 || len(p.steady.ids) == 0 {
		p.t.Errorf("of %d decisions %d are not in the log", len(p.steady.ids), lost)
	}
	if _, err := decisionlog.Verify(p.t.Context(), p.state); err != nil {
		p.t.Error(err)
	}
	p.t.Logf("%d decisions of the tenant beside the attacks, all in the log; most memory %d MiB, 0 restarts", len(p.steady.ids), p.peak>>20)
}

var entryID = regexp.MustCompile(`"id":"([0-9a-f-]{36})"`)

// loggedIDs are the ids of all entries.
func loggedIDs(t *testing.T, reader *decisionlog.Reader) map[string]bool {
	t.Helper()
	lines, out := io.Pipe()
	go func() {
		_, err := reader.Export(t.Context(), out, 0, -1)
		out.CloseWithError(err)
	}()
	all := map[string]bool{}
	for in := bufio.NewReaderSize(lines, 64<<10); ; {
		line, err := in.ReadSlice('\n')
		if found := entryID.FindSubmatch(line[:min(len(line), 512)]); found != nil {
			all[string(found[1])] = true
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err == io.EOF {
			return all
		}
		must(t, err)
	}
}

// resetPeak has the kernel forget how much memory the service has had.
func (p *pod) resetPeak() {
	p.t.Helper()
	must(p.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.server.process.Process.Pid), []byte("5"), 0))
}

// peakMemory is how much it has had since (VmHWM).
func (p *pod) peakMemory() int64 {
	p.t.Helper()
	status := read(p.t, fmt.Sprintf("/proc/%d/status", p.server.process.Process.Pid))
	kib, err := strconv.ParseInt(submatches(`(?m)^VmHWM:\s+(\d+) kB$`, status)[0], 10, 64)
	must(p.t, err)
	return kib << 10
}

// A steady asks for decisions at a constant rate, however long they take.
type steady struct {
	server *server
	client *http.Client
	tick   *time.Ticker
	stop   chan struct{}
	asking sync.WaitGroup

	mu  sync.Mutex
	now *besides
	ids []string // of all decisions
}

// besides is what became of the requests that were due in some time.
type besides struct {
	took []time.Duration
	errs []error
	left sync.WaitGroup
}

func newSteady(s *server) *steady {
	st := &steady{server: s, client: podClient(false), stop: make(chan struct{}), tick: time.NewTicker(time.Second / podRate)}
	st.client.Timeout = patience
	st.asking.Go(st.run)
	return st
}

func (s *steady) run() {
	for {
		select {
		case <-s.stop:
			return
		case due := <-s.tick.C:
			s.mu.Lock()
			a := s.now
			if a != nil {
				a.left.Add(1)
			}
			s.mu.Unlock()
			if a != nil {
				s.asking.Go(func() { defer a.left.Done(); s.ask(a, due) })
			}
		}
	}
}

// ask asks for one decision.
func (s *steady) ask(a *besides, due time.Time) {
	id, err := s.decide()
	took := time.Since(due)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		a.errs = append(a.errs, fmt.Errorf("after %v: %w", took, err))
		return
	}
	a.took = append(a.took, took)
	s.ids = append(s.ids, id)
}

func (s *steady) decide() (id string, err error) {
	status, header, body, err := podAsk(context.Background(), s.client, http.MethodPost, s.server.URL+"/access/v1/evaluation", betaKey, strings.NewReader(betaReads))
	if err != nil {
		return "", err
	}
	if status != http.StatusOK || body != decision(true) {
		return "", fmt.Errorf("%d %.200s", status, body)
	}
	return header.Get("Decision-ID"), nil
}

const betaReads = `{"subject":{"type":"user","id":"bob"},"action":{"name":"read"},"resource":{"type":"doc","id":"d1"}}`

func (s *steady) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = new(besides)
}

// finish waits for the answers to what was due.
func (s *steady) finish() *besides {
	s.mu.Lock()
	a := s.now
	s.now = nil
	s.mu.Unlock()
	a.left.Wait()
	return a
}

func (s *steady) close() {
	s.tick.Stop()
	close(s.stop)
	s.asking.Wait()
	s.client.CloseIdleConnections()
}

// podClient has connections of its own: one of HTTP/2, or many.
func podClient(http2 bool) *http.Client {
	transport := &http.Transport{
		MaxIdleConnsPerHost: 512,
		ForceAttemptHTTP2:   http2,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // the certificate is ours and names nobody
	}
	if !http2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: transport}
}

// podAsk asks with a key, and keeps no more of the answer than 4 KiB.
func podAsk(ctx context.Context, client *http.Client, method, url, key string, body io.Reader) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	begin, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return 0, nil, "", err
	}
	rest, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return 0, nil, "", err
	}
	header := response.Header.Clone()
	header.Set(podBytes, strconv.FormatInt(int64(len(begin))+rest, 10))
	return response.StatusCode, header, strings.TrimSpace(string(begin)), nil
}

// podBytes is how many bytes an answer had.
const podBytes = "X-Bytes"

// A podTally counts what came back.
type podTally struct {
	mu      sync.Mutex
	answers map[string]int
	largest int64 // bytes of an answer
}

func (c *podTally) note(status int, header http.Header, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := strconv.Itoa(status)
	if err != nil {
		what = "cut off"
		if errors.Is(err, context.DeadlineExceeded) {
			what = "no answer"
		}
	}
	if c.answers == nil {
		c.answers = map[string]int{}
	}
	c.answers[what]++
	if n, err := strconv.ParseInt(header.Get(podBytes), 10, 64); err == nil {
		c.largest = max(c.largest, n)
	}
}

func (c *podTally) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c.answers)) {
		all = append(all, fmt.Sprintf("%d × %s", c.answers[what], what))
	}
	return fmt.Sprintf("%s; largest answer %d kB", strings.Join(all, ", "), c.largest/1000)
}
