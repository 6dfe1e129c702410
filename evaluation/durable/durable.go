// Package durable writes files and their names to disk. After a power failure each file is
// complete.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile writes a file at path with permissions 0600, all or nothing. Its name survives a power
// failure after [SyncDir] of the directory.
func WriteFile(path string, data []byte) error {
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

// ReplaceFile calls [WriteFile], then [SyncDir] for the file's directory.
func ReplaceFile(path string, data []byte) error {
	if err := WriteFile(path, data); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir flushes the names in a directory to disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
