package pdp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// L2: what is too much is turned away before its body is read, and what waits
// does not wait for ever.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := pdp.NewInFlight(pdp.Limits{InFlight: 1, Queue: 1, Wait: time.Second})
		release := make(chan struct{})
		serve := limit(func(c echo.Context) error {
			<-release
			return nil
		})
		errs := make([]error, 4)
		var clients sync.WaitGroup
		ask := func(i int) {
			clients.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/", unread{t})
				errs[i] = serve(echo.New().NewContext(r, httptest.NewRecorder()))
			})
			synctest.Wait()
		}
		ask(0) // works
		ask(1) // waits
		ask(2) // finds the queue full
		time.Sleep(2 * time.Second)
		synctest.Wait()
		ask(3) // waits for the first to end
		close(release)
		clients.Wait()
		for i, want := range []error{nil, pdp.ErrOverload, pdp.ErrOverload, nil} {
			if errs[i] != want {
				t.Errorf("request %d: %v, want %v", i, errs[i], want)
			}
		}
	})
}

// unread fails a test that reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, nil
}

// A tenant that asks too often is turned away, and no other is.
func TestTenantRate(t *testing.T) {
	s := start(t, pdp.Config{Limits: pdp.Limits{TenantRate: 0.001}})
	statuses := func(path, body string) string {
		var all []string
		for range 3 {
			response, _ := post(t, http.DefaultClient, s.main+path, body)
			all = append(all, response.Status[:3])
			if (response.StatusCode == 429) != (response.Header.Get("Retry-After") != "") {
				t.Errorf("%s with Retry-After %q", response.Status, response.Header.Get("Retry-After"))
			}
		}
		return strings.Join(all, " ")
	}
	for _, test := range []struct{ path, body, want string }{
		{"/tenants/noisy" + authzen.PathEvaluation, aliceReads, "200 429 429"},
		{"/tenants/noisy" + authzen.PathEvaluations, aliceReads, "429 429 429"},
		{"/tenants/quiet" + authzen.PathEvaluation, aliceReads, "200 429 429"},
		{authzen.PathAuthorize, aliceInAcme, "200 429 429"},
		{authzen.PathSearchAction, aliceReads, "200 429 429"},
	} {
		if got := statuses(test.path, test.body); got != test.want {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
}
