package conformance_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/policies"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(askedSteadily); url != "" {
		askSteadily(url)
		return
	}
	if measureInstead() {
		return
	}
	os.Exit(process.Main(m))
}

// A server is the program, serving a policy store.
type server struct{ *process.Server }

// serve starts the program on an embedded policy set with further arguments.
// It is ended with the test and must end in order.
func serve(t *testing.T, set string, args ...string) *server {
	t.Helper()
	return serveDir(t, unpack(t, set), args...)
}

// serveDir is serve for the policy store in a directory.
func serveDir(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return launch(t, serveCommand(t, dir, t.TempDir(), args...))
}

// serveCommand is the program, serving a policy store with its state in a
// directory.
func serveCommand(t *testing.T, dir, state string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path, append([]string{
		"serve", "--policies", dir, "--state", state,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}, args...)...)
}

// shipped builds one of the module's commands as it is shipped, once for all tests, and
// returns its path. The race detector would take time and memory of its own.
func shipped(t *testing.T, command string) string {
	t.Helper()
	shipping.Lock()
	defer shipping.Unlock()
	must(t, process.Look())
	path := filepath.Join(process.Dir(), "shipped", command)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/"+command).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

var shipping sync.Mutex

// launch starts a server, and ends it with the test.
func launch(t *testing.T, command *exec.Cmd) *server {
	t.Helper()
	return &server{process.Launch(t, command)}
}

// unpack writes an embedded policy set to a directory.
func unpack(t *testing.T, set string) string {
	t.Helper()
	store, err := policies.Set(set)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, store); err != nil {
		t.Fatal(err)
	}
	return dir
}

// post asks as the interop runners do that have not been given a key, and
// returns the status and the whole body.
func (s *server) post(t *testing.T, path string, body []byte) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "undefined")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(read)
}
