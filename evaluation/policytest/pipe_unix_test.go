//go:build unix

package policytest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/policytest"
)

// A named pipe in a folder of tests is refused, and keeps nobody waiting.
func TestPipeIsRefused(t *testing.T) {
	for pipe, want := range map[string]string{
		"tests/a.yaml":              "tests/a.yaml: is not a regular file",
		"tenants/acme/tests/a.yaml": "tenants/acme/tests/a.yaml: is not a regular file",
		"tests":                     "tests: is not a directory",
		"tenants/acme/tests":        "tenants/acme/tests: is not a directory",
		"tenants/acme":              "",
		"tenants":                   "",
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(pipe)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, pipe), 0o644); err != nil {
			t.Fatal(err)
		}
		loaded := make(chan error, 1)
		go func() {
			_, err := policytest.Load(os.DirFS(dir))
			loaded <- err
		}()
		select {
		case err := <-loaded:
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", pipe, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits for the pipe", pipe)
		}
	}
}

// replaced is a store in which a named pipe replaces a file right after its kind was read.
type replaced struct {
	fs.FS
	dir, name string
}

func (r replaced) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(r.FS, name)
	if name == r.name && err == nil {
		path := filepath.Join(r.dir, name)
		err = errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644))
	}
	return info, err
}

func TestPipeInPlaceOfFileIsRefused(t *testing.T) {
	const name = "tests/a.yaml"
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "tests"), 0o755), os.WriteFile(filepath.Join(dir, name), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	store, err := policystore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policytest.Load(replaced{store, dir, name}); err == nil || !strings.Contains(err.Error(), name+": is not a regular file") {
		t.Errorf("the error is %v", err)
	}
}
