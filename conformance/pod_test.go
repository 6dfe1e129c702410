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

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/process"
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
	underLoad(t)
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
	client *http.Client
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
	p := &pod{t: t, state: t.TempDir(), scale: 1, client: podClient(false)}
	t.Cleanup(p.client.CloseIdleConnections)
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
	process := exec.Command(shipped(t, "policy-service"), strings.Fields(strings.ReplaceAll(strings.Join(c.Args, " "), settingsDir, dir))...)
	process.Env = []string{"POLICY_SERVICE_PAGE_KEY=of-the-test"}
	for _, v := range c.Env {
		if v.Value != "" {
			process.Env = append(process.Env, v.Name+"="+v.Value)
		}
	}
	p.server = launch(t, process)
	p.steady = newSteady(t, p.server)
	return p
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
	case <-p.server.Done:
		t.Fatalf("%s: the service has ended:\n%s", name, p.server.Log())
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
	p.server.End(p.t)
	if out, err := exec.Command(shipped(p.t, "policy-service"), "log", "verify", "--state", p.state).CombinedOutput(); err != nil {
		p.t.Errorf("%v: %s", err, out)
	}
	logged := loggedIDs(p.t, p.state)
	lost := 0
	for _, id := range p.steady.ids {
		if !logged[id] {
			lost++
		}
	}
	if lost > 0 || len(p.steady.ids) == 0 {
		p.t.Errorf("of %d decisions %d are not in the log", len(p.steady.ids), lost)
	}
	p.t.Logf("%d decisions of the tenant beside the attacks, all in the log; most memory %d MiB, 0 restarts", len(p.steady.ids), p.peak>>20)
}

var entryID = regexp.MustCompile(`"id":"([0-9a-f-]{36})"`)

// loggedIDs are the ids of all entries of the log in a state directory.
func loggedIDs(t *testing.T, state string) map[string]bool {
	t.Helper()
	export := exec.Command(shipped(t, "policy-service"), "log", "export", "--state", state)
	export.Stderr = os.Stderr
	lines, err := export.StdoutPipe()
	must(t, err)
	must(t, export.Start())
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
			must(t, export.Wait())
			return all
		}
		must(t, err)
	}
}

// resetPeak has the kernel forget how much memory the service has had.
func (p *pod) resetPeak() {
	p.t.Helper()
	must(p.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.server.Process.Process.Pid), []byte("5"), 0))
}

// peakMemory is how much it has had since (VmHWM).
func (p *pod) peakMemory() int64 {
	p.t.Helper()
	status := read(p.t, fmt.Sprintf("/proc/%d/status", p.server.Process.Process.Pid))
	kib, err := strconv.ParseInt(submatches(`(?m)^VmHWM:\s+(\d+) kB$`, status)[0], 10, 64)
	must(p.t, err)
	return kib << 10
}

// A steady asks for decisions at a constant rate, however long they take. It is a
// process of its own: what attacks takes no time from it but that of the machine.
type steady struct {
	t       *testing.T
	process *exec.Cmd
	end     io.Closer // its input
	ended   chan struct{}

	mu   sync.Mutex
	more *sync.Cond // after each line
	last int64      // when the last request was due
	left map[int64]bool
	now  besides
	ids  []string // of all decisions
}

// besides is what became of the requests that were due in some time.
type besides struct {
	took []time.Duration
	errs []error
}

// askedSteadily has the URL that the process asks.
const askedSteadily = "CONFORMANCE_ASK_STEADILY"

func newSteady(t *testing.T, s *server) *steady {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	st := &steady{t: t, process: exec.Command(self), ended: make(chan struct{}), left: map[int64]bool{}}
	st.more = sync.NewCond(&st.mu)
	st.process.Env = append(os.Environ(), askedSteadily+"="+s.URL)
	st.process.Stderr = os.Stderr
	st.end, err = st.process.StdinPipe()
	must(t, err)
	lines, err := st.process.StdoutPipe()
	must(t, err)
	must(t, st.process.Start())
	go st.read(lines)
	return st
}

// A steadyLine tells that a request was due or, with Took, what became of it.
type steadyLine struct {
	Due  int64  `json:"due"`           // nanoseconds of the clock
	Took int64  `json:"took,omitzero"` // nanoseconds
	ID   string `json:"id,omitzero"`
	Err  string `json:"err,omitzero"`
}

func (s *steady) read(lines io.Reader) {
	defer close(s.ended)
	for in := bufio.NewScanner(lines); in.Scan(); {
		var line steadyLine
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			s.t.Error(err)
		}
		s.note(line)
	}
}

func (s *steady) note(line steadyLine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.more.Broadcast()
	switch {
	case line.Took == 0:
		s.last, s.left[line.Due] = line.Due, true
		return
	case line.Err != "":
		s.now.errs = append(s.now.errs, fmt.Errorf("after %v: %s", time.Duration(line.Took), line.Err))
	default:
		s.now.took = append(s.now.took, time.Duration(line.Took))
		s.ids = append(s.ids, line.ID)
	}
	delete(s.left, line.Due)
}

// begin forgets what was asked before.
func (s *steady) begin() { s.finish() }

// finish waits for the answers to what was due.
func (s *steady) finish() besides {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := time.Now().UnixNano(); s.last <= at || len(s.left) > 0 && s.oldest() < at; {
		s.more.Wait()
	}
	was := s.now
	s.now = besides{}
	return was
}

func (s *steady) oldest() int64 { return slices.Min(slices.Collect(maps.Keys(s.left))) }

func (s *steady) close() {
	must(s.t, s.end.Close())
	<-s.ended
	must(s.t, s.process.Wait())
}

// askSteadily asks until its input ends.
func askSteadily(url string) {
	client := podClient(false)
	client.Timeout = process.Patience
	var tell sync.Mutex
	line := func(l steadyLine) {
		text, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		tell.Lock()
		defer tell.Unlock()
		fmt.Println(string(text))
	}
	over := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(over) }()
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(time.Second / podRate)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case at := <-tick.C:
			due := at.UnixNano()
			line(steadyLine{Due: due})
			asking.Go(func() {
				id, err := decideFor(client, url)
				l := steadyLine{Due: due, Took: max(1, time.Since(at).Nanoseconds()), ID: id}
				if err != nil {
					l.Err = err.Error()
				}
				line(l)
			})
		}
	}
}

// decideFor asks for the decision of the tenant that keeps to the rules.
func decideFor(client *http.Client, url string) (id string, err error) {
	status, header, body, err := podAsk(context.Background(), client, http.MethodPost, url+"/access/v1/evaluation", betaKey, strings.NewReader(betaReads))
	if err != nil {
		return "", err
	}
	if status != http.StatusOK || body != decision(true) {
		return "", fmt.Errorf("%d %.200s", status, body)
	}
	return header.Get("Decision-ID"), nil
}

const betaReads = `{"subject":{"type":"user","id":"bob"},"action":{"name":"read"},"resource":{"type":"doc","id":"d1"}}`

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
