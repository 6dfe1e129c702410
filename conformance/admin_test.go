package conformance_test

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json"
)

// A reloadReport is the answer of the admin listener to a reload.
type reloadReport struct {
	Loaded bool `json:"loaded"`
	Status struct {
		Problem string `json:"problem"`
	} `json:"status"`
}

// reload has the policy store read now.
func (s *server) reload(t *testing.T) (report reloadReport) {
	t.Helper()
	response, err := http.Post(s.Admin+"/admin/v1/reload", "", nil)
	must(t, err)
	defer response.Body.Close()
	must(t, json.UnmarshalRead(response.Body, &report))
	if want := map[bool]int{true: http.StatusOK, false: http.StatusUnprocessableEntity}[report.Loaded]; response.StatusCode != want {
		t.Errorf("a reload that says loaded: %t has the status %s", report.Loaded, response.Status)
	}
	return report
}

// readiness returns what a ready server says of itself.
func (s *server) readiness(t *testing.T) string {
	t.Helper()
	response, err := http.Get(s.Admin + "/readyz?verbose")
	must(t, err)
	defer response.Body.Close()
	told, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Errorf("the server is not ready: %s %s", response.Status, told)
	}
	return string(told)
}

// exported yields the lines of the log of the running server.
func (s *server) exported(t *testing.T) iter.Seq[string] {
	t.Helper()
	response, err := http.Get(s.Admin + "/admin/v1/log/export")
	must(t, err)
	return func(yield func(string) bool) {
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("the export is broken off: %v", err)
			}
			if err != nil || !yield(line) {
				return
			}
		}
	}
}
