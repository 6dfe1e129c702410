package pdp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// twoTenants is a store that permits everything.
func twoTenants() fstest.MapFS {
	all := &fstest.MapFile{Data: []byte(`@id("all") permit (principal, action, resource);`)}
	return fstest.MapFS{"tenants/acme/all.cedar": all, "tenants/beta/all.cedar": all}
}

func inTenant(name string) string { return strings.Replace(aliceInAcme, "acme", name, 1) }

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what pools kept the first time
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Invalid tenant names are refused and leave nothing in memory. The control is the same number of
// requests with one name.
func TestInvalidTenantNamesUseNoMemory(t *testing.T) {
	const many, most = 60, 8 << 20
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	s := start(t, pdp.Config{Policies: twoTenants(), Limits: pdp.Limits{TenantRate: 1e6}, Telemetry: pdp.Telemetry{Meters: meters}})
	ask := func(name string, want int) {
		if response, body := post(t, http.DefaultClient, s.main+authzen.PathAuthorize, inTenant(name)); response.StatusCode != want || len(body) > 1000 {
			t.Fatalf("%s %.200s", response.Status, body)
		}
	}
	ask("acme", http.StatusOK)
	before := heap()
	for range many {
		ask("acme", http.StatusOK)
	}
	control := int64(heap()) - int64(before)
	before = heap()
	for n := range many {
		ask(fmt.Sprintf("%d-%s", n, strings.Repeat("t", 900_000)), http.StatusBadRequest)
	}
	if kept := int64(heap()) - int64(before); kept > max(control, 0)+most {
		t.Errorf("%d names of 900 kB leave %d MiB behind; one name as often leaves %d", many, kept>>20, control>>20)
	}
	for _, name := range []string{"", "Acme", "-acme", "a b", `a\nb`, "a\u202eb", strings.Repeat("t", 64)} {
		ask(name, http.StatusBadRequest)
	}
	ask(strings.Repeat("t", 63), http.StatusOK) // denied
	s.stop(t)
	for _, e := range decided(t, s.state) {
		if !authzen.ValidTenant(e.Tenant) {
			t.Errorf("the log has a tenant of %d bytes: %.40q", len(e.Tenant), e.Tenant)
		}
	}
}

// Invented tenant names do not affect the rates and series of a tenant in the store.
func TestUnknownTenantsShareOneSeries(t *testing.T) {
	const many = 2_100 // the SDK of OpenTelemetry has 2,000 series of a metric
	reader := metric.NewManualReader()
	s := start(t, pdp.Config{
		Policies:   twoTenants(),
		Durability: decisionlog.Batched,
		Limits:     pdp.Limits{TenantRate: 1e6},
		Telemetry:  pdp.Telemetry{Meters: metric.NewMeterProvider(metric.WithReader(reader))},
	})
	names := make(chan int)
	var askers sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer client.CloseIdleConnections()
	for range 32 {
		askers.Go(func() {
			for n := range names {
				if _, _, err := send(t.Context(), client, http.MethodPost, s.main+authzen.PathAuthorize, inTenant(fmt.Sprintf("made-up-%d", n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range many {
		names <- n
	}
	close(names)
	askers.Wait()
	if response, body := post(t, client, s.main+authzen.PathAuthorize, inTenant("beta")); response.StatusCode != http.StatusOK || !strings.HasPrefix(body, `{"allow":true`) {
		t.Errorf("%s %s", response.Status, body)
	}
	lines := collected(t, reader)
	for _, want := range []string{
		"policy_service.decisions decision=allow,kind=evaluation,tenant=beta 1",
		fmt.Sprintf("policy_service.decisions decision=deny,kind=evaluation,tenant=* %d", many),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("there is no %q in %d lines", want, len(lines))
		}
	}
	for _, line := range lines {
		if strings.Contains(line, "made-up") || strings.Contains(line, "overflow") {
			t.Fatalf("measured: %s", line)
		}
	}
}

// If the store does not list its tenants, rates of inactive tenants are deleted.
func TestRatesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := pdp.NewPerTenant(pdp.Limits{TenantRate: 10, Queue: 1})(func(echo.Context) error { return nil })
		ask := func(tenant string) error {
			c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), httptest.NewRecorder())
			c.SetParamNames("tenant")
			c.SetParamValues(tenant)
			return serve(c)
		}
		for n := range 10_050 {
			_ = ask(fmt.Sprintf("made-up-%d", n)) // the last of them share a rate
		}
		time.Sleep(time.Minute)
		for range 10 {
			for _, tenant := range []string{"acme", "beta"} {
				if err := ask(tenant); err != nil {
					t.Fatalf("%s: %v", tenant, err)
				}
			}
		}
	})
}
