//go:build unix

package conformance_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
)

// A hardship is what can happen to a policy store while a server follows it.
type hardship struct {
	name string
	hurt func(t *testing.T, dir string)
	want string                         // what the server says of it
	heal func(t *testing.T, dir string) // beside writing the policies again
}

// oneMoreFile is a hardship of one more file, which is taken away again.
func oneMoreFile(name, want string, hurt func(t *testing.T, path string)) hardship {
	path := func(dir string) string { return filepath.Join(dir, "another.cedar") }
	return hardship{
		name: name,
		want: want,
		hurt: func(t *testing.T, dir string) { hurt(t, path(dir)) },
		heal: func(t *testing.T, dir string) { must(t, os.Remove(path(dir))) },
	}
}

var hardships = []hardship{
	{
		name: "half a file",
		want: "does not parse",
		hurt: func(t *testing.T, dir string) {
			text := inOneFile(9)
			put(t, filepath.Join(dir, policyFile), text[:len(text)*3/4])
		},
	},
	{
		name: "an empty file",
		want: "has no policies any more",
		hurt: func(t *testing.T, dir string) { put(t, filepath.Join(dir, policyFile), "") },
	},
	{
		name: "no file",
		want: "the policy store is empty",
		hurt: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, policyFile))) },
	},
	{
		name: "directory removed",
		want: "no such file or directory",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
	},
	{
		name: "permission lost",
		want: "permission denied",
		hurt: func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0)) },
		heal: func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o755)) },
	},
	oneMoreFile("bad syntax", "another.cedar:1:9: does not parse", func(t *testing.T, path string) {
		put(t, path, "permit (;")
	}),
	oneMoreFile("link out of the store", "another.cedar: path escapes", func(t *testing.T, path string) {
		must(t, os.Symlink("/etc/hostname", path))
	}),
	oneMoreFile("pipe", "another.cedar: is not a regular file", func(t *testing.T, path string) {
		must(t, syscall.Mkfifo(path, 0o644))
	}),
	oneMoreFile("file of 100 MB", "another.cedar: is larger than", func(t *testing.T, path string) {
		put(t, path, "")
		must(t, os.Truncate(path, 100<<20))
	}),
	{
		name: "storm of 12,000 files",
		want: "with this file there are more than 10000",
		hurt: func(t *testing.T, dir string) { storm(dir, func(path string) { put(t, path, "") }) },
		heal: func(t *testing.T, dir string) { storm(dir, func(path string) { must(t, os.Remove(path)) }) },
	},
}

func storm(dir string, act func(path string)) {
	for i := range 12_000 {
		act(filepath.Join(dir, "storm-"+strconv.Itoa(i)+".cedar"))
	}
}

// TestReloadUnderFaults holds that whatever happens to the policy store, the last good
// policies go on answering, the server is ready, says that it is stale and
// why, and follows again once it can, all of it without being told to.
func TestReloadUnderFaults(t *testing.T) {
	dir, state := openToAll(t)
	put(t, filepath.Join(dir, policyFile), inOneFile(0))
	s := launch(t, unprivileged(serveCommand(t, dir, state)))
	l := newLoad(t, s)
	l.pause = 5 * time.Millisecond // most of the time the store is waited for
	answers := l.during(func() {
		for i, h := range hardships {
			t.Run(h.name, func(t *testing.T) { endure(t, s, l, dir, i, h) })
		}
	})
	answers.clean(t)
	t.Logf("meanwhile: %v", answers)
	recorded := strings.Join(slices.Collect(s.exported(t)), "")
	for _, h := range hardships {
		if !strings.Contains(recorded, h.want) {
			t.Errorf("the decision log does not say of %s: %s", h.name, h.want)
		}
	}
}

// TestReloadUnderFaultsControl holds that the check of TestReloadUnderFaults sees policies that
// are lost: a file that ends between two of them is whole for all anybody can
// tell.
func TestReloadUnderFaultsControl(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, policyFile), inOneFile(0))
	s := serveDir(t, dir)
	put(t, filepath.Join(dir, policyFile), versioned(1)["a.cedar"])
	if report := s.reload(t); !report.Loaded {
		t.Fatalf("it is refused: %s", report.Status.Problem)
	}
	if _, err := newLoad(t, s).version(); !errors.Is(err, errNoAnswer) {
		t.Errorf("half the policies are gone: %v", err)
	}
}

// endure has one hardship happen to a store of a version, and makes it the
// next one.
func endure(t *testing.T, s *server, l *load, dir string, version int, h hardship) {
	h.hurt(t, dir)
	hurt := time.Now()
	var told string
	process.Eventually(t, "the server says: "+h.want, func() bool {
		told = s.readiness(t)
		return strings.HasPrefix(told, "stale\n") && strings.Contains(told, h.want)
	})
	toTell := time.Since(hurt)
	if report := s.reload(t); report.Loaded || !strings.Contains(report.Status.Problem, h.want) {
		t.Errorf("a reload says %+v", report)
	}
	l.answersBy(t, version)

	if h.heal != nil {
		h.heal(t, dir)
	}
	putByRename(t, filepath.Join(dir, policyFile), inOneFile(version+1))
	toRecover := l.await(t, version+1)
	t.Logf("told after %v, recovered after %v", toTell.Round(time.Millisecond), toRecover.Round(time.Millisecond))
	if told := s.readiness(t); !strings.HasPrefix(told, "ok\n") {
		t.Errorf("the server has recovered and says %s", told)
	}
}

// nobody is a user to whom permission can be refused, unlike root.
const nobody = 65534

// unprivileged has a program that root would start run as nobody.
func unprivileged(process *exec.Cmd) *exec.Cmd {
	if os.Geteuid() == 0 {
		process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return process
}

// openToAll makes directories for a policy store and a state that a program
// which is unprivileged can use, and lets it run the one under test.
func openToAll(t *testing.T) (dir, state string) {
	t.Helper()
	base, err := os.MkdirTemp("", "hardship-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	dir, state = filepath.Join(base, "above", "policies"), filepath.Join(base, "state")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.Mkdir(state, 0o755))
	for _, open := range []string{base, process.Dir()} {
		must(t, os.Chmod(open, 0o755))
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(state, nobody, nobody))
	}
	return dir, state
}
