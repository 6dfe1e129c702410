package conformance_test

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/policies"
)

// buildDir holds the program under test for as long as the tests run.
var buildDir string

func TestMain(m *testing.M) {
	if url := os.Getenv(askedSteadily); url != "" {
		askSteadily(url)
		return
	}
	if measureInstead() {
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "conformance-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		buildDir = dir
		return m.Run()
	}())
}

// program builds the program once, with the race detector if the tests have
// it, and returns where it is.
var program = sync.OnceValues(func() (string, error) {
	if err := look(); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "policy-service")
	args := []string{"build", "-o", path}
	if raceEnabled() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/policy-service")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// look goes through the sources of the module. The test cache knows what a test
// has opened and not what the go command opens for it: without a look, a
// change of the program would leave these tests' results in the cache.
func look() error {
	for _, dir := range []string{"cmd", "evaluation", "obligations", "pdp", "policies", "schemas"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("look at the sources: %w", err)
		}
	}
	return nil
}

func raceEnabled() bool {
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			return true
		}
	}
	return false
}

// How long a server may take to be ready, and to end.
const patience = 30 * time.Second

// A server is the program, serving a policy store.
type server struct {
	URL   string // of the main listener
	Admin string // of the admin listener

	process *exec.Cmd
	ready   chan string   // gets URL
	done    chan struct{} // closed when the process has ended

	mu     sync.Mutex
	stderr strings.Builder
}

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
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path, append([]string{
		"serve", "--policies", dir, "--state", state,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}, args...)...)
}

// launch starts a server, and ends it with the test.
func launch(t *testing.T, process *exec.Cmd) *server {
	t.Helper()
	s := &server{process: process, ready: make(chan string, 1), done: make(chan struct{})}
	stderr, err := s.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	go s.watch(stderr)
	t.Cleanup(func() { s.end(t) })
	select {
	case s.URL = <-s.ready:
	case <-s.done:
		t.Fatalf("the server ended:\n%s", s.log())
	case <-time.After(patience):
		t.Fatalf("the server is not ready after %s:\n%s", patience, s.log())
	}
	return s
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

var listening = regexp.MustCompile(`^listening on (https?://\S+) \(admin (http://\S+)\)$`)

// watch keeps what the program writes until it ends, and tells its URLs.
func (s *server) watch(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		s.mu.Lock()
		s.stderr.WriteString(lines.Text() + "\n")
		s.mu.Unlock()
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			s.Admin = strings.Replace(found[2], "[::]", "127.0.0.1", 1) // every address is no Host
			s.ready <- found[1]
		}
	}
	s.process.Wait()
	close(s.done)
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

func (s *server) end(t *testing.T) {
	s.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(patience):
		s.process.Process.Kill()
		<-s.done
	}
	if !s.process.ProcessState.Success() || t.Failed() {
		t.Errorf("the server ended with %v:\n%s", s.process.ProcessState, s.log())
	}
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

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}
