package conformance_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	// fairSearches search at once, among so many entities that no index bounds.
	// With the race detector, fewer take as long.
	fairSearches  = 48
	fairEntities  = 60_000
	shortEntities = 30_000
	// fairRate is how many evaluations a second the other tenant asks, which is a
	// part of what there is processor for.
	fairRate = 50
	// maxBesideSearches is how many times as long the slowest hundredth of them may
	// take beside searches. A machine that has else to do may need more.
	maxBesideSearches   = 3.0
	looseBesideSearches = 20.0
)

// scanned is a policy of which no index says for whom it holds.
const scanned = `@id("scan") permit (principal, action == Action::"scan", resource) when { resource.n * 3 > 100 && resource.n * 7 < 90000 };`

// A tenant that searches does not starve the evaluations of another one. The
// control lets as many searches as come use the processors. In the short form half
// of the evaluations count: on a machine that has else to do, single ones take any
// time.
func TestSearchesLeaveRoom(t *testing.T) {
	underLoad(t)
	duration, percent, bound := 2*time.Second, 50, looseBesideSearches
	if *podFull {
		duration, percent, bound = 20*time.Second, 99, maxBesideSearches
	}
	quiet, beside := besideSearches(t, duration, percent)
	_, control := besideSearches(t, duration, percent, "--max-searches", "1000")
	slower := float64(beside) / float64(quiet)
	t.Logf("p%d of evaluations is %v, and %v beside searches, %.1f times that; %v where searches have no bound", percent, quiet, beside, slower, control)
	if slower > bound {
		t.Errorf("p%d is more than %.1f times the quiet one", percent, bound)
	}
	if 2*control < 3*beside {
		t.Errorf("without a bound it is %v, which is no clear difference from %v", control, beside)
	}
}

// besideSearches asks as one tenant without and with searches of another, in
// turns, and returns a percentile of how long that took.
func besideSearches(t *testing.T, duration time.Duration, percent int, args ...string) (without, with time.Duration) {
	t.Helper()
	dir := t.TempDir()
	var entities strings.Builder
	n := shortEntities
	if *podFull {
		n = fairEntities
	}
	for i := range n {
		fmt.Fprintf(&entities, `,{"uid":{"type":"doc","id":"d%05d"},"attrs":{"n":%d},"parents":[]}`, i, i)
	}
	place(t, filepath.Join(dir, "tenants", "acme", "acme.cedar"), scanned)
	place(t, filepath.Join(dir, "tenants", "acme", "entities.json"), "["+entities.String()[1:]+"]")
	place(t, filepath.Join(dir, "tenants", "beta", "beta.cedar"), `@id("read") permit (principal, action == Action::"read", resource);`)
	s := serveDir(t, dir, args...)
	steady := newStream(s, "beta", fairRate)
	var quiet, beside flow
	for range 2 {
		quiet.add(steady.run(duration / 2))
		beside.add(amongSearches(t, s, func() *flow { return steady.run(duration / 2) }))
	}
	quiet.clean(t)
	beside.clean(t)
	t.Logf("%v quiet:  %v", args, &quiet)
	t.Logf("%v beside: %v", args, &beside)
	return quiet.p(percent), beside.p(percent)
}

// amongSearches acts beside searches of acme, each of which is asked again as soon
// as it is answered.
func amongSearches(t *testing.T, s *server, act func() *flow) *flow {
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fairSearches}}
	defer client.CloseIdleConnections()
	var searches sync.WaitGroup
	for range fairSearches {
		searches.Go(func() {
			for ctx.Err() == nil {
				body := `{"subject":{"type":"user","id":"u"},"action":{"name":"scan"},"resource":{"type":"doc"}}`
				_, _, _, _ = podAsk(ctx, client, http.MethodPost, s.URL+"/tenants/acme"+authzen.PathSearchResource, "", strings.NewReader(body))
			}
		})
	}
	f := act()
	cancel()
	searches.Wait()
	return f
}
