package conformance_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// signedStore puts a version of a policy store into a directory, signed.
func signedStore(t *testing.T, dir string, key ed25519.PrivateKey, version int, policies string) {
	t.Helper()
	sum := sha256.Sum256([]byte(policies))
	manifest, err := json.Marshal(map[string]any{"version": version, "files": map[string]string{"a.cedar": hex.EncodeToString(sum[:])}})
	must(t, err)
	put(t, filepath.Join(dir, "a.cedar"), policies)
	put(t, filepath.Join(dir, "manifest.json"), string(manifest))
	put(t, filepath.Join(dir, "manifest.json.sig"), base64.StdEncoding.EncodeToString(ed25519.Sign(key, manifest)))
}

const (
	permitsAll = "@id(\"all\") permit (principal, action, resource);\n"
	forbidsAll = permitsAll + "@id(\"none\") forbid (principal, action, resource);\n"
)

// An older store stays refused over a crash, whether or not what was kept beside
// the log is still there. A service that knows nothing of the newer one takes it.
func TestRestartRefusesRollback(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	store, state := t.TempDir(), t.TempDir()
	key := filepath.Join(t.TempDir(), "key")
	put(t, key, base64.StdEncoding.EncodeToString(public))
	start := func(state string) *server {
		t.Helper()
		return serveToKillDir(t, store, state, "--manifest-key", key)
	}

	signedStore(t, store, private, 2, forbidsAll)
	s := start(state)
	if status, body := s.post(t, "/access/v1/evaluation", []byte(readsRecord1)); status != http.StatusOK || body != `{"decision":false}` {
		t.Fatalf("version 2 answers %d %s", status, body)
	}
	must(t, s.Process.Process.Kill())
	<-s.Done

	signedStore(t, store, private, 1, permitsAll)
	for _, lost := range []string{"", filepath.Join(state, "floor")} {
		if lost != "" {
			must(t, os.Remove(lost))
		}
		s = start(state)
		if status, body := s.post(t, "/access/v1/evaluation", []byte(readsRecord1)); status != http.StatusServiceUnavailable {
			t.Errorf("without %q version 1 answers %d %s", lost, status, body)
		}
		if ready := s.ready503(t); !strings.Contains(ready, "version 1 is lower than 2") {
			t.Errorf("without %q readiness is\n%s", lost, ready)
		}
		must(t, s.Process.Process.Kill())
		<-s.Done
	}

	s = start(t.TempDir())
	if status, body := s.post(t, "/access/v1/evaluation", []byte(readsRecord1)); status != http.StatusOK || body != `{"decision":true}` {
		t.Errorf("another service answers %d %s", status, body)
	}
	signedStore(t, store, private, 3, permitsAll)
	s = start(state)
	if status, body := s.post(t, "/access/v1/evaluation", []byte(readsRecord1)); status != http.StatusOK || body != `{"decision":true}` {
		t.Errorf("version 3 answers %d %s", status, body)
	}
}

// ready503 returns what a service that is not ready says of itself.
func (s *server) ready503(t *testing.T) string {
	t.Helper()
	response, err := http.Get(s.Admin + "/readyz?verbose")
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readiness is %s", response.Status)
	}
	return string(text)
}
