package policystore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation"
)

const (
	maxFile  = 64 << 20  // bytes of one file
	maxStore = 256 << 20 // bytes of all files
	maxFiles = 10_000    // and folders
	maxDepth = 32        // folders in each other

	tenantsDir = "tenants"
)

// A listing is what can be seen of a store without opening a file.
type listing struct {
	files []file   // that are read, in order of their names
	dirs  []string // that hold them or may
	taken time.Time

	fsys      fs.FS
	size      int64
	faults    []error
	misplaced evaluation.Faults // names that look as if they were read
}

// A file is what tells one state of a file from another.
type file struct {
	name     string // slash-separated, from the root of the store
	size     int64
	modified int64 // Unix time in nanoseconds
	stamp
}

// A stamp is what some systems know of a file beside its size and time.
type stamp struct {
	device, inode uint64
	changed       int64 // Unix time in nanoseconds: its content, place or mode
}

// list lists the store at the root of fsys, as much of it as can be.
func list(fsys fs.FS) *listing {
	l := &listing{fsys: fsys, taken: time.Now()}
	if info := l.stat("."); info != nil {
		l.folder(".", []fs.FileInfo{info})
	}
	slices.SortFunc(l.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(l.misplaced, func(a, b evaluation.Fault) int { return cmp.Compare(a.File, b.File) })
	return l
}

// err returns what is wrong with what is listed, but for what is misplaced.
func (l *listing) err() error { return errors.Join(l.faults...) }

// reads reports whether a file is read, by its path from the root of the store.
func reads(name string) bool {
	return name == manifestFile || name == signatureFile || evaluation.Counts(name)
}

// folder adds what is in a folder and below it. Above are the folders that lead
// to it, itself the last.
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

// file looks at a file that is not read.
func (l *listing) file(name string) {
	if name == tenantsDir {
		l.fault(fmt.Errorf("%s is not a directory", name))
		return
	}
	l.misplace(misplacedFile(name))
}

// link adds the folder that a symbolic link leads to. One that leads nowhere is
// a fault where a folder could be meant.
func (l *listing) link(name string, above []fs.FileInfo) {
	info, err := fs.Stat(l.fsys, name)
	switch {
	case err != nil && mayBeFolder(name):
		l.fault(l.explained(name, err))
	case err == nil && info.IsDir():
		l.below(name, above)
	default:
		l.file(name)
	}
}

// below adds a folder below another.
func (l *listing) below(name string, above []fs.FileInfo) {
	if skipped(name) {
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
		l.fault(fmt.Errorf("%s: the symbolic link leads to a folder that it is in", name))
	case len(above) > maxDepth:
		l.fault(fmt.Errorf("%s: folders nest deeper than %d", name, maxDepth))
	default:
		l.folder(name, append(slices.Clip(above), info))
	}
}

// enter returns what is in a directory, names that begin with a dot left out.
func (l *listing) enter(dir string) []fs.DirEntry {
	if len(l.dirs) >= maxFiles {
		if len(l.dirs) == maxFiles {
			l.fault(fmt.Errorf("%s: with this folder there are more than %d", dir, maxFiles))
		}
		l.dirs = append(l.dirs, dir)
		return nil
	}
	entries, err := fs.ReadDir(l.fsys, dir)
	if err != nil {
		l.fault(err)
		return nil
	}
	l.dirs = append(l.dirs, dir)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return strings.HasPrefix(entry.Name(), ".") })
}

func (l *listing) add(name string) {
	if len(l.files) > maxFiles {
		return
	}
	info := l.stat(name)
	if info == nil {
		return
	}
	l.files = append(l.files, file{name, info.Size(), info.ModTime().UnixNano(), stampOf(info)})
	l.size += info.Size()
	switch {
	case !info.Mode().IsRegular():
		l.fault(fmt.Errorf("%s is not a regular file", name))
	case info.Size() > maxFile:
		l.fault(fmt.Errorf("%s is larger than %d bytes", name, maxFile))
	case l.size > maxStore && l.size-info.Size() <= maxStore:
		l.fault(fmt.Errorf("%s: with this file there are more than %d bytes", name, maxStore))
	case len(l.files) > maxFiles:
		l.fault(fmt.Errorf("%s: with this file there are more than %d", name, maxFiles))
	}
}

// stat follows symbolic links. It returns nil, and keeps the fault, if it
// cannot.
func (l *listing) stat(name string) fs.FileInfo {
	info, err := fs.Stat(l.fsys, name)
	if err != nil {
		l.fault(l.explained(name, err))
		return nil
	}
	return info
}

// explained says of a symbolic link that is not followed what is wrong with it.
func (l *listing) explained(name string, err error) error {
	target, unread := fs.ReadLink(l.fsys, name)
	if unread != nil {
		return err
	}
	if !path.IsAbs(target) {
		return fmt.Errorf("%w (a symbolic link to %s; it may lead only to what is in the store)", err, target)
	}
	return fmt.Errorf("%s: path escapes from the policy store: the symbolic link to %s is absolute (make it relative, to what is in the store)", name, target)
}

func (l *listing) fault(err error) { l.faults = append(l.faults, err) }

// misplace notes a file or folder that is not where or what it should be, if it
// is one.
func (l *listing) misplace(fault *evaluation.Fault) {
	if fault != nil {
		l.misplaced = append(l.misplaced, *fault)
	}
}

// same reports whether two listings show the same.
func (l *listing) same(other *listing) bool {
	return slices.Equal(l.files, other.files) && slices.Equal(l.misplaced, other.misplaced) && slices.EqualFunc(l.faults, other.faults,
		func(a, b error) bool { return a.Error() == b.Error() })
}

// young reports whether a file had changed so shortly before it was listed.
func (l *listing) young(age time.Duration) bool {
	limit := l.taken.Add(-age).UnixNano()
	return slices.ContainsFunc(l.files, func(f file) bool { return f.changed > limit })
}
