package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/policy-service/policy-service/evaluation/durable"
)

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "head")
	for _, text := range []string{"a longer text", "a text"} {
		if err := durable.ReplaceFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want %v", info.Mode(), err, fs.FileMode(0o600))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v, want the file alone", left, err)
	}
}

// What cannot be replaced stays as it was.
func TestReplaceFileFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "head")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path, nil); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := os.Stat(filepath.Join(path, "in the way")); err != nil {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(path, "missing")); err == nil {
		t.Error("the names of a directory that is not there were put on disk")
	}
}
