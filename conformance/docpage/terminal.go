package docpage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TenMinutes returns the section of a guide in which a stranger pastes commands.
func TenMinutes(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Ten minutes\n")
	if !found {
		t.Fatalf("%s has no section Ten minutes", page)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// A Terminal is a shell in a directory that looks like a fresh clone of the
// repository after make build.
type Terminal struct {
	*testing.T
	Dir string // of the clone

	addresses []string // of a guide, each followed by that of this run
	in        io.Writer
	pasted    int

	mu     sync.Mutex
	screen bytes.Buffer
}

// NewTerminal starts a shell. Its directory has the programs of bin, and the
// sources of root, the repository. The variables of env are NAME=VALUE. Programs
// of the shell end with the test.
func NewTerminal(t *testing.T, root, bin string, env ...string) *Terminal {
	t.Helper()
	s := &Terminal{T: t, Dir: t.TempDir()}
	for name, target := range map[string]string{"bin": bin, "cmd": filepath.Join(root, "cmd")} {
		path, err := filepath.Abs(target)
		if err == nil {
			err = os.Symlink(path, filepath.Join(s.Dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pdp, admin, console := FreeAddress(t), FreeAddress(t), FreeAddress(t)
	s.Move("127.0.0.1:8080", pdp)
	s.Move("127.0.0.1:8081", admin)
	s.Move("127.0.0.1:8082", console)
	shell := exec.Command("bash", "--norc", "-s")
	shell.Dir = s.Dir
	shell.Env = append(os.Environ(), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "POLICY_SERVICE_LISTEN="+pdp, "POLICY_SERVICE_ADMIN_LISTEN="+admin, "POLICY_SERVICE_CONSOLE_LISTEN="+console)
	shell.Env = append(shell.Env, env...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Stdout, shell.Stderr = s, s
	shell.WaitDelay = 5 * time.Second
	in, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.in = in
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // and its background jobs
		_ = shell.Wait()
	})
	return s
}

// FreeAddress returns an address of this host on which nobody listens. The kernel
// gives its port to nobody else, because those that it gives out by itself are above
// 32767. So a program can be ended and started again at the address.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
}

// Move replaces an address of the guide in all that follows.
func (s *Terminal) Move(from, to string) {
	_, oldPort, _ := strings.Cut(from, ":")
	_, newPort, _ := strings.Cut(to, ":")
	s.addresses = append(s.addresses, from, to, "port "+oldPort, "port "+newPort)
}

// Write adds output of the shell and its programs to the screen.
func (s *Terminal) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(text)
}

// Screen returns all output.
func (s *Terminal) Screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

var blocks = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// Follow pastes each block of the language sh, and waits until the lines of each
// block of the language text are on the screen.
func (s *Terminal) Follow(section string) {
	s.Helper()
	since, commands, results := 0, 0, 0
	for _, block := range blocks.FindAllStringSubmatch(section, -1) {
		if block[1] == "sh" {
			since = len(s.Screen())
			commands++
			s.paste(block[2])
			continue
		}
		results++
		s.await(block[2], since)
	}
	if commands == 0 || results == 0 {
		s.Errorf("the section has %d blocks of commands and %d of results", commands, results)
	}
}

// done are commands that the terminal has done before.
var done = regexp.MustCompile(`(?m)^(?:make build|go build -o bin/ .*|npm install .*)$`)

// paste runs a block of commands and waits for its last one.
func (s *Terminal) paste(block string) {
	s.Helper()
	since := len(s.Screen())
	s.pasted++
	end := fmt.Sprintf("end of block %d", s.pasted)
	fmt.Fprintf(s.in, "%s\necho; echo %s\n", strings.NewReplacer(s.addresses...).Replace(done.ReplaceAllString(block, ":")), end)
	s.await(end, since)
}

// await waits until each line is on the screen. In a line, … stands for any text,
// and a space for any number of spaces. A line … stands for any lines.
func (s *Terminal) await(lines string, since int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute) // on a busy machine
	defer cancel()
	for line := range strings.Lines(strings.NewReplacer(s.addresses...).Replace(lines)) {
		words := strings.Fields(line)
		for i, word := range words {
			words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*")
		}
		want := regexp.MustCompile("(?m)^[ \t]*" + strings.Join(words, "[ \t]+") + "[ \t\r]*$")
		for !want.MatchString(s.Screen()[since:]) {
			select {
			case <-ctx.Done():
				s.Fatalf("there is no line %s:\n%s", want, s.Screen())
			case <-time.After(20 * time.Millisecond): // other programs must go on
			}
		}
	}
}
