package policystore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation/snapshot"
)

const (
	maxFile  = 64 << 20  // bytes of one file
	maxStore = 256 << 20 // bytes of all files of the root
	maxFiles = 10_000    // files of the root; also the limit on folders
	maxDepth = 32        // depth of nested folders

	maxTenant      = 64 << 20 // bytes of all files of one tenant
	maxTenantNames = 2_000    // names in the folders of one tenant, read or not
	maxTenants     = 1 << 30  // bytes of all tenants' files

	maxTestFaults = 20 // policies that are reported in one folder of tests

	tenantsDir = "tenants"
)

// A listing describes a store without opening its files.
type listing struct {
	parts map[string]*part // by tenant; "" for the root
	taken time.Time

	fsys fs.FS
}

// A file identifies one version of a file.
type file struct {
	name     string // slash-separated, from the root of the store
	size     int64
	modified int64 // Unix time in nanoseconds
	stamp
}

// A stamp holds what some systems record of a file in addition to its size and time.
type stamp struct {
	device, inode uint64
	changed       int64 // Unix time in nanoseconds of the last change to content, place or mode
}

// list lists the store at the root of fsys, as far as it can.
func list(fsys fs.FS) *listing {
	l := &listing{fsys: fsys, taken: time.Now()}
	if info := l.stat("."); info != nil {
		l.folder(".", []fs.FileInfo{info})
	}
	l.finish()
	return l
}

// err returns the error that prevents reading the root.
func (l *listing) err() error {
	var errs []error
	for _, u := range l.part(".").unread {
		errs = append(errs, u)
	}
	return errors.Join(errs...)
}

// reads reports whether a file is read, given its path from the root of the store.
func reads(name string) bool {
	return name == manifestFile || name == signatureFile || snapshot.Counts(name)
}

// folder adds the content of a folder, recursively. above lists the folders on the path to it,
// including itself as the last.
func (l *listing) folder(dir string, above []fs.FileInfo) {
	for _, entry := range l.enter(dir) {
		name := path.Join(dir, entry.Name())
		switch {
		case reads(name):
			l.add(name)
		case entry.IsDir():
			l.below(name, above)
		case entry.Type()&fs.ModeSymlink != 0:
			l.link(name, above)
		default:
			l.file(name)
		}
	}
}

// file checks a file that is not read.
func (l *listing) file(name string) {
	if name == tenantsDir {
		l.fault(name, errors.New("is not a directory"))
		return
	}
	l.misplace(misplacedFile(name))
}

// link adds the folder that a symbolic link leads to. A broken link is a fault where it could stand for
// a folder.
func (l *listing) link(name string, above []fs.FileInfo) {
	info, err := fs.Stat(l.fsys, name)
	switch {
	case err != nil && mayBeFolder(name):
		l.fault(name, l.explained(name, err))
	case err == nil && info.IsDir():
		l.below(name, above)
	default:
		l.file(name)
	}
}

// below adds a subfolder.
func (l *listing) below(name string, above []fs.FileInfo) {
	if skipped(name) {
		l.tests(name)
		return
	}
	if fault := misplacedFolder(name); fault != nil {
		l.misplace(fault)
		return
	}
	info := l.stat(name)
	switch {
	case info == nil:
	case slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }):
		l.fault(name, errors.New("the symbolic link leads to a folder that it is in"))
	case len(above) > maxDepth:
		l.fault(name, fmt.Errorf("folders nest deeper than %d", maxDepth))
	default:
		l.folder(name, append(slices.Clip(above), info))
	}
}

// tests looks for misplaced policies in a folder of tests, which is not read. The folder counts towards
// no limit, and its other faults concern only the tests.
func (l *listing) tests(dir string) {
	folder, err := l.fsys.Open(dir)
	if err != nil {
		return
	}
	defer folder.Close()
	reader, ok := folder.(fs.ReadDirFile)
	if !ok {
		return
	}
	found, err := 0, error(nil)
	for seen := 0; err == nil && found < maxTestFaults; {
		var entries []fs.DirEntry
		entries, err = reader.ReadDir(maxTenantNames)
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if found < maxTestFaults && !strings.HasPrefix(entry.Name(), ".") && looksLikePolicy(strings.ToLower(entry.Name())) {
				l.misplace(misplacedPolicy(name, locate(name)))
				found++
			}
		}
		if seen += len(entries); seen > maxFiles {
			l.misplace(misplaced(dir, fmt.Sprintf("has more than %d files", maxFiles), "a policy among them would not be found"))
			return
		}
	}
}

// enter returns the entries of a directory, except names that begin with a dot.
func (l *listing) enter(dir string) []fs.DirEntry {
	p := l.part(dir)
	if p.full {
		return nil
	}
	entries, err := p.read(l.fsys, dir)
	if err != nil {
		l.fault(dir, bare(err))
		return nil
	}
	p.dirs = append(p.dirs, dir)
	if p.full {
		l.fault(p.overflowed(dir))
		return nil
	}
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return strings.HasPrefix(entry.Name(), ".") })
}

func (l *listing) add(name string) {
	p := l.part(name)
	if p.full || len(p.files) > maxFiles {
		return
	}
	info := l.stat(name)
	if info == nil {
		return
	}
	p.files = append(p.files, file{name, info.Size(), info.ModTime().UnixNano(), stampOf(info)})
	p.size += info.Size()
	most := p.most()
	switch {
	case !snapshot.ValidPath(name):
		l.fault(name, errors.New("file names must be UTF-8 without line breaks"))
	case !info.Mode().IsRegular():
		l.fault(name, errors.New("is not a regular file"))
	case info.Size() > maxFile:
		l.fault(name, fmt.Errorf("is larger than %d bytes", maxFile))
	case p.size > most && p.size-info.Size() <= most:
		l.fault(name, fmt.Errorf("with this file there are more than %d bytes", most))
	case len(p.files) > maxFiles:
		l.fault(name, fmt.Errorf("with this file there are more than %d", maxFiles))
	}
}

// stat follows symbolic links. On an error it returns nil and records the fault.
func (l *listing) stat(name string) fs.FileInfo {
	info, err := fs.Stat(l.fsys, name)
	if err != nil {
		l.fault(name, l.explained(name, err))
		return nil
	}
	return info
}

// explained adds to an error why a name, usually a symbolic link, is not followed.
func (l *listing) explained(name string, err error) error {
	target, unread := fs.ReadLink(l.fsys, name)
	if unread != nil {
		return bare(err)
	}
	if !path.IsAbs(target) {
		return fmt.Errorf("%w (a symbolic link to %s; it may lead only to what is in the store)", bare(err), printable(target))
	}
	return fmt.Errorf("path escapes from the policy store: the symbolic link to %s is absolute (make it relative, to what is in the store)", printable(target))
}

// same reports whether two listings are equal.
func (l *listing) same(other *listing) bool { return len(l.moved(other)) == 0 }

// young reports whether a file had changed less than age before it was listed.
func (l *listing) young(age time.Duration) bool {
	limit := l.taken.Add(-age).UnixNano()
	for _, p := range l.parts {
		if slices.ContainsFunc(p.files, func(f file) bool { return f.changed > limit }) {
			return true
		}
	}
	return false
}
