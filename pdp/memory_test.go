package pdp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// spoken are the protocols that bodies come by.
var spoken = map[string]struct{ http2, tls bool }{"HTTP/1": {false, false}, "HTTP/2": {true, true}}

// Bodies that do not end have one budget, over all connections and their streams:
// what is beyond it is told to come again, and other tenants find room in it.
func TestBodiesHaveOneBudget(t *testing.T) {
	const streams, sent = 64, 64 << 10
	for name, protocol := range spoken {
		t.Run(name, func(t *testing.T) {
			c := pdp.Config{Policies: twoTenants(), MaxBody: 240 << 10, Limits: pdp.Limits{BodyMemory: 1 << 20}}
			if protocol.tls {
				c.TLSCert, c.TLSKey = writeCertificate(t)
			}
			s := start(t, c)
			client := &http.Client{Transport: &http.Transport{
				ForceAttemptHTTP2: protocol.http2,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate names nobody
			}}
			defer client.CloseIdleConnections()
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			statuses := make(chan int, streams)
			var attack sync.WaitGroup
			for range streams {
				body, end := io.Pipe()
				attack.Go(func() {
					_, _ = io.WriteString(end, aliceReads+strings.Repeat(" ", sent-len(aliceReads)))
					<-ctx.Done() // and never ends
					end.CloseWithError(ctx.Err())
				})
				attack.Go(func() {
					defer body.Close()
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.main+"/tenants/acme"+authzen.PathEvaluation, body)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					response, err := client.Do(r)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return // hung up
					}
					response.Body.Close()
					if response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "" {
						t.Error("503 without Retry-After")
					}
					if protocol.http2 != (response.ProtoMajor == 2) {
						t.Errorf("answered by %s", response.Proto)
					}
					statuses <- response.StatusCode
				})
			}
			// Half of the budget is eight such bodies, at most.
			for i := range streams - 8 {
				if status := <-statuses; status != http.StatusServiceUnavailable {
					t.Errorf("body %d, for which there is no room: %d", i, status)
				}
			}
			response, body := post(t, client, s.main+"/tenants/beta"+authzen.PathEvaluation, aliceReads+strings.Repeat(" ", sent))
			if response.StatusCode != http.StatusOK {
				t.Errorf("beside them, another tenant: %s %s", response.Status, body)
			}
			hangUp()
			attack.Wait()
			large := aliceReads + strings.Repeat(" ", 200<<10)
			for {
				response, _ := post(t, client, s.main+"/tenants/acme"+authzen.PathEvaluation, large)
				if response.StatusCode == http.StatusOK {
					break // what they had is there again
				}
			}
		})
	}
}

// A body that does not come is cut off, over HTTP/2, too.
func TestSlowBodiesAreCutOff(t *testing.T) {
	for name, protocol := range spoken {
		t.Run(name, func(t *testing.T) {
			read := make(chan error, 1)
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				read <- err
			})
			served := pdp.NewServer(handler, slog.New(slog.DiscardHandler))
			if served.ReadTimeout <= 0 || served.ReadTimeout > 5*time.Second {
				t.Errorf("a body has %v", served.ReadTimeout)
			}
			served.ReadTimeout = 50 * time.Millisecond
			s := httptest.NewUnstartedServer(handler)
			s.Config, s.EnableHTTP2 = served, protocol.http2
			if protocol.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			body, end := io.Pipe()
			defer end.Close()
			go func() { _, _ = io.WriteString(end, "{") }()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if response, err := s.Client().Do(r); err == nil {
					response.Body.Close()
				}
			}()
			if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
				var timeout net.Error
				if !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Errorf("the body ended with %v", err)
				}
			}
		})
	}
}

// One alone has half of a budget at most, and each that comes next half of what
// is left; what is given back is there again.
func TestMemory(t *testing.T) {
	take, give := pdp.NewMemory(1000)
	all := func(who string) (n int64) {
		for take(who, 10) {
			n += 10
		}
		return n
	}
	a, b, c := all("a"), all("b"), all("c")
	if a != 500 || b != 250 || c != 120 {
		t.Errorf("%d, %d, %d of 1000", a, b, c)
	}
	give("a", a)
	if more := all("b"); more == 0 {
		t.Error("what was given back is not there")
	} else {
		b += more
	}
	give("b", b)
	give("c", c)
	if take("a", 501) || !take("a", 500) {
		t.Error("what was given back is still in use")
	}
}

// Heavy requests wait for others of their kind, and keep nobody's turn meanwhile.
func TestHeavyRequests(t *testing.T) {
	large := strings.Replace(aliceReads, "{", `{"ignored":"`+strings.Repeat("x", 40<<10)+`",`, 1)
	many := aliceReads[:len(aliceReads)-1] + `,"evaluations":[` + strings.TrimSuffix(strings.Repeat("{},", 65), ",") + `]}`
	for name, heavy := range map[string]struct{ path, body string }{
		"a large body":   {authzen.PathEvaluation, large},
		"a large batch":  {authzen.PathEvaluations, many},
		"a small batch":  {authzen.PathEvaluations, strings.Replace(many, "{},", "", 2)},
		"a small body":   {authzen.PathEvaluation, aliceReads},
		"a small search": {authzen.PathSearchAction, aliceReads},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := pdp.NewWork(pdp.Limits{InFlight: 8, BodyMemory: 32 << 20, Wait: time.Second})
				release := make(chan struct{})
				var requests sync.WaitGroup
				worked := make(chan string, 3)
				ask := func(path, body, name string) {
					requests.Go(func() {
						if err := limits(path, body, func() { worked <- name; <-release }); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				ask(heavy.path, heavy.body, "first")
				ask(heavy.path, heavy.body, "second")
				ask(authzen.PathEvaluation, aliceReads, "light")
				got := fmt.Sprint(len(worked))
				want := "3"
				if strings.Contains(name, "large") || strings.Contains(name, "search") {
					want = "2" // one of them, and the light one
				}
				if got != want {
					t.Errorf("%s of 3 are worked on, want %s", got, want)
				}
				close(release)
				requests.Wait()
			})
		})
	}
}
