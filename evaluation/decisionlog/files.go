package decisionlog

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// makeDir creates a directory and its parents, if they do not exist.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// writeDir creates a directory with these files at path, durably and all or nothing.
func writeDir(path string, files map[string]string) error {
	tmp := path + ".tmp"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	for name, data := range files {
		if err := durable.WriteFile(filepath.Join(tmp, name), []byte(data)); err != nil {
			return err
		}
	}
	if err := errors.Join(durable.SyncDir(tmp), os.Rename(tmp, path)); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
