package conformance_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// SIGHUP has the service read its callers again, and say which other settings
// need a restart.
func TestSettingsAreReadAgain(t *testing.T) {
	const old, renewed = "k-old", "k-new"
	file := filepath.Join(t.TempDir(), "config.yaml")
	settings := func(key, more string) string {
		return fmt.Sprintf("auth: {api_keys: [{id: gateway, sha256: \"%x\"}]}\n%s", sha256.Sum256([]byte(key)), more)
	}
	place(t, file, settings(old, ""))
	s := serve(t, "certification", "--config", file)
	status := func(key string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+authzen.PathEvaluation, strings.NewReader(readsRecord1))
		must(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	if status(old) != http.StatusOK || status(renewed) != http.StatusUnauthorized {
		t.Fatal("the first key is not the one")
	}
	hangUp := func(text, say string) {
		place(t, file, text)
		must(t, s.Process.Process.Signal(syscall.SIGHUP))
		process.Eventually(t, "the service says "+say, func() bool { return strings.Contains(s.Log(), say) })
	}
	hangUp(settings(renewed, "max_bodi: 5\n"), `\"max_bodi\" is not a key (did you mean \"max_body\"?)`)
	if status(old) != http.StatusOK {
		t.Error("a file with a fault has changed who may ask")
	}
	hangUp(settings(renewed, "max_body: 5\ntenant_rate: 7\n"), `need a restart" keys="[max_body tenant_rate]"`)
	if status(old) != http.StatusUnauthorized || status(renewed) != http.StatusOK {
		t.Error("the second key is not the one")
	}
}
