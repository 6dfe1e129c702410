package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

var capabilityCrashes = flag.Int("crash.capabilities", 5, "how often TestCapabilitiesCrash kills the program in each mode")

// capabilityCrashStore lets agents call a tool with a capability that olga issues.
const capabilityCrashStore = `
@id("call") permit (principal, action == Action::"tools/call", resource);
@id("needs") @capability("owner")
forbid (principal, action == Action::"tools/call", resource) unless { context has capability };
@id("issue") permit (principal == user::"olga", action == Action::"capability.issue", resource is capability);
`

// crashUses is the number of uses of each capability.
const crashUses = 20

// A provenCall is a call with a proof. It was presented once or twice.
type provenCall struct {
	capability, body string
	permits          atomic.Int32 // answers that permit it
}

// A crashRun kills the program again and again, between the answer to a call and its repetition.
type crashRun struct {
	program, policies, state string
	arguments                []string
	key                      prooftest.Key

	capability string        // the current one, of a holder of its own
	presented  int           // calls of it
	calls      []*provenCall // all
	replayed   int           // calls that were presented again
	faults     []string
}

// TestCapabilitiesCrash holds that no proof is good twice, and that no capability gives a use more than
// it has, whenever the program is killed, whether or not the log waits for other entries.
func TestCapabilitiesCrash(t *testing.T) {
	path, err := process.Program()
	must(t, err)
	for _, durability := range []string{"strict", "batched"} {
		r := newCrashRun(t, path, durability)
		r.kill(t, *capabilityCrashes)
		exportLog(t, r.state)
		r.report(t, durability)
		for _, fault := range r.faults {
			t.Errorf("%s: %s", durability, fault)
		}
	}
}

// TestCapabilitiesCrashControl holds that the check of TestCapabilitiesCrash sees both faults: a program
// that keeps proofs and uses in memory alone must show them.
func TestCapabilitiesCrashControl(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program once more: make check runs it")
	}
	const reads = "return usesSince(ctx, s.log, from, yield)"
	program := mutant(t, "../pdp/capabilitystore.go", reads, "return nil")
	again, more := 0, 0
	for try := 0; try < 8 && (again == 0 || more == 0); try++ {
		r := newCrashRun(t, program, "strict")
		r.kill(t, crashUses)
		r.report(t, "memory only")
		for _, fault := range r.faults {
			again += strings.Count(fault, "permitted twice")
			more += strings.Count(fault, "uses are answered")
		}
	}
	if again == 0 || more == 0 {
		t.Errorf("%d proofs are good twice, %d capabilities give more uses: would the check see it?", again, more)
	}
}

func newCrashRun(t *testing.T, program, durability string) *crashRun {
	t.Helper()
	r := &crashRun{program: program, policies: t.TempDir(), state: t.TempDir(), arguments: []string{"--durability", durability}, key: prooftest.Ed25519()}
	put(t, filepath.Join(r.policies, "policies.cedar"), capabilityCrashStore)
	return r
}

// kill starts the program, presents again what was presented before, presents new proofs and kills it,
// so many times. At the end it presents the last ones again.
func (r *crashRun) kill(t *testing.T, times int) {
	t.Helper()
	var last []*provenCall
	for n := range times + 1 {
		s := serveProgramToKill(t, r.program, r.policies, r.state, r.arguments...)
		for _, c := range last {
			r.again(t, s.URL, c)
		}
		if n < times {
			last = r.round(t, s)
		}
		s.Process.Process.Kill()
		<-s.Done
	}
	r.count()
}

// again presents the proof of a call again. One that was answered is replayed, and one that was not may
// be permitted.
func (r *crashRun) again(t *testing.T, url string, c *provenCall) {
	t.Helper()
	r.replayed++
	answer, err := c.present(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if !answer.Decision && (answer.Context == nil || !slices.Contains([]authzen.CapabilityReason{"replayed", "exhausted"}, answer.Context.CapabilityDenied)) {
		r.faults = append(r.faults, fmt.Sprintf("a call is denied: %+v", answer.Context))
	}
}

// round has four clients call until one to four calls were answered, and kills the program at once.
func (r *crashRun) round(t *testing.T, s *server) (calls []*provenCall) {
	t.Helper()
	left := atomic.Int32{}
	left.Store(1 + rand.Int32N(4))
	var mu sync.Mutex
	next := func() *provenCall {
		mu.Lock()
		defer mu.Unlock()
		c, err := r.call(t.Context(), s.URL)
		if err != nil {
			return nil
		}
		calls = append(calls, c)
		return c
	}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for c := next(); c != nil; c = next() {
				if _, err := c.present(t.Context(), s.URL); err != nil {
					return // killed
				}
				if left.Add(-1) == 0 {
					s.Process.Process.Kill()
				}
			}
		})
	}
	clients.Wait()
	r.calls = append(r.calls, calls...)
	return calls
}

// call returns a new call, of a new capability if the last one has been tried often enough.
func (r *crashRun) call(ctx context.Context, url string) (*provenCall, error) {
	if r.presented >= 2*crashUses || r.capability == "" {
		if err := r.issue(ctx); err != nil {
			return nil, err
		}
	}
	r.presented++
	id, holder, _ := strings.Cut(r.capability, " ")
	proof, err := json.Marshal(r.key.Proof(prooftest.Call{Arguments: `{}`, Capability: id, Tool: "files:write"}))
	if err != nil {
		return nil, err
	}
	return &provenCall{capability: id, body: fmt.Sprintf(
		`{"subject":{"type":"agent","id":%q},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"files:write"},"context":{"arguments":{},"capability":{"id":%q,"proof":%s,"use":true}}}`,
		holder, id, proof)}, nil
}

// issue issues a capability with a key to a new holder.
func (r *crashRun) issue(ctx context.Context) error {
	admin, err := os.ReadFile(filepath.Join(r.state, "admin-url"))
	if err != nil {
		return err
	}
	holder := fmt.Sprint("agent-", len(r.calls), rand.Int())
	body := fmt.Sprintf(`{"approver":{"type":"user","id":"olga"},"subject":{"type":"agent","id":%q},"tools":["files:write"],"duration":3600,"constraints":{"maxUses":%d},"holder_key":%s}`,
		holder, crashUses, r.key.JWK())
	var made authzen.CapabilityResponse
	status, err := postJSON(ctx, strings.TrimSpace(string(admin))+"/admin/v1/capabilities", body, &made)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("issue: %d", status)
	}
	if err != nil {
		return err
	}
	r.capability, r.presented = made.Capability.ID+" "+holder, 0
	return nil
}

// present presents a call, and counts an answer that permits it.
func (c *provenCall) present(ctx context.Context, url string) (answer authzen.Decision, err error) {
	status, err := postJSON(ctx, url+authzen.PathEvaluation, c.body, &answer)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("evaluation: %d", status)
	}
	if err == nil && answer.Decision {
		c.permits.Add(1)
	}
	return answer, err
}

// count finds the calls that were permitted twice, and the capabilities with too many permits.
func (r *crashRun) count() {
	uses := r.uses()
	for _, c := range r.calls {
		if n := c.permits.Load(); n > 1 {
			r.faults = append(r.faults, "a proof is permitted twice")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(uses)) {
		if uses[id] > crashUses {
			r.faults = append(r.faults, fmt.Sprintf("%d uses are answered of %d", uses[id], crashUses))
		}
	}
}

// uses returns the permits of each capability.
func (r *crashRun) uses() map[string]int {
	uses := map[string]int{}
	for _, c := range r.calls {
		uses[c.capability] += int(c.permits.Load())
	}
	return uses
}

func (r *crashRun) report(t *testing.T, name string) {
	t.Helper()
	permits, most := 0, 0
	for _, n := range r.uses() {
		permits, most = permits+n, max(most, n)
	}
	t.Logf("%s: %d calls with a proof, %d permits, %d calls presented again after a kill; %d capabilities of %d uses, at most %d answered; %d faults",
		name, len(r.calls), permits, r.replayed, len(r.uses()), crashUses, most, len(r.faults))
	if permits == 0 || r.replayed == 0 {
		t.Errorf("%s: nothing was permitted or presented again", name)
	}
}
