package conformance_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// loadClients is how many clients a load has. Each keeps its connection and
// waits for its answers.
const loadClients = 6

// batchItems is how many items the batches of a load have.
const batchItems = 5

const (
	loadRequest = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"1"}}`
	loadBatch   = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"evaluations":[` +
		`{"resource":{"type":"record","id":"1"}},{"resource":{"type":"record","id":"2"}},{"resource":{"type":"record","id":"3"}},` +
		`{"resource":{"type":"record","id":"4"}},{"resource":{"type":"record","id":"5"}}]}`
)

// A tally is what clients were answered.
type tally struct {
	took    []time.Duration // of each answer that is one
	refused []error         // other statuses than 200, and what was no answer
	mixed   []error         // answers by more than one version
}

func (a *tally) add(b tally) {
	a.took = append(a.took, b.took...)
	a.refused = append(a.refused, b.refused...)
	a.mixed = append(a.mixed, b.mixed...)
}

// note counts an answer.
func (a *tally) note(took time.Duration, err error) {
	switch {
	case err == nil:
		a.took = append(a.took, took)
	case errors.Is(err, errMixed):
		a.mixed = append(a.mixed, err)
	default:
		a.refused = append(a.refused, err)
	}
}

// clean holds that every request was answered by one version.
func (a *tally) clean(t *testing.T) {
	t.Helper()
	if len(a.took) == 0 {
		t.Error("nothing was answered")
	}
	for what, errs := range map[string][]error{"refused": a.refused, "mixed": a.mixed} {
		if len(errs) > 0 {
			t.Errorf("%d requests %s, among them: %v", len(errs), what, errs[0])
		}
	}
}

func (a *tally) String() string {
	return fmt.Sprintf("%d answers, %d refused, %d mixed, p50 %v, p99 %v",
		len(a.took), len(a.refused), len(a.mixed), percentile(a.took, 50), percentile(a.took, 99))
}

// percentile sorts durations and returns one of them; zero of none.
func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)*p/100, len(all)-1)].Round(10 * time.Microsecond)
}

// A load asks a server that has a versioned store, single requests and
// batches in turn.
type load struct {
	server *server
	client *http.Client
	pause  time.Duration // of each client after an answer
}

func newLoad(t *testing.T, s *server) *load {
	transport := &http.Transport{MaxIdleConnsPerHost: loadClients}
	t.Cleanup(transport.CloseIdleConnections)
	return &load{server: s, client: &http.Client{Transport: transport, Timeout: process.Patience}}
}

// during has the clients ask for as long as act takes.
func (l *load) during(act func()) *tally {
	done := make(chan struct{})
	var clients sync.WaitGroup
	tallies := make([]tally, loadClients)
	for i := range tallies {
		clients.Go(func() { tallies[i] = l.until(done) })
	}
	act()
	close(done)
	clients.Wait()
	all := new(tally)
	for _, part := range tallies {
		all.add(part)
	}
	return all
}

func (l *load) until(done <-chan struct{}) (all tally) {
	for n := 0; ; n++ {
		select {
		case <-done:
			return all
		case <-time.After(l.pause):
		}
		path, body, decisions := authzen.PathEvaluation, loadRequest, 1
		if n%2 == 1 {
			path, body, decisions = authzen.PathEvaluations, loadBatch, batchItems
		}
		start := time.Now()
		_, err := l.ask(path, body, decisions)
		all.note(time.Since(start), err)
	}
}

// version asks one request.
func (l *load) version() (string, error) { return l.ask(authzen.PathEvaluation, loadRequest, 1) }

// await waits until a version answers, and returns how long it took.
func (l *load) await(t *testing.T, version int) time.Duration {
	t.Helper()
	start, want := time.Now(), strconv.Itoa(version)
	process.Eventually(t, "version "+want+" is in force", func() bool {
		got, err := l.version()
		return err == nil && got == want
	})
	return time.Since(start)
}

// ask returns the version by which all decisions of an answer were made.
func (l *load) ask(path, body string, decisions int) (string, error) {
	response, err := l.client.Post(l.server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%w: %s %s", errNoAnswer, response.Status, answer)
	}
	return versionOf(string(answer), decisions)
}

// slower returns how many times longer the slowest hundredth of a took than
// that of b.
func slower(a, b *tally) float64 {
	return float64(percentile(a.took, 99)) / float64(cmp.Or(percentile(b.took, 99), 1))
}
