package conformance_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

var costCalls = flag.Int("capability.calls", 60, "calls of each kind in TestCapabilityCost; from 1,000 on it compares their cost")

// TestCapabilityCost measures, in one interleaved run, what a capability costs a call: one that is bound
// to the identity, and one that is bound to a key, with a proof.
func TestCapabilityCost(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "policies.cedar"), `
@id("call") permit (principal, action == Action::"tools/call", resource);
@id("needs") @capability("owner")
forbid (principal, action == Action::"tools/call", resource == tool::"files:write") unless { context has capability };
@id("ask") permit (principal, action == Action::"capability.request", resource);
`)
	s := serveToKillDir(t, dir, t.TempDir())
	key := prooftest.Ed25519()
	ask := func(agent, members string) string {
		t.Helper()
		var made authzen.CapabilityResponse
		body := fmt.Sprintf(`{"subject":{"type":"agent","id":%q},"tools":["files:write"],"duration":3600%s}`, agent, members)
		if status, err := postJSON(t.Context(), s.URL+authzen.PathCapabilities, body, &made); err != nil || status != http.StatusCreated {
			t.Fatal(status, err)
		}
		return made.Capability.ID
	}
	ask("identity", "")
	bound := ask("key", `,"holder_key":`+string(key.JWK()))
	call := func(agent, tool, claim string) string {
		return fmt.Sprintf(`{"subject":{"type":"agent","id":%q},"action":{"name":"tools/call"},"resource":{"type":"tool","id":%q},"context":{"arguments":{"n":1},"capability":{%s"use":true}}}`, agent, tool, claim)
	}
	kinds := []string{"none", "identity", "key"}
	took, used := map[string][]time.Duration{}, map[string][]time.Duration{}
	const slice = 20
	for range *costCalls / slice {
		for _, kind := range kinds {
			bodies := make([]string, slice)
			for i := range bodies {
				switch kind {
				case "none":
					bodies[i] = call(kind, "files:read", "")
				case "identity":
					bodies[i] = call(kind, "files:write", "")
				default:
					proof, err := json.Marshal(key.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: bound, Tool: "files:write"}))
					must(t, err)
					bodies[i] = call(kind, "files:write", fmt.Sprintf(`"id":%q,"proof":%s,`, bound, proof))
				}
			}
			before := processorTimeOf(t, s.Process.Process.Pid)
			for _, body := range bodies {
				var d authzen.Decision
				begun := time.Now()
				status, err := postJSON(t.Context(), s.URL+authzen.PathEvaluation, body, &d)
				took[kind] = append(took[kind], time.Since(begun))
				if err != nil || status != http.StatusOK || !d.Decision {
					t.Fatal(kind, status, err, d)
				}
			}
			used[kind] = append(used[kind], (processorTimeOf(t, s.Process.Process.Pid)-before)/slice)
		}
	}
	for _, kind := range kinds {
		slices.Sort(took[kind])
		slices.Sort(used[kind])
		t.Logf("%-8s %d calls: p50 %v, p99 %v, %v of processor time a call (median of slices)", kind, len(took[kind]),
			median(took[kind]).Round(time.Microsecond), took[kind][len(took[kind])*99/100].Round(time.Microsecond), median(used[kind]).Round(100*time.Nanosecond))
	}
	if *costCalls < 1000 {
		return
	}
	if more := median(took["key"]) - median(took["none"]); more > 300*time.Microsecond {
		t.Errorf("a proof takes %s more", more)
	}
}

// median returns the median of sorted durations.
func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

// processorTimeOf is what the threads of a process have used.
func processorTimeOf(t *testing.T, pid int) (total time.Duration) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	must(t, err)
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		used, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(used, 10, 64)
		must(t, err)
		total += time.Duration(n)
	}
	return total
}
