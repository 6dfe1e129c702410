// Package policystore reads a policy store from a directory.
//
// The law it keeps: what is read is one state of the directory. A file that is
// rewritten while it is read can be cut off and still be valid Cedar, so the
// directory is listed before and after, and read again until both lists agree.
//
// Reading stays below the directory: a symbolic link may point anywhere inside
// it, as Kubernetes' ..data does, and nowhere else.
package policystore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/policy-service/policy-service/evaluation"
)

// ErrUnstable means that the directory kept changing while it was read.
var ErrUnstable = errors.New("the policy store keeps changing")

const (
	maxAttempts = 10
	maxFile     = 64 << 20 // bytes of one file
)

// Load reads the policy store in dir.
func Load(dir string) (evaluation.Archive, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open policy store: %w", err)
	}
	defer root.Close()
	return Read(root.FS())
}

// Read reads the policy store at the root of fsys.
func Read(fsys fs.FS) (evaluation.Archive, error) {
	before, err := list(fsys)
	for range maxAttempts {
		if err != nil {
			return nil, fmt.Errorf("list policy store: %w", err)
		}
		archive, readErr := readAll(fsys, before)
		var after []file
		if after, err = list(fsys); err == nil && slices.Equal(before, after) {
			return archive, readErr
		}
		before = after
	}
	return nil, ErrUnstable
}

// A file is what tells one state of a file from another.
type file struct {
	name     string
	size     int64
	modified time.Time
}

// list returns the files that count, in order of their names.
func list(fsys fs.FS) ([]file, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range entries {
		if !evaluation.Counts(entry.Name()) {
			continue
		}
		info, err := fs.Stat(fsys, entry.Name())
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", entry.Name())
		}
		if info.Size() > maxFile {
			return nil, fmt.Errorf("%s is larger than %d bytes", entry.Name(), maxFile)
		}
		files = append(files, file{entry.Name(), info.Size(), info.ModTime()})
	}
	return files, nil
}

func readAll(fsys fs.FS, files []file) (evaluation.Archive, error) {
	archive := evaluation.Archive{}
	for _, f := range files {
		text, err := fs.ReadFile(fsys, f.name)
		if err != nil {
			return nil, fmt.Errorf("read policy store: %w", err)
		}
		archive[f.name] = text
	}
	return archive, nil
}
