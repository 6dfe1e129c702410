package pdp_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
)

// askReload sends a request about a reload, with a preference for its wait.
func askReload(t *testing.T, method, url, prefer string) (int, http.Header, pdp.ReloadReport) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Prefer", prefer)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var report pdp.ReloadReport
	if response.StatusCode != 404 {
		if err := json.UnmarshalRead(response.Body, &report); err != nil {
			t.Fatal(err)
		}
	}
	return response.StatusCode, response.Header, report
}

// A long reload is answered in time, continues without a waiting client, and reports its result.
// Concurrent requests during a reload share the next one.
func TestLongReload(t *testing.T) {
	reading, goOn := make(chan bool), make(chan bool)
	var counted sync.Mutex
	settings := 0
	s := start(t, pdp.Config{PolicyDir: writeStore(t), Settings: func() (*pdp.Settings, error) {
		counted.Lock()
		settings++
		counted.Unlock()
		reading <- true
		<-goOn
		return &pdp.Settings{}, nil
	}})
	url := s.admin + pdp.PathReload
	if code, _, _ := askReload(t, "GET", url, "respond-async"); code != 404 {
		t.Errorf("before any reload: %d", code)
	}
	code, header, first := askReload(t, "POST", url, "respond-async")
	if code != 202 || header.Get("Location") != fmt.Sprintf("%s?id=%d", pdp.PathReload, first.ID) || header.Get("Retry-After") == "" || first.Reading == "" {
		t.Errorf("a reload: %d, %v, %+v", code, header, first)
	}
	<-reading
	if code, _, report := askReload(t, "GET", url, "respond-async"); code != 202 || report.ID != first.ID || report.Reading != "settings" || report.Loaded {
		t.Errorf("while it reads settings: %d, %+v", code, report)
	}
	_, _, second := askReload(t, "POST", url, "respond-async")
	_, _, third := askReload(t, "POST", url, "respond-async")
	if second.ID == first.ID || third.ID != second.ID {
		t.Errorf("reloads %d and %d beside %d", second.ID, third.ID, first.ID)
	}
	goOn <- true
	code, _, report := askReload(t, "GET", fmt.Sprintf("%s?id=%d", url, first.ID), "wait=10")
	if code != 200 || !report.Loaded || report.Reading != "" || report.ID != first.ID || !strings.HasPrefix(report.Status.Revision, "sha256:") {
		t.Errorf("when it is over: %d, %+v", code, report)
	}
	<-reading
	goOn <- true
	if code, _, report := askReload(t, "GET", url, "wait=10"); code != 200 || report.ID != second.ID {
		t.Errorf("the last: %d, %+v", code, report)
	}
	for path, want := range map[string]int{"?id=99": 404, "?id=x": 400} {
		if response, body := get(t, url+path); response.StatusCode != want {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
	}
	counted.Lock()
	defer counted.Unlock()
	if settings != 2 {
		t.Errorf("settings were read %d times", settings)
	}
}

// A reload that panics fails, and the next succeeds.
func TestReloadPanics(t *testing.T) {
	var reads atomic.Int32
	s := start(t, pdp.Config{PolicyDir: writeStore(t), Settings: func() (*pdp.Settings, error) {
		if reads.Add(1) == 1 {
			panic("a fault in the settings")
		}
		return &pdp.Settings{}, nil
	}})
	code, _, report := askReload(t, "POST", s.admin+pdp.PathReload, "wait=10")
	if code != 422 || report.Loaded || report.Reading != "" || len(report.Faults) != 1 || report.Faults[0].Message != "panic: a fault in the settings" {
		t.Errorf("a reload that panics: %d, %+v", code, report)
	}
	if code, _, report := askReload(t, "POST", s.admin+pdp.PathReload, "wait=10"); code != 200 || !report.Loaded {
		t.Errorf("the next: %d, %+v", code, report)
	}
}

// writeStore writes a policy store that a test can change.
func writeStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, policySet(t, "certification")); err != nil {
		t.Fatal(err)
	}
	return dir
}
