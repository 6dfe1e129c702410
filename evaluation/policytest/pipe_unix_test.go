//go:build unix

package policytest_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/policytest"
)

// A named pipe in a folder of tests is refused, and keeps nobody waiting.
func TestPipeIsRefused(t *testing.T) {
	for _, folder := range []string{"tests", "tenants/acme/tests"} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, folder, "a.yaml"), 0o644); err != nil {
			t.Fatal(err)
		}
		loaded := make(chan error, 1)
		go func() {
			_, err := policytest.Load(os.DirFS(dir))
			loaded <- err
		}()
		select {
		case err := <-loaded:
			if err == nil || !strings.Contains(err.Error(), folder+"/a.yaml: is not a regular file") {
				t.Errorf("%s: %v", folder, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits for the pipe", folder)
		}
	}
}
