package policystore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation"
)

const (
	maxFile  = 64 << 20  // bytes of one file
	maxStore = 256 << 20 // bytes of all files
	maxFiles = 10_000

	tenantsDir = "tenants"
)

// A listing is what can be seen of a store without opening a file.
type listing struct {
	files []file   // that are read, in order of their names
	dirs  []string // that hold them or may
	taken time.Time

	size   int64
	faults []error
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
	l := &listing{taken: time.Now()}
	for _, name := range l.enter(fsys, ".") {
		switch {
		case name == tenantsDir:
			l.addTenants(fsys)
		case reads(name):
			l.add(fsys, name)
		}
	}
	slices.SortFunc(l.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return l
}

// err returns what is wrong with what is listed.
func (l *listing) err() error { return errors.Join(l.faults...) }

// reads reports whether a file is read, by its path from the root of the store.
func reads(name string) bool {
	return name == manifestFile || name == signatureFile || evaluation.Counts(name)
}

// enter returns the names in a directory, those that begin with a dot left out.
func (l *listing) enter(fsys fs.FS, dir string) []string {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		l.fault(err)
		return nil
	}
	l.dirs = append(l.dirs, dir)
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names
}

func (l *listing) addTenants(fsys fs.FS) {
	info := l.stat(fsys, tenantsDir)
	if info == nil {
		return
	}
	if !info.IsDir() {
		l.fault(fmt.Errorf("%s is not a directory", tenantsDir))
		return
	}
	for _, name := range l.enter(fsys, tenantsDir) {
		l.addTenant(fsys, name)
	}
}

// addTenant adds what may be the directory of a tenant.
func (l *listing) addTenant(fsys fs.FS, tenant string) {
	dir := tenantsDir + "/" + tenant
	info := l.stat(fsys, dir)
	switch {
	case info == nil:
	case !info.IsDir() && evaluation.Counts(tenant):
		l.fault(fmt.Errorf("%s is not in the directory of a tenant", dir))
	case !info.IsDir():
	case !evaluation.ValidTenant(tenant):
		l.fault(fmt.Errorf("%s: %q cannot be the name of a tenant", dir, tenant))
	default:
		for _, name := range l.enter(fsys, dir) {
			if path := dir + "/" + name; evaluation.Counts(path) {
				l.add(fsys, path)
			}
		}
	}
}

func (l *listing) add(fsys fs.FS, name string) {
	if len(l.files) > maxFiles {
		return
	}
	info := l.stat(fsys, name)
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
func (l *listing) stat(fsys fs.FS, name string) fs.FileInfo {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		l.fault(err)
		return nil
	}
	return info
}

func (l *listing) fault(err error) { l.faults = append(l.faults, err) }

// same reports whether two listings show the same.
func (l *listing) same(other *listing) bool {
	return slices.Equal(l.files, other.files) && slices.EqualFunc(l.faults, other.faults,
		func(a, b error) bool { return a.Error() == b.Error() })
}

// young reports whether a file had changed so shortly before it was listed.
func (l *listing) young(age time.Duration) bool {
	limit := l.taken.Add(-age).UnixNano()
	return slices.ContainsFunc(l.files, func(f file) bool { return f.changed > limit })
}
