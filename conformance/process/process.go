// Package process builds policy-service and mcp-gateway for tests, once for all tests of
// a package, and runs them.
package process

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a server may take to be ready, and to end.
const Patience = 30 * time.Second

const commands = "github.com/policy-service/policy-service/cmd/"

var (
	dir  string // holds the program for as long as the tests run
	root = func() string {
		_, file, _, _ := runtime.Caller(0)
		return filepath.Join(filepath.Dir(file), "..", "..")
	}()
)

// Main runs the tests of a package, and removes what [Program] has built.
// Programs with a race detector do not wait a second at their end.
func Main(m *testing.M) int {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	made, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(made)
	dir = made
	return m.Run()
}

// Dir returns the directory of the program.
func Dir() string { return dir }

// Program builds the program once, with the race detector if [Race] says so, and
// returns where it is.
var Program = sync.OnceValues(func() (string, error) { return build("policy-service") })

// Gateway builds mcp-gateway in the same way.
var Gateway = sync.OnceValues(func() (string, error) { return build("mcp-gateway") })

// VerifyLog builds verify-log in the same way.
var VerifyLog = sync.OnceValues(func() (string, error) { return build("verify-log") })

func build(name string) (path string, err error) {
	if err := Look(); err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	args := []string{"build", "-o", path}
	if Race() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, commands+name)...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// Look goes through the sources of the module. The test cache knows what a test
// has opened and not what the go command opens for it: without a look, a
// change of the program would leave these tests' results in the cache.
func Look() error {
	for _, part := range []string{"cmd", "evaluation", "obligations", "pdp", "policies", "schemas"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("look at the sources: %w", err)
		}
	}
	return nil
}

// raceVariable asks for a program with the race detector where the tests have
// none: what drives another process needs none of its own.
const raceVariable = "PROGRAM_RACE"

// Race reports whether the program has the race detector: where the tests have
// it, or PROGRAM_RACE is set.
func Race() bool {
	if os.Getenv(raceVariable) != "" {
		return true
	}
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			return true
		}
	}
	return false
}

// A Server is the program, serving a policy store.
type Server struct {
	URL   string // of the main listener
	Admin string // of the admin listener, if there is one

	Process *exec.Cmd
	Done    chan struct{} // closed when the process has ended

	ready  chan string // gets URL
	mu     sync.Mutex
	stderr strings.Builder
}

// Launch starts a server, and ends it with the test. It must end in order.
func Launch(t testing.TB, process *exec.Cmd) *Server {
	t.Helper()
	s := start(t, process)
	t.Cleanup(func() { s.End(t) })
	s.await(t)
	return s
}

// LaunchToKill is [Launch] for a server that may end in any way.
func LaunchToKill(t testing.TB, process *exec.Cmd) *Server {
	t.Helper()
	s := start(t, process)
	t.Cleanup(func() {
		s.Process.Process.Kill()
		<-s.Done
	})
	s.await(t)
	return s
}

func start(t testing.TB, process *exec.Cmd) *Server {
	t.Helper()
	s := &Server{Process: process, ready: make(chan string, 1), Done: make(chan struct{})}
	stderr, err := s.Process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Process.Start(); err != nil {
		t.Fatal(err)
	}
	go s.watch(stderr)
	return s
}

func (s *Server) await(t testing.TB) {
	t.Helper()
	select {
	case s.URL = <-s.ready:
	case <-s.Done:
		t.Fatalf("the server ended:\n%s", s.Log())
	case <-time.After(Patience):
		t.Fatalf("the server is not ready after %s:\n%s", Patience, s.Log())
	}
}

var listening = regexp.MustCompile(`^listening on (https?://\S+)(?: \(admin (http://\S+)\))?$`)

// watch keeps what the program writes until it ends, and tells its URLs.
func (s *Server) watch(stderr io.Reader) {
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
	s.Process.Wait()
	close(s.Done)
}

// Log returns what the program has written so far.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

// End ends the server, which must end in order.
func (s *Server) End(t testing.TB) {
	t.Helper()
	s.Process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.Done:
	case <-time.After(Patience):
		s.Process.Process.Kill()
		<-s.Done
	}
	if !s.Process.ProcessState.Success() || t.Failed() {
		t.Errorf("the server ended with %v:\n%s", s.Process.ProcessState, s.Log())
	}
}

// Eventually waits until something is so.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(Patience); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not after %v: %s", Patience, what)
		}
	}
}
