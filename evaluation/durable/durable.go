// Package durable puts files and their names on disk. What it wrote is there
// after a power cut, whole.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile puts a file at path, whole or not at all, for its owner alone. Its
// name survives a power cut after [SyncDir] of its directory.
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

// ReplaceFile is [WriteFile] and [SyncDir] of the file's directory.
func ReplaceFile(path string, data []byte) error {
	if err := WriteFile(path, data); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir puts the names in a directory on disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
