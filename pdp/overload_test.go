package pdp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp"
)

// A model is a service on two processors, which its clients share with it, and a
// disk that flushes at once what has come meanwhile. Its limits are the real
// ones, and its clock goes on only where somebody works or waits: the figures are
// the same on every machine.
type model struct {
	echo       *echo.Echo
	request    *http.Request // each
	serve      echo.HandlerFunc
	processors chan struct{}
	disk       time.Duration // of a flush
	clients    sync.WaitGroup

	mu       sync.Mutex
	flushing []chan struct{} // those who wait for the disk
	decided  []answered
	shed     int
}

// An answered request was due and had its answer at a time since the beginning.
type answered struct {
	tenant  string
	due, at time.Duration
}

// What a request takes of a processor, about as measured.
const (
	modelSend    = 8 * time.Microsecond
	modelRead    = 10 * time.Microsecond
	modelDecide  = 38 * time.Microsecond
	modelWrite   = 8 * time.Microsecond
	modelReceive = 12 * time.Microsecond
)

func newModel(disk time.Duration, limits pdp.Limits) *model {
	m := &model{echo: echo.New(), request: httptest.NewRequest(http.MethodPost, "/", nil), processors: make(chan struct{}, 2), disk: disk}
	m.serve = pdp.NewInFlight(limits)(func(echo.Context) error {
		m.work(modelDecide)
		m.flush()
		m.work(modelWrite)
		return nil
	})
	return m
}

// work takes a processor for so long.
func (m *model) work(d time.Duration) {
	m.processors <- struct{}{}
	time.Sleep(d)
	<-m.processors
}

// flush waits until the disk has flushed what there is now.
func (m *model) flush() {
	done := make(chan struct{})
	m.mu.Lock()
	m.flushing = append(m.flushing, done)
	if len(m.flushing) == 1 {
		m.clients.Go(m.flushAll)
	}
	m.mu.Unlock()
	<-done
}

func (m *model) flushAll() {
	for left := 1; left > 0; {
		m.mu.Lock()
		batch := m.flushing
		m.mu.Unlock()
		time.Sleep(m.disk)
		for _, done := range batch {
			close(done)
		}
		m.mu.Lock()
		m.flushing = m.flushing[len(batch):]
		left = len(m.flushing)
		m.mu.Unlock()
	}
}

// ask asks something as a tenant that was due at a time since start.
func (m *model) ask(tenant string, start time.Time, due time.Duration) {
	m.work(modelSend + modelRead)
	e := m.echo.NewContext(m.request, nil)
	e.SetParamNames("tenant")
	e.SetParamValues(tenant)
	err := m.serve(e)
	if err != nil {
		m.work(modelWrite)
	}
	m.work(modelReceive)
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, pdp.ErrOverload) {
		m.shed++
		return
	}
	m.decided = append(m.decided, answered{tenant, due, time.Since(start)})
}

// saturate has each of so many clients ask as soon as it is answered.
func (m *model) saturate(clients int, duration time.Duration) {
	start := time.Now()
	for range clients {
		m.clients.Go(func() {
			for time.Since(start) < duration {
				m.ask("", start, time.Since(start))
			}
		})
	}
	m.clients.Wait()
}

// stream has requests come at a rate, of that many clients who each wait for an
// answer. What comes when all of them wait is not asked.
func (m *model) stream(tenant string, rate float64, clients int, duration time.Duration) {
	idle := make(chan struct{}, clients)
	start, n := time.Now(), 0.0
	for ; time.Since(start) < duration; time.Sleep(time.Millisecond) {
		for ; n < time.Since(start).Seconds()*rate; n++ {
			select {
			case idle <- struct{}{}:
				due := time.Duration(n / rate * float64(time.Second))
				m.clients.Go(func() { m.ask(tenant, start, due); <-idle })
			default:
			}
		}
	}
}

// figures are the decisions a second of a tenant's, and percentiles of how long
// they took, of those that were made between two times.
func (m *model) figures(tenant string, from, until time.Duration) (rate float64, p50, p99 time.Duration) {
	var took []time.Duration
	for _, a := range m.decided {
		if a.tenant == tenant && from <= a.at && a.at < until {
			took = append(took, a.at-a.due)
		}
	}
	slices.Sort(took)
	return float64(len(took)) / (until - from).Seconds(), took[len(took)/2], took[len(took)*99/100]
}

// L2 in a model, on a fast disk and on a slow one: asked three times as much as
// it can answer, the service answers as much as ever, and soon. The control has
// no limit. It takes a second to find how many requests are worked on at once.
func TestOverloadModel(t *testing.T) {
	const second, end = time.Second, 3 * time.Second
	for _, test := range []struct {
		name    string
		disk    time.Duration
		clients int // that are enough for all that can be answered
		soon    time.Duration
	}{
		{"a fast disk", 400 * time.Microsecond, 64, 30 * time.Millisecond},
		{"a slow disk", 20 * time.Millisecond, 256, 120 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full := newModel(test.disk, pdp.Limits{})
				full.saturate(test.clients, second)
				capacity, _, _ := full.figures("", 0, second)
				over := newModel(test.disk, pdp.Limits{})
				over.stream("", 3*capacity, 3000, end)
				over.clients.Wait()
				rate, p50, p99 := over.figures("", second, end)
				lifted := newModel(test.disk, pdp.Limits{InFlight: 1 << 20})
				lifted.stream("", 3*capacity, 3000, second)
				lifted.clients.Wait()
				_, control, _ := lifted.figures("", second/2, second)
				t.Logf("%.0f/s can be answered; of three times as much %.2f of that are, p50 %v, p99 %v; without a limit p50 %v; %d turned away",
					capacity, rate/capacity, p50, p99, control, over.shed)
				if rate < 0.9*capacity || p99 > test.soon {
					t.Errorf("wanted are 0.9 and %v", test.soon)
				}
				if control < test.soon && test.disk < time.Millisecond {
					t.Error("the control is as soon")
				}
			})
		})
	}
}

// More clients than are worked on at once, each of which waits for its answer,
// are no overload: nobody is turned away.
func TestManyClientsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(400*time.Microsecond, pdp.Limits{})
		m.saturate(600, time.Second)
		if m.shed > 0 {
			t.Errorf("%d are turned away, %d answered", m.shed, len(m.decided))
		}
	})
}

// L2 in a model: a tenant that asks three times as much as can be answered takes
// nothing from others but the time of what is being worked on.
func TestNoisyTenantModel(t *testing.T) {
	const second, end, soon = time.Second, 2 * time.Second, 30 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		m := newModel(400*time.Microsecond, pdp.Limits{})
		var streams sync.WaitGroup
		streams.Go(func() { m.stream("noisy", 78_000, 3000, end) })
		streams.Go(func() { m.stream("quiet", 1000, 1000, end) })
		streams.Wait()
		m.clients.Wait()
		noisy, _, _ := m.figures("noisy", second, end)
		rate, p50, p99 := m.figures("quiet", second, end)
		t.Logf("of 1000/s beside noise %.0f are answered, p50 %v, p99 %v; of the noise %.0f", rate, p50, p99, noisy)
		if rate < 990 || p99 > soon {
			t.Errorf("wanted are all of them and %v", soon)
		}
	})
}
