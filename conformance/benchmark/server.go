//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a server may take to be ready, or to end.
const patience = 30 * time.Second

// A server is a process that answers over HTTP.
type server struct {
	URL   string
	Admin string // URL of the admin listener, where there is one

	process *exec.Cmd
	log     *os.File      // its standard output and error
	ended   chan struct{} // closed when it has ended
}

// launch starts a program, whose output goes to a file, and waits until ready
// finds its URLs. Its processor time and memory are its own: it has no children.
func launch(ctx context.Context, logFile string, ready func(*server) bool, program string, args ...string) (*server, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.Command(program, args...), log: log, ended: make(chan struct{})}
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		_ = s.process.Wait() // the state says it
		close(s.ended)
	}()
	if err := s.await(ctx, ready); err != nil {
		text, _ := os.ReadFile(logFile)
		return nil, errors.Join(fmt.Errorf("%s: %w\n%s", program, err, text), s.stop())
	}
	return s, nil
}

func (s *server) await(ctx context.Context, ready func(*server) bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ready(s); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return errors.New("the server ended")
		case <-deadline:
			return fmt.Errorf("the server is not ready after %s", patience)
		}
	}
	return nil
}

var listening = regexp.MustCompile(`(?m)^listening on (http://\S+?)(?: \(admin (http://\S+)\))?$`)

// printed waits for the line in which policy-service and the floors say where
// they listen.
func printed(s *server) bool {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return false
	}
	found := listening.FindSubmatch(text)
	if found == nil {
		return false
	}
	s.URL, s.Admin = string(found[1]), string(found[2])
	return true
}

// healthy waits for a health check, of a server that was given its address.
func healthy(url string) func(*server) bool {
	return func(s *server) bool {
		response, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		response.Body.Close()
		s.URL = url
		return response.StatusCode == http.StatusOK
	}
}

// stop ends the process and waits for it.
func (s *server) stop() error {
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(patience):
		_ = s.process.Process.Kill()
		<-s.ended
	}
	return s.log.Close()
}

// freeAddress returns a loopback address where nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), the same on every
// architecture that Go has.
const ticksPerSecond = 100

// processorTime is the user and system time of the process so far.
func (s *server) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(errUser, errSystem)
}

// residentMiB is the memory of the process.
func (s *server) residentMiB() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	return float64(pages*os.Getpagesize()) / (1 << 20), err
}

// mallocs is how many objects the process has allocated, or 0 where it has no
// admin listener.
func (s *server) mallocs() (float64, error) {
	if s.Admin == "" {
		return 0, nil
	}
	response, err := http.Get(s.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("/metrics has no go_memstats_mallocs_total")
}

// post returns the body of an answer with status 200.
func post(ctx context.Context, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}
