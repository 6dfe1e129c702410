package decisionlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/durable"
)

const (
	archiveDir   = "archive"
	blobsDir     = "archive/blobs"
	revisionsDir = "archive/revisions"

	revisionPrefix = "sha256:"
)

// Manifest returns the canonical list of the files of a policy revision. Each file has a line
// "<sha256 in hex> <path>\n". The lines are sorted by path. A path must satisfy [fs.ValidPath] and
// contain no line break.
func Manifest(files map[string][]byte) ([]byte, error) {
	var manifest []byte
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := checkPath(path); err != nil {
			return nil, err
		}
		manifest = fmt.Appendf(manifest, "%x  %s\n", sha256.Sum256(files[path]), path)
	}
	return manifest, nil
}

// ValidPath reports whether path is valid for a file of a policy revision.
func ValidPath(path string) bool {
	return fs.ValidPath(path) && path != "." && !strings.ContainsAny(path, "\r\n")
}

func checkPath(path string) error {
	if !ValidPath(path) {
		return fmt.Errorf("%q cannot be the path of a file", path)
	}
	return nil
}

// Revision returns the name of the revision that has this manifest.
func Revision(manifest []byte) string {
	return fmt.Sprintf("%s%x", revisionPrefix, sha256.Sum256(manifest))
}

// KeepArchive stores the files of a policy revision and returns the revision. Files that are
// already stored are not written again. All files are on disk when it returns.
func (l *Log) KeepArchive(files map[string][]byte) (revision string, err error) {
	manifest, err := Manifest(files)
	if err == nil {
		err = l.keep(files, manifest)
	}
	if err != nil {
		return "", fmt.Errorf("keep revision: %w", err)
	}
	return Revision(manifest), nil
}

func (l *Log) keep(files map[string][]byte, manifest []byte) error {
	l.archiveMu.Lock()
	defer l.archiveMu.Unlock()
	if err := keepBlobs(filepath.Join(l.dir, blobsDir), slices.Collect(maps.Values(files))); err != nil {
		return err
	}
	return keepBlobs(filepath.Join(l.dir, revisionsDir), [][]byte{manifest})
}

// keepBlobs stores blobs in dir under their hashes. It skips existing ones.
func keepBlobs(dir string, blobs [][]byte) error {
	added := false
	for _, blob := range blobs {
		path := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256(blob)))
		if info, err := os.Stat(path); err == nil && info.Size() == int64(len(blob)) {
			continue
		}
		if err := durable.WriteFile(path, blob); err != nil {
			return err
		}
		added = true
	}
	if !added {
		return nil
	}
	return durable.SyncDir(dir)
}

// ReadArchive is [Reader.ReadArchive] for the log in dir. Another process may have the log open,
// because stored archives never change.
func ReadArchive(dir, revision string) (map[string][]byte, error) {
	return (&Reader{dir: dir}).ReadArchive(revision)
}

// ReadArchive returns the files of a policy revision by path. The error is [fs.ErrNotExist] for an
// unknown revision and an [IntegrityError] for an incomplete or damaged one.
func (r *Reader) ReadArchive(revision string) (map[string][]byte, error) {
	files, err := r.readArchive(revision)
	if err != nil {
		return nil, fmt.Errorf("read revision %s: %w", revision, err)
	}
	return files, nil
}

func (r *Reader) readArchive(revision string) (map[string][]byte, error) {
	name, found := strings.CutPrefix(revision, revisionPrefix)
	if !found || !isHash(name) {
		return nil, fs.ErrNotExist
	}
	manifest, err := readBlob(filepath.Join(r.dir, revisionsDir), name)
	if err != nil {
		return nil, err
	}
	kept, err := parseManifest(manifest)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte, len(kept))
	for _, file := range kept {
		files[file.path], err = readBlob(filepath.Join(r.dir, blobsDir), file.hash)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, damaged(-1, "has no blob %s for %s", file.hash, file.path)
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// A keptFile is a line of a manifest.
type keptFile struct {
	hash, path string
}

// parseManifest is the inverse of [Manifest]. It refuses every text that Manifest does not produce.
func parseManifest(manifest []byte) ([]keptFile, error) {
	var kept []keptFile
	last := ""
	for line := range strings.Lines(string(manifest)) {
		entry, ended := strings.CutSuffix(line, "\n")
		hash, path, _ := strings.Cut(entry, "  ")
		if !ended || !isHash(hash) || checkPath(path) != nil || path <= last {
			return nil, damaged(-1, "has a manifest with the line %q", line)
		}
		kept = append(kept, keptFile{hash, path})
		last = path
	}
	return kept, nil
}

// readBlob reads a file of dir and checks that its hash equals its name.
func readBlob(dir, hash string) ([]byte, error) {
	blob, err := os.ReadFile(filepath.Join(dir, hash))
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(blob)); got != hash {
		return nil, damaged(-1, "has a blob %s whose hash is %s", hash, got)
	}
	return blob, nil
}

// isHash reports whether s is a SHA-256 in lower-case hex, as in a file name.
func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == hex.EncodeToString(b)
}
