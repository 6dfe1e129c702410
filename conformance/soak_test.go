package conformance_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	soakDuration = flag.Duration("soak.duration", 4*time.Second, "how long TestSoak asks")
	soakRate     = flag.Float64("soak.rate", 0, "requests a second of TestSoak; 0 is half of what can be decided")
)

const (
	soakSamples = 60
	// enoughSoak is from how long on a slope means anything.
	enoughSoak = 10 * time.Minute
	// maxGrowth is how many bytes of memory a service may gain in a minute.
	maxGrowth = 1 << 20
	// maxMore is how many goroutines and descriptors it may gain.
	maxMore = 16
)

// A sample is what a running service uses.
type sample struct {
	at                      time.Time
	memory                  float64 // bytes that are no file's
	goroutines, descriptors float64
}

// sampled asks a service what it uses.
func (s *server) sampled(t *testing.T) sample {
	t.Helper()
	all := s.metrics(t)
	return sample{time.Now(), s.anonymous(t), all["go_goroutines"], all["process_open_fds"]}
}

// metrics are what /metrics has that has no labels.
func (s *server) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for line := range strings.Lines(s.page(t)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			all[name] = value
		}
	}
	return all
}

// page is what /metrics answers.
func (s *server) page(t *testing.T) string {
	t.Helper()
	response, err := http.Get(s.Admin + "/metrics")
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return string(text)
}

// anonymous is the memory of the process that is not of mapped files, such as
// those of the log.
func (s *server) anonymous(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.Process.Process.Pid), "status"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == "RssAnon:" {
			kilobytes, err := strconv.ParseFloat(fields[1], 64)
			must(t, err)
			return kilobytes * 1024
		}
	}
	t.Fatal("the kernel does not say how much memory is anonymous")
	return 0
}

// growth is what a service gains in a minute, by least squares over the samples
// of the later three quarters, when it has warmed up.
func growth(samples []sample, of func(sample) float64) float64 {
	samples = samples[len(samples)/4:]
	var sumX, sumY, sumXX, sumXY float64
	n := float64(len(samples))
	for _, s := range samples {
		x, y := s.at.Sub(samples[0].at).Minutes(), of(s)
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}

func memory(s sample) float64      { return s.memory }
func goroutines(s sample) float64  { return s.goroutines }
func descriptors(s sample) float64 { return s.descriptors }

// TestSoak asks a service half of what it can answer for a long time: nothing
// fails and nothing grows. Segments of the log are begun and removed meanwhile.
func TestSoak(t *testing.T) {
	underLoad(t)
	linux(t)
	s := serve(t, "certification", "--log.segment-bytes", fmt.Sprint(64<<20), "--log.retention-bytes", fmt.Sprint(512<<20))
	capacity := newStream(s, "", 0).saturate(64, min(*soakDuration/4, 10*time.Second)).goodput()
	all, samples := soak(t, s, *soakDuration, cmp.Or(*soakRate, capacity/2), func() {})
	t.Logf("of %.0f/s that could be decided at first: %d of %d decided, %d turned away or too late, %d not sent, the slowest p99 of %d parts %v",
		capacity, all.decided, all.due, all.failed, all.unsent, soakSamples, all.slowest)
	first, last := samples[len(samples)/4], samples[len(samples)-1]
	t.Logf("warm: %.1f MiB, %.0f goroutines, %.0f descriptors; at the end %.1f MiB, %.0f, %.0f; memory grows by %.3f MiB a minute",
		first.memory/(1<<20), first.goroutines, first.descriptors, last.memory/(1<<20), last.goroutines, last.descriptors, growth(samples, memory)/(1<<20))
	if *soakDuration >= enoughSoak && growth(samples, memory) > maxGrowth {
		t.Errorf("memory grows by more than %d bytes a minute", maxGrowth)
	}
	if *soakDuration >= enoughSoak && all.failed > 0 {
		t.Errorf("%d of %d requests were not decided", all.failed, all.due)
	}
	if leaks(samples) {
		t.Errorf("goroutines or descriptors grow: %v", samples)
	}
}

// A client that leaves connections open is seen as a leak: the control. It is
// over before the service closes them because nothing is asked.
func TestSoakControl(t *testing.T) {
	underLoad(t)
	linux(t)
	s := serve(t, "certification")
	_, samples := soak(t, s, min(*soakDuration, 30*time.Second), 100, func() {
		for range 4 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			_, err = fmt.Fprint(conn, "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n")
			must(t, err)
		}
	})
	if !leaks(samples) {
		t.Errorf("a leak is not seen: %v", samples)
	}
}

// leaks reports whether more goroutines run or more files are open in the last
// quarter than in the second, at the least busy moment of each.
func leaks(samples []sample) bool {
	n := len(samples)
	for _, of := range []func(sample) float64{goroutines, descriptors} {
		if least(samples[3*n/4:], of)-least(samples[n/4:n/2], of) > maxMore {
			return true
		}
	}
	return false
}

func least(samples []sample, of func(sample) float64) float64 {
	least := of(samples[0])
	for _, s := range samples {
		least = min(least, of(s))
	}
	return least
}

// A soaking is what became of the requests.
type soaking struct {
	due, decided, failed int
	unsent               int           // found every PEP waiting
	slowest              time.Duration // p99 of a part
}

// soak asks for so long at a rate, and does something beside, and samples.
func soak(t *testing.T, s *server, duration time.Duration, rate float64, beside func()) (all soaking, samples []sample) {
	t.Helper()
	stream := newStream(s, "", rate)
	for n := range soakSamples {
		part := stream.run(duration / soakSamples)
		if duration >= enoughSoak {
			t.Logf("%2d: %v", n, part)
		}
		part.clean(t)
		all.due, all.decided, all.failed = all.due+part.due, all.decided+len(part.answers), all.failed+part.failed()
		all.unsent, all.slowest = all.unsent+part.unsent, max(all.slowest, part.p(99))
		beside()
		samples = append(samples, s.sampled(t))
	}
	return all, samples
}

func linux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
}

// underLoad leaves a test that keeps the processors busy for seconds out of a
// short run.
func underLoad(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("puts load on the program: make check runs it")
	}
}
