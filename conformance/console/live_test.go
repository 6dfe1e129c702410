package console_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
)

var (
	liveDuration = flag.Duration("live.duration", 0, "how long the live page is loaded; 0 is the short form, which holds no budget of frames")
	liveRounds   = flag.Int("live.rounds", 0, "rounds with and without streams; 0 is the short form, which allows for noise")
)

// load asks for decisions until ctx ends, at a rate for a second, or with 0 as fast as the service answers. It
// returns their number.
func (s *service) load(ctx context.Context, rate int) int64 {
	s.test.Helper()
	const workers = 8
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()
	var done atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			var pace <-chan time.Time
			if rate > 0 {
				ticker := time.NewTicker(workers * time.Second / time.Duration(rate))
				defer ticker.Stop()
				pace = ticker.C
			}
			for ctx.Err() == nil {
				if pace != nil {
					<-pace
				}
				action := []string{"read", "write"}[done.Load()%2]
				body := fmt.Sprintf(`{"subject":{"type":"user","id":"agent-%d"},"action":{"name":%q},"resource":{"type":"doc","id":"plan"},"context":{"owner":"bob"}}`, done.Load()%100, action)
				answer, err := client.Post(s.URL+"/access/v1/evaluation", "application/json", strings.NewReader(body))
				if err != nil {
					s.test.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				done.Add(1)
			}
		})
	}
	group.Wait()
	return done.Load()
}

// processorTime returns the processor time of the program so far.
func (s *service) processorTime() time.Duration {
	s.test.Helper()
	total := time.Duration(0)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.Process.Process.Pid))
	if err != nil {
		s.test.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", s.Process.Process.Pid, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(nanoseconds, 10, 64)
		if err != nil {
			s.test.Fatal(err)
		}
		total += time.Duration(n)
	}
	return total
}

// costs returns how many times as much processor time a decision takes with something beside it as without. Slices
// of the time with and without it alternate, so that both have the same neighbours. Decisions come at a rate as load has it.
func (s *service) costs(rounds int, slice time.Duration, rate int, what string, beside func(context.Context)) (ratio float64) {
	s.test.Helper()
	var spent [2]time.Duration
	var decisions [2]int64
	for round := range 2 * rounds {
		with := round % 2
		ctx, cancel := context.WithTimeout(s.test.Context(), slice)
		if with == 1 {
			beside(ctx)
		}
		before := s.processorTime()
		decisions[with] += s.load(ctx, rate)
		spent[with] += s.processorTime() - before
		cancel()
	}
	each := func(i int) float64 { return float64(spent[i].Microseconds()) / float64(decisions[i]) }
	ratio = each(1) / each(0)
	s.test.Logf("%.1f µs for each of %d decisions alone, %.1f µs for each of %d with %s: %.3f", each(0), decisions[0], each(1), decisions[1], what, ratio)
	return ratio
}

// budget returns the number of rounds of a measurement and the most that it may find. The short form allows for noise.
func budget() (rounds int, most float64) {
	if *liveRounds > 0 {
		return *liveRounds, 1.02
	}
	return 2, 1.25
}

// Twenty open streams cost decisions at most 2 % of processor time.
func TestStreamsCostLittle(t *testing.T) {
	rounds, most := budget()
	s := serveLogged(t)
	ratio := s.costs(rounds, 2*time.Second, 0, "20 streams", func(ctx context.Context) {
		for range 20 {
			s.watch(ctx)
		}
	})
	if ratio > most {
		t.Errorf("streams cost %.1f %%", 100*(ratio-1))
	}
}

// Twenty open pages that keep up cost 1,000 decisions a second at most 2 % of processor time.
func TestOpenPagesCostLittle(t *testing.T) {
	rounds, most := budget()
	s := serveStore(t, fstest.MapFS{"a.cedar": {Data: []byte(logPolicies)}, "b.cedar": {Data: []byte(approvalPolicies)}, "config.yaml": {Data: []byte(approvalTerms)}})
	task := (&office{s}).asked("call", "alice", ordinary)
	pages := []string{"/", "/requests", "/requests/" + task}
	var open []*openPage
	var asking sync.WaitGroup
	t.Cleanup(asking.Wait)
	for n := range 4 {
		browser := s.client(fmt.Sprintf("user:carol-%d", n))
		for range 5 {
			page := &openPage{service: s, browser: browser, path: pages[len(open)%len(pages)]}
			page.poll(t.Context())
			open = append(open, page)
		}
	}
	next := 0
	ratio := s.costs(4*rounds, time.Second/2, 1000, "20 open pages", func(ctx context.Context) {
		asking.Go(func() {
			for each := time.Tick(pollPause / 20); ctx.Err() == nil; next++ {
				select {
				case <-each:
					open[next%len(open)].poll(ctx)
				case <-ctx.Done():
				}
			}
		})
	})
	if ratio > most {
		t.Errorf("open pages cost %.1f %%", 100*(ratio-1))
	}
}

// client returns an HTTP client with the session of a person.
func (s *service) client(person string) *http.Client {
	s.test.Helper()
	link, err := url.Parse(s.link(person))
	if err != nil {
		s.test.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.test.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	s.test.Cleanup(client.CloseIdleConnections)
	r, err := http.NewRequestWithContext(s.test.Context(), http.MethodPost, s.console+"/sign-in/local", strings.NewReader(link.RawQuery))
	if err != nil {
		s.test.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.console)
	answer, err := client.Do(r)
	if err != nil {
		s.test.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		s.test.Fatalf("%s is not signed in: %s, %v", person, answer.Status, err)
	}
	return client
}

// An openPage asks as watch.mjs does whether it is up to date.
type openPage struct {
	*service
	browser *http.Client
	path    string
	tag     string
}

// pollPause is the time between two questions of an open page.
const pollPause = 1500 * time.Millisecond

// poll asks once.
func (p *openPage) poll(ctx context.Context) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.console+p.path, nil)
	if err != nil {
		p.test.Error(err)
		return
	}
	r.Header.Set("Console-Poll", "1")
	r.Header.Set("If-None-Match", p.tag)
	answer, err := p.browser.Do(r)
	if err != nil {
		return // ctx has ended
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	switch answer.StatusCode {
	case http.StatusOK:
		p.tag = answer.Header.Get("ETag")
	case http.StatusNotModified:
	default:
		p.test.Errorf("%s: %s", p.path, answer.Status)
	}
}

// watch reads a stream until ctx ends.
func (s *service) watch(ctx context.Context) {
	s.test.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Admin+"/admin/v1/log/stream", nil)
	if err != nil {
		s.test.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		s.test.Fatal(answer, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}()
}

// measures counts frames and long tasks on a page from now on.
const measures = `(() => {
	window.measured = {frames: 0, longest: 0, since: performance.now()};
	const frame = () => { window.measured.frames++; requestAnimationFrame(frame) };
	requestAnimationFrame(frame);
	new PerformanceObserver(list => { for (const e of list.getEntries()) window.measured.longest = Math.max(window.measured.longest, e.duration) }).observe({type: "longtask"});
	return true })()`

// A page that shows 1,000 decisions a second stays fluent, and its memory does not grow. Only the long form
// holds frames against the budget.
func TestLiveUnderLoad(t *testing.T) {
	took := cmp.Or(*liveDuration, 5*time.Second)
	s := serveLogged(t)
	b := s.signIn(t, "user:carol", look{desktop: true})
	b.visit("/live")
	b.sees("Connected")
	eval[bool](b, measures)
	ctx, cancel := context.WithTimeout(t.Context(), took)
	defer cancel()
	loaded := make(chan int64, 1)
	go func() { loaded <- s.load(ctx, 1000) }()
	var heaps []float64
	for look := time.NewTicker(took / 20); ctx.Err() == nil; {
		select {
		case <-look.C:
			heaps = append(heaps, eval[float64](b, `performance.memory.usedJSHeapSize / 1e6`))
		case <-ctx.Done():
		}
	}
	decisions := <-loaded
	frames := eval[float64](b, `measured.frames / (performance.now() - measured.since) * 1000`)
	longest := eval[float64](b, `measured.longest`)
	process.Eventually(t, "the page has counted every decision", func() bool {
		return eval[int64](b, `Number(document.getElementById("allowed").textContent) + Number(document.getElementById("denied").textContent)`) == decisions
	})
	rows := eval[int](b, `document.querySelectorAll("#entries a").length`)
	t.Logf("%d decisions in %s: %.0f frames/s, longest task %.0f ms, %d rows, heap in MB: %.1f", decisions, took, frames, longest, rows, heaps)
	if rows > 50 {
		t.Errorf("%d rows", rows)
	}
	if *liveDuration > 0 && (frames < 50 || longest > 150) {
		t.Errorf("%.0f frames/s, longest task %.0f ms", frames, longest)
	}
	if n := len(heaps); n > 8 && mean(heaps[n/2:]) > mean(heaps[:n/2])+8 {
		t.Errorf("the heap of the page grows: %.1f MB", heaps)
	}
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// gaps returns what is wrong with the indexes of the listed entries: each is one less than the one above it, unless
// the page says between them how many are missing.
const gaps = `[...document.querySelectorAll("#entries li")].reduce((at, li) => {
	if (li.className === "gap") return at.index < 0 ? {...at, wrong: [...at.wrong, "a gap above all"]} : {...at, missing: at.missing + parseInt(li.textContent)};
	const index = Number(li.querySelector("a").pathname.split("/").pop());
	if (at.index >= 0 && at.index - at.missing - 1 !== index) at.wrong.push(at.index + " is above " + index + " with " + at.missing + " between");
	return {...at, index, missing: 0};
}, {index: -1, missing: 0, wrong: []}).wrong`

// A laptop that was closed for a minute goes on where it was: whether its connection has ended meanwhile or is dead
// without anybody saying so, each entry is listed or counted once.
func TestAcceptance18LaptopClosed(t *testing.T) {
	s := serveLogged(t)
	line := newCable(t, s.console)
	b := open(t, line.url, look{})
	b.visit(strings.TrimPrefix(s.link("user:carol"), s.console))
	b.click("Sign in")
	b.sees("Sign out")
	b.visit("/live")
	b.sees("Connected")
	asked := 0
	ask := func(who string, n int) {
		s.ask(who, "read", n)
		asked += n
	}
	whole := func(missing string) {
		t.Helper()
		b.until("each decision is counted", func() error {
			if eval[int](b, `Number(document.getElementById("allowed").textContent)`) != asked {
				return errNotYet
			}
			return nil
		})
		if missing != "" {
			b.sees(missing)
		}
		if wrong := eval[[]string](b, gaps); len(wrong) > 0 {
			t.Errorf("the list says nothing of gaps: %q", wrong)
		}
		if skipped := eval[string](b, `document.getElementById("skipped").textContent`); skipped != "0" {
			t.Errorf("%s entries were not received", skipped)
		}
	}
	ask("alice", 5)
	whole("")

	line.drop()
	b.sees("Connection lost. Trying again.")
	ask("bob", 80)
	line.mend()
	b.sees("bob read on plan", "Connected")
	whole("30 entries are not listed")

	line.hush()
	ask("zoe", 3)
	line.mend()
	b.seesNot("zoe")
	eval[bool](b, `(real => { Date.now = () => real() + 60_000; return true })(Date.now)`) // the laptop was closed for a minute
	b.sees("zoe read on plan", "Connected")
	whole("")

	b.click("Pause")
	line.drop()
	ask("eve", 60)
	line.mend()
	b.sees("Paused. 60 entries came since")
	b.seesNot("eve")
	b.click("Go on")
	b.sees("eve read on plan")
	whole("10 entries are not listed")
}
