package conformance_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A stream is requests that come at a constant rate, however fast they are
// answered: who asks a PDP does not wait for what others are answered. How long
// an answer took counts from when its request was due, so that a server which
// stalls does not hide those that would have come meanwhile.
type stream struct {
	address string // of the server
	request string // one of HTTP/1.1, whole
	rate    float64
	peps    int // requests that are under way at most
}

const (
	// streamPEPs is as many as a service has connections with.
	streamPEPs = 1024
	// streamPatience is how long a PEP waits for an answer.
	streamPatience = time.Second
)

// A flow is what became of a stream.
type flow struct {
	due     int
	answers []decided // decisions
	shed    int       // 429 and 503, with Retry-After
	unsent  int       // found no connection free
	late    int       // had no answer in time
	errs    []error   // anything else
	took    time.Duration
}

type decided struct {
	due  time.Time
	held time.Duration // until it was sent
	took time.Duration
}

// newStream is requests of a tenant, or of none.
func newStream(s *server, tenant string, rate float64) *stream {
	path := "/access/v1/evaluation"
	if tenant != "" {
		path = "/tenants/" + tenant + path
	}
	return &stream{
		address: strings.TrimPrefix(s.URL, "http://"),
		request: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(readsRecord1), readsRecord1),
		rate:    rate,
		peps:    streamPEPs,
	}
}

// run has requests come for so long, and waits until all are answered.
func (s *stream) run(duration time.Duration) *flow {
	return s.serve(func(arrivals chan<- time.Time, f *flow) {
		start := time.Now()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for now := start; now.Sub(start) < duration; now = <-tick.C {
			for want := int(now.Sub(start).Seconds()*s.rate) + 1; f.due < want; f.due++ {
				select {
				case arrivals <- start.Add(time.Duration(float64(f.due) / s.rate * float64(time.Second))):
				default: // every PEP waits for an answer
					f.unsent++
				}
			}
		}
	})
}

// saturate has each of so many PEPs ask as soon as it is answered, for so long.
func (s *stream) saturate(peps int, duration time.Duration) *flow {
	s.peps = peps
	return s.serve(func(arrivals chan<- time.Time, f *flow) {
		for start := time.Now(); time.Since(start) < duration; f.due++ {
			arrivals <- time.Now()
		}
	})
}

// serve has PEPs ask for what arrives.
func (s *stream) serve(arrive func(chan<- time.Time, *flow)) *flow {
	arrivals := make(chan time.Time) // what no PEP takes at once is not sent
	flows := make([]flow, s.peps)
	var peps sync.WaitGroup
	for i := range flows {
		peps.Go(func() { flows[i] = s.answered(arrivals) })
	}
	all, start := new(flow), time.Now()
	arrive(arrivals, all)
	all.took = time.Since(start)
	close(arrivals)
	peps.Wait()
	for _, f := range flows {
		all.add(&f)
	}
	return all
}

// add adds what became of other requests.
func (f *flow) add(other *flow) {
	f.due += other.due
	f.answers = append(f.answers, other.answers...)
	f.shed += other.shed
	f.unsent += other.unsent
	f.late += other.late
	f.errs = append(f.errs, other.errs...)
	f.took += other.took
}

// answered asks over one connection whenever a request is due.
func (s *stream) answered(arrivals <-chan time.Time) (f flow) {
	var conn net.Conn
	var reader *bufio.Reader
	hangUp := func() {
		if conn != nil {
			conn.Close()
		}
		conn = nil
	}
	defer hangUp()
	for due := range arrivals {
		if time.Since(due) > streamPatience {
			f.late++
			continue
		}
		if conn == nil {
			var err error
			if conn, err = net.DialTimeout("tcp", s.address, streamPatience); err != nil {
				f.note(err)
				conn = nil
				continue
			}
			reader = bufio.NewReader(conn)
		}
		held := time.Since(due)
		switch status, err := s.ask(conn, reader, due.Add(streamPatience)); {
		case err == nil && status == http.StatusOK:
			f.answers = append(f.answers, decided{due, held, time.Since(due)})
		case err == nil:
			f.shed++
		default:
			f.note(err)
			hangUp()
		}
	}
	return f
}

// note counts a request that has no answer.
func (f *flow) note(err error) {
	if isTimeout(err) {
		f.late++
	} else {
		f.errs = append(f.errs, err)
	}
}

// ask returns the status of an answer: that of a decision, or of a refusal that
// says when to ask again.
func (s *stream) ask(conn net.Conn, reader *bufio.Reader, until time.Time) (int, error) {
	if err := conn.SetDeadline(until); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, s.request); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	switch status := response.StatusCode; {
	case status == http.StatusOK && string(body) == `{"decision":true}`,
		(status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) && response.Header.Get("Retry-After") != "":
		return status, nil
	}
	return 0, fmt.Errorf("%w: %s %s", errNoAnswer, response.Status, body)
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// failed is how many requests were sent and not decided in time.
func (f *flow) failed() int { return f.shed + f.late + len(f.errs) }

// goodput is how many requests were decided in a second.
func (f *flow) goodput() float64 { return float64(len(f.answers)) / f.took.Seconds() }

// p is a percentile of how long decisions took.
func (f *flow) p(percent int) time.Duration {
	return f.percentile(percent, func(d decided) time.Duration { return d.took })
}

func (f *flow) percentile(percent int, of func(decided) time.Duration) time.Duration {
	var all []time.Duration
	for _, a := range f.answers {
		all = append(all, of(a))
	}
	return percentile(all, percent)
}

func (f *flow) String() string {
	held := f.percentile(99, func(d decided) time.Duration { return d.held })
	return fmt.Sprintf("%d due in %v: %d decided (%.0f/s, p50 %v, p99 %v, of which until it was sent %v), %d turned away, %d not sent, %d too late, %d errors",
		f.due, f.took.Round(time.Millisecond), len(f.answers), f.goodput(), f.p(50), f.p(99), held, f.shed, f.unsent, f.late, len(f.errs))
}

// clean holds that nothing went wrong but what overload explains.
func (f *flow) clean(t *testing.T) {
	t.Helper()
	if len(f.errs) > 0 {
		t.Errorf("%d errors, among them: %v", len(f.errs), f.errs[0])
	}
}
