//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Equal sizes have equal workloads, of as many policies as they say, with allows
// and denies.
func TestWorkload(t *testing.T) {
	for _, n := range []int{fewPolicies, policies, manyPolicies} {
		w := newWorkload(n)
		if again := newWorkload(n); singles(w, "").lines() != singles(again, "").lines() || w.cedarTools() != again.cedarTools() || w.cedarEntities() != again.cedarEntities() {
			t.Errorf("%d policies: two workloads differ", n)
		}
		if got := strings.Count(cedarCommon+w.cedarTools(), "@id("); got != n {
			t.Errorf("%d policies: the store has %d", n, got)
		}
		allowed := 0
		for _, r := range w.Requests {
			if w.Allows(r) {
				allowed++
			}
		}
		if share := float64(allowed) / float64(len(w.Requests)); share < 0.4 || share > 0.6 {
			t.Errorf("%d policies: %.2f of all requests are allowed", n, share)
		}
	}
}

// The policies mean what the workload says: cedar-go decides as it does.
func TestCedarLoopAgrees(t *testing.T) {
	for _, n := range []int{fewPolicies, policies} {
		w, dir := newWorkload(n), t.TempDir()
		if err := w.Write(dir, filepath.Join(dir, "rego")); err != nil {
			t.Fatal(err)
		}
		handler, err := newCedarLoop(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := serving(t, handler, w).check(t.Context(), singles(w, "/")); err != nil {
			t.Errorf("%d policies: %v", n, err)
		}
	}
}

// An engine that decides otherwise, or does not answer, is not measured. A floor
// must only answer.
func TestWrongAnswersAreSeen(t *testing.T) {
	w := newWorkload(fewPolicies)
	constant := serving(t, decoded(func([]byte) error { return nil }), w)
	if err := constant.check(t.Context(), singles(w, "/")); err == nil || !strings.Contains(err.Error(), `answers {"decision":true}, not {"decision":false}`) {
		t.Errorf("a constant answer passed: %v", err)
	}
	constant.constant = true
	if err := constant.check(t.Context(), singles(w, "/")); err != nil {
		t.Error(err)
	}
	broken := serving(t, decoded(func([]byte) error { return errors.New("the disk is full") }), w)
	broken.constant = true
	if err := broken.check(t.Context(), singles(w, "/")); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a server that answers 503 passed: %v", err)
	}
}

func serving(t *testing.T, h http.Handler, w *workload) *engine {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &engine{name: "engine", server: &server{URL: s.URL}, work: w}
}

// The durability floor answers once the body is on disk.
func TestDurabilityFloor(t *testing.T) {
	dir, w := t.TempDir(), newWorkload(fewPolicies)
	handler, err := newDurabilityFloor(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := serving(t, handler, w)
	var want strings.Builder
	for _, r := range w.Requests[:8] {
		body := encode(r)
		if _, err := post(t.Context(), e.server.URL, body); err != nil {
			t.Fatal(err)
		}
		want.WriteString(body + "\n")
		got, err := os.ReadFile(filepath.Join(dir, "bodies"))
		if err != nil || !strings.HasPrefix(string(got), want.String()) {
			t.Fatalf("a body was answered and is not in the file: %v", err)
		}
	}
}

// Without the load generator nothing is measured, and the error names the package.
func TestNoWrk(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), config{Rounds: 1, Slice: 1e9, Dir: t.TempDir()})
	if !errors.Is(err, errNoWrk) || !strings.Contains(err.Error(), "apt-get install -y wrk") {
		t.Error(err)
	}
}

// A sample of a load that broke is an error; a few answers of 503 are none.
func TestParseSample(t *testing.T) {
	const good = `{"requests":100,"duration_us":1000000,"p50_us":5,"p99_us":9,"not_2xx":1,"broken":0,"timeouts":0}`
	if s, err := parseSample([]byte("Running 1s test\n\n" + good + "\n")); err != nil || s.Requests != 100 || s.P99US != 9 || s.NotOK != 1 || s.answered() != 99 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"not_2xx":1`, `"not_2xx":21`, "21 of them other than 2xx"},
		{`"broken":0`, `"broken":1`, "1 broken connections"},
		{`"timeouts":0`, `"timeouts":2`, "2 timeouts"},
		{`"requests":100`, `"requests":0`, "0 answers"},
		{good, "unable to connect", "did not print its figures"},
	} {
		_, err := parseSample([]byte(strings.Replace(good, test.old, test.new, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.new, err)
		}
	}
}

// A sample that is worth nothing is measured again, three times in all; any other
// error is final.
func TestWorthlessSampleIsMeasuredAgain(t *testing.T) {
	other := errors.New("no such program")
	for _, test := range []struct {
		errs  []error
		calls int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{errWorthless, nil}, 2, nil},
		{[]error{errWorthless, errWorthless, errWorthless, nil}, 3, errWorthless},
		{[]error{other, nil}, 1, other},
	} {
		calls := 0
		err := again(func() error { calls++; return test.errs[calls-1] })
		if calls != test.calls || err != test.want {
			t.Errorf("%v: %d calls, %v", test.errs, calls, err)
		}
	}
}

// usual has a row for every bound, with figures that are within all of them.
func usual() []result {
	processor := map[string]float64{baseline: 20, "durability": 35, "cedar-go": 170, "opa": 100, "strict, batch of 50": 1400}
	var rows []result
	for _, b := range bounds {
		for _, name := range []string{b.server, b.over} {
			if _, ok := findResult(rows, name, b.clients); ok || name == "" {
				continue
			}
			us, ok := processor[name]
			if !ok {
				us = 70
			}
			rows = append(rows, result{Server: name, Clients: b.clients, ProcessorUS: summary{Median: us}, Mallocs: summary{Median: 146}, ResidentMiB: 100})
		}
	}
	return rows
}

// Every bound breaks when its row alone becomes worse, and then the run fails.
func TestLimits(t *testing.T) {
	good := report{Limits: checkLimits(usual())}
	if len(good.Limits) != len(bounds) || good.fault() != nil {
		t.Fatalf("%d limits of %d bounds: %v", len(good.Limits), len(bounds), good.fault())
	}
	for i, b := range bounds {
		rows := usual()
		for j := range rows {
			if rows[j].Server == b.server && rows[j].Clients == b.clients {
				rows[j].ProcessorUS.Median *= 50
				rows[j].Mallocs.Median *= 2
				rows[j].ResidentMiB *= 5
			}
		}
		bad := report{Limits: checkLimits(rows)}
		if bad.Limits[i].OK || bad.fault() == nil || !strings.Contains(bad.fault().Error(), bad.Limits[i].What) {
			t.Errorf("%s does not break: %v", bad.Limits[i].What, bad.fault())
		}
	}
}

// A comparison says what its rounds are enough for. A program that is worse
// fails.
func TestComparison(t *testing.T) {
	for _, test := range []struct {
		name  string
		ratio []float64
		want  string
	}{
		{"the same", []float64{0.99, 1, 1.01, 1, 0.99, 1, 1.01, 1}, notWorse},
		{"better", []float64{0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6}, notWorse},
		{"worse", []float64{1.03, 1.05, 1.04, 1.06, 1.03, 1.05, 1.04, 1.05}, worse},
		{"noise", []float64{0.9, 1.1, 0.9, 1.1, 0.9, 1.1, 0.9, 1.1}, undecided},
	} {
		ratio := summarize(test.ratio)
		r := report{Comparison: []comparison{{Server: "strict", Ratio: ratio, Most: 1.02, Verdict: verdict(ratio, 1.02)}}}
		if got := r.Comparison[0].Verdict; got != test.want || (r.fault() != nil) != (test.want == worse) {
			t.Errorf("%s: %s, %v", test.name, got, r.fault())
		}
	}
}

// The rows of two programs are compared with each other, round by round.
func TestCompareRows(t *testing.T) {
	measure := func(p99US int64) []measured {
		return []measured{{sample: sample{Requests: 100, DurationUS: 1e6, P99US: p99US}, processor: 100 * time.Millisecond, mallocs: 1000}}
	}
	b := &bench{rows: []*row{
		{Name: baseline, Clients: 32, rounds: measure(1)},
		{Name: beforePrefix + "strict", Clients: 32, rounds: measure(10)},
		{Name: "strict", Clients: 32, rounds: measure(20)},
	}}
	got := fmt.Sprint(len(b.compare()))
	for _, c := range b.compare() {
		got += fmt.Sprintf(" %s %g", c.Figure, c.Ratio.Median)
	}
	if want := "4 processor time a request 1 allocations a request 1 requests/s 1 p99 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSummarize(t *testing.T) {
	var figures []float64
	for i := range 21 {
		figures = append(figures, float64(20-i))
	}
	if got, want := summarize(figures), (summary{Median: 10, Q1: 5, Q3: 15, Low: 5, High: 15}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Ranks for 95 percent, from tables of the sign test.
	for n, want := range map[int]int{1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 12: 2, 20: 5, 25: 7} {
		if got := medianRank(n); got != want {
			t.Errorf("of %d figures %d are left out at either end, not %d", n, got, want)
		}
	}
}

// The page about the benchmark names every row and every setting of make bench.
func TestDocumentedRows(t *testing.T) {
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{"ROUNDS", "SLICE", "BEFORE", "opa", "opa, decision log"}, durabilities...)
	names = slices.AppendSeq(names, maps.Keys(floors))
	for _, b := range bounds {
		names = append(names, b.server)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/benchmarks.md does not name %s", name)
		}
	}
}
