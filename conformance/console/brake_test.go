package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A slice is what decisions cost in a part of the time.
type slice struct {
	latencies []time.Duration
	processor time.Duration
	wall      time.Duration
}

func (s *slice) p99() time.Duration {
	slices.Sort(s.latencies)
	return s.latencies[len(s.latencies)*99/100]
}

// timed asks for 400 decisions a second until ctx ends, and adds what they cost.
func (s *service) timed(ctx context.Context, to *slice) {
	s.test.Helper()
	const workers = 4
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()
	before, start := s.processorTime(), time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				asked := time.Now()
				answer, err := client.Post(s.URL+authzen.PathEvaluation, "application/json", strings.NewReader(fmt.Sprintf(`{"subject":{"type":"user","id":"agent-%d"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{"owner":"bob"}}`, n)))
				if err != nil {
					s.test.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				mu.Lock()
				to.latencies = append(to.latencies, time.Since(asked))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	to.processor, to.wall = to.processor+s.processorTime()-before, to.wall+time.Since(start)
}

// repeat posts to the admin API again and again until ctx ends. It returns the number of posts that were accepted.
func (s *service) repeat(ctx context.Context, path, body string, pause time.Duration) (accepted int) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Admin+path, strings.NewReader(body))
		if err != nil {
			s.test.Error(err)
			return accepted
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			if answer.StatusCode < http.StatusBadRequest {
				accepted++
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return accepted
}

// endReplays cancels the replays that run, and waits for their end, so that they cost nothing in the next slice.
func (s *service) endReplays() {
	s.test.Helper()
	process.Eventually(s.test, "the replays have ended", func() bool {
		var list pdp.ReplayJobs
		s.get(s.Admin+pdp.PathReplays, &list)
		ended := true
		for _, job := range list.Replays {
			if job.State != "running" {
				continue
			}
			ended = false
			r, err := http.NewRequest(http.MethodDelete, s.Admin+pdp.PathReplays+"/"+job.ID, nil)
			if err != nil {
				s.test.Fatal(err)
			}
			if answer, err := http.DefaultClient.Do(r); err == nil {
				answer.Body.Close()
			}
		}
		return ended
	})
}

// A replay that runs, and tries at their rate limit, make the 99th percentile of decisions at most 1.5 times as long.
// Slices of the time with and without them alternate, so that all have the same neighbours. A replay may take a
// tenth of the time of one processor. The short form holds the processor time alone, which neighbours do not change.
func TestReplaysAndTriesBrakeLittle(t *testing.T) {
	const most, share = 1.5, 0.35
	rounds, length := 1, time.Second
	if *liveRounds > 0 {
		rounds, length = *liveRounds, 2*time.Second
	}
	shadow := t.TempDir()
	if err := os.WriteFile(filepath.Join(shadow, "a.cedar"), []byte(logPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveStore(t, fstest.MapFS{"a.cedar": {Data: []byte(logPolicies)}}, "--shadow", shadow)
	fill, full := context.WithTimeout(t.Context(), 2*length)
	s.load(fill, 0) // a log whose replay takes longer than a slice
	full()
	names := []string{"alone", "with a replay", "with tries"}
	var all [3]slice
	for round := range 3 * rounds {
		kind := round % 3
		ctx, cancel := context.WithTimeout(t.Context(), length)
		var work sync.WaitGroup
		work.Go(func() {
			switch {
			case kind == 1 && s.repeat(ctx, pdp.PathReplays+"?store=shadow", "", 20*time.Millisecond) == 0:
				t.Error("no replay ran")
			case kind == 2 && s.repeat(ctx, pdp.PathTry, `{"request":{"subject":{"type":"user","id":"x"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}}`, 20*time.Millisecond) == 0:
				t.Error("nothing was tried")
			}
		})
		s.timed(ctx, &all[kind])
		work.Wait()
		cancel()
		s.endReplays()
	}
	alone := float64(all[0].processor.Microseconds()) / float64(len(all[0].latencies))
	for i := range all {
		of := &all[i]
		ratio := float64(of.p99()) / float64(all[0].p99())
		extra := (of.processor.Seconds() - alone*float64(len(of.latencies))/1e6) / of.wall.Seconds()
		t.Logf("%s: %d decisions, p99 %s, ratio %.2f, %.0f µs of processor time a decision, %.2f of a processor more", names[i], len(of.latencies), of.p99(), ratio, float64(of.processor.Microseconds())/float64(len(of.latencies)), extra)
		if *liveRounds > 0 && ratio > most || extra > share {
			t.Errorf("%s, p99 is %.2f times as long, and %.2f of a processor more is busy", names[i], ratio, extra)
		}
	}
}
