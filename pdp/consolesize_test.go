package pdp_test

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	pagesWaiting = flag.Int("pages.waiting", 200, "access requests that wait while pages are measured")
	pagesEntries = flag.Int("pages.entries", 5_000, "entries of the log while pages are measured")
	pagesP99     = flag.Duration("pages.p99", 0, "limit of the 99th percentile of a page; 0 for half a second at the median")
)

// logEvaluations writes entries of decisions to a new log.
func logEvaluations(t *testing.T, state string, entries int) {
	t.Helper()
	log, err := decisionlog.Open(state, decisionlog.Config{Durability: decisionlog.Batched, Queue: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(-time.Hour)
	for n := range entries {
		err := log.Append(t.Context(), &decisionlog.Entry{
			ID: fmt.Sprintf("e-%d", n), Time: start.Add(time.Duration(n) * time.Millisecond).UTC(), Kind: decisionlog.KindEvaluation, Tenant: "acme",
			Request: []byte(aliceReads), Result: &decisionlog.Result{Decision: n%2 == 0},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// fillRequests submits access requests of many tenants.
func (s *service) fillRequests(t *testing.T, n int) {
	t.Helper()
	var all sync.WaitGroup
	work := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range work {
				call := fmt.Sprintf(`{"tenant_id":"tenant-%d","actor":{"actor_id":"agent-%d","actor_type":"agent","roles":["tool_writer"]},"action":"tool.invoke","resource":{"type":"tool","id":"jira:create","labels":{"category":"sensitive","impact":"write"}}}`, i%100, i)
				var answer authzen.AuthorizeResponse
				askAs(t, "", "POST", s.main+authzen.PathAuthorize, call, &answer)
				terms, err := json.Marshal(answer.Approval)
				if err != nil {
					t.Error(err)
				}
				if code := askAs(t, "", "POST", s.main+authzen.PathApprovals, fmt.Sprintf(`{"request":%s,"approval":%s}`, call, terms), nil); code >= 300 {
					t.Errorf("request %d: %d", i, code)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	all.Wait()
}

// Pages stay quick while many requests wait and the log is long.
func TestPagesAreQuick(t *testing.T) {
	state := t.TempDir()
	logEvaluations(t, state, *pagesEntries)
	s, b := startConsole(t, pdp.Config{State: state, Policies: policySet(t, "agent-tools"), Durability: decisionlog.Batched})
	s.fillRequests(t, *pagesWaiting)
	if got := s.status(t, "").Waiting; got != *pagesWaiting {
		t.Fatalf("%d requests wait, want %d", got, *pagesWaiting)
	}
	b = b.signInAs(s, "carol")
	rounds := 20
	if *pagesP99 > 0 {
		rounds = 100
	}
	for _, path := range []string{"/", "/requests", "/decisions", "/policies", "/policies/current", "/tests", "/shadow", "/replays", "/try"} {
		var took []time.Duration
		for range rounds {
			start := time.Now()
			if status, _, _ := b.get(path); status != http.StatusOK {
				t.Fatalf("%s is %d", path, status)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		p50, p99 := took[rounds/2-1], took[rounds*99/100-1]
		t.Logf("%-18s p50 %6.1f ms, p99 %6.1f ms", path, p50.Seconds()*1000, p99.Seconds()*1000)
		if *pagesP99 > 0 && p99 > *pagesP99 || p50 > time.Second/2 {
			t.Errorf("%s takes %s at the median, %s at the 99th percentile", path, p50, p99)
		}
	}
}
