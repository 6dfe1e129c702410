package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A gateway whose client has gone ends before the client kills it, although the
// server is a program of a package runner that does not read its input. Nothing of
// the server is left.
func TestStdioLeavesNothingBehind(t *testing.T) {
	home := t.TempDir()
	config, pid := filepath.Join(home, "gateway.yaml"), filepath.Join(home, "pid")
	write(t, config, "pdp: {url: \"http://127.0.0.1:1\"}\nidentity: {process: {type: user, id: alice}}\nservers: [{name: files}]\n")
	gateway := exec.Command("mcp-gateway", "stdio", "--config", config, "--state", filepath.Join(home, "state"), "--server", "files", "--",
		"sh", "-c", "sh -c 'echo $$ > "+pid+"; trap \"\" TERM; sleep 100 & wait; wait; sleep 100' & wait")
	in, err := gateway.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for range 300 {
		if text, _ = os.ReadFile(pid); len(text) > 1 {
			break
		}
		time.Sleep(100 * time.Millisecond) // until the server runs
	}
	gone := time.Now()
	in.Close()
	terminate := time.AfterFunc(2*time.Second, func() { _ = gateway.Process.Signal(syscall.SIGTERM) }) // as the TypeScript SDK does
	defer terminate.Stop()
	_ = gateway.Wait()
	if took := time.Since(gone); took > 4*time.Second {
		t.Errorf("the gateway ends after %s", took)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(text)), "stat"))
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the server still runs: %s", stat)
	}
}
