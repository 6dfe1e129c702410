package pdp

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Limits of a policy store that comes as a zip archive.
const (
	maxZipBytes = 4 << 20  // compressed
	maxZipFiles = 10_000   // files and folders
	maxUnzipped = 64 << 20 // bytes of all files
)

// storeInZip returns the policy store in a zip archive, at its root or in its only folder. An archive
// whose names, sizes or kinds of files are suspicious is a [authzen.ValidationError]. What is wrong in
// the store itself is an error as [policystore.Read] returns it.
func storeInZip(body []byte) (snapshot.Archive, error) {
	archive, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return nil, authzen.Invalid("", "is not a zip archive: %v", err)
	}
	if err := checkZip(archive.File); err != nil {
		return nil, err
	}
	root, err := onlyFolder(archive)
	if err != nil {
		return nil, authzen.Invalid("", "is not a zip archive that can be read: %v", err)
	}
	return policystore.Read(root)
}

// checkZip refuses names that leave the archive or that two files share, links and other special
// files, encryption, sizes over the limits, and files that are not as long as stated.
func checkZip(files []*zip.File) error {
	if len(files) > maxZipFiles {
		return authzen.Invalid("", "has %d files and folders, more than %d", len(files), maxZipFiles)
	}
	seen := make(map[string]bool, len(files)) // whether a name is that of a folder
	var all uint64
	for _, f := range files {
		name := strings.TrimSuffix(f.Name, "/")
		_, known := seen[name]
		switch mode := f.Mode(); {
		case !snapshot.ValidPath(name) || f.NonUTF8 || strings.ContainsRune(name, '\\') || strings.ContainsFunc(name, unicode.IsControl):
			return authzen.Invalid("", "has a file with the name %q", f.Name)
		case known:
			return authzen.Invalid("", "has two files with the name %q", f.Name)
		case !mode.IsRegular() && !mode.IsDir() || mode.IsDir() != strings.HasSuffix(f.Name, "/"):
			return authzen.Invalid("", "has %q, which is neither a file nor a folder", f.Name)
		case f.Flags&1 != 0 || f.Method != zip.Store && f.Method != zip.Deflate:
			return authzen.Invalid("", "has %q, which is encrypted or compressed in an unknown way", f.Name)
		}
		seen[name] = f.Mode().IsDir()
		if all += min(f.UncompressedSize64, maxUnzipped+1); all > maxUnzipped {
			return authzen.Invalid("", "has more than %d bytes of files", maxUnzipped)
		}
	}
	for _, f := range files {
		if err := checkContent(f); err != nil {
			return authzen.Invalid("", "has the file %q, which is damaged: %v", f.Name, err)
		}
	}
	for name := range seen {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if folder, known := seen[dir]; known && !folder {
				return authzen.Invalid("", "has %q, which is both a file and a folder", dir)
			}
		}
	}
	return nil
}

// checkContent reads a file to its end, where its checksum is.
func checkContent(f *zip.File) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(in, int64(f.UncompressedSize64)+1))
	if err == nil && n != int64(f.UncompressedSize64) {
		err = zip.ErrFormat
	}
	return err
}

// onlyFolder returns the only folder in the root of an archive, or the root if it has more. Programs
// that compress a folder often put it into the archive. The folder tenants is part of a store.
func onlyFolder(root fs.FS) (fs.FS, error) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	if len(entries) != 1 || !entries[0].IsDir() || entries[0].Name() == "tenants" {
		return root, nil
	}
	return fs.Sub(root, entries[0].Name())
}
