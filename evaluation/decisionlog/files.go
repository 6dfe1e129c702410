package decisionlog

import (
	"errors"
	"os"
	"path/filepath"
)

// makeDir makes a directory, if it is not there, and those above it.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// writeFile puts a file at path, whole or not at all. It is there for good
// after the directory is synced.
func writeFile(path string, data []byte) (err error) {
	tmp, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// replaceFile puts a file at path for good, whole or not at all.
func replaceFile(path string, data []byte) error {
	if err := writeFile(path, data); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// writeDir puts a directory with these files at path for good, whole or not
// at all.
func writeDir(path string, files map[string]string) error {
	tmp := path + ".tmp"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	for name, data := range files {
		if err := writeFile(filepath.Join(tmp, name), []byte(data)); err != nil {
			return err
		}
	}
	if err := errors.Join(syncDir(tmp), os.Rename(tmp, path)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
