package policystore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// maxReported limits the reported faults of one tenant's folder, because the decision log stores them.
const maxReported = 50

// A part of a store is its root or the folder of one tenant. Each has its own limits. An error in a
// tenant's part affects only that tenant.
type part struct {
	tenant    string // "" for the root
	files     []file // files that are read, sorted by name
	dirs      []string
	names     int // number of names in a tenant's folders
	size      int64
	full      bool        // the limit is reached, and no more is listed
	reported  int         // number of reported faults of a tenant
	unread    []unread    // what prevents reading the part
	misplaced faults.List // names that look relevant but are not read
}

// unread is a file or folder that cannot be read.
type unread struct {
	name string
	err  error
}

func (u unread) Error() string { return printable(u.name) + ": " + u.err.Error() }
func (u unread) Unwrap() error { return u.err }

// part returns the part of the store that contains a path.
func (l *listing) part(name string) *part {
	tenant := snapshot.TenantAt(name)
	if l.parts == nil {
		l.parts = map[string]*part{}
	}
	if l.parts[tenant] == nil {
		l.parts[tenant] = &part{tenant: tenant}
	}
	return l.parts[tenant]
}

func (p *part) folder() string { return tenantsDir + "/" + p.tenant }

// most returns the limit on the bytes of the part's files.
func (p *part) most() int64 {
	if p.tenant == "" {
		return maxStore
	}
	return maxTenant
}

// read reads a directory. For a tenant it stops at the limit on names, so that a huge folder does not
// cost other tenants time or memory.
func (p *part) read(fsys fs.FS, dir string) ([]fs.DirEntry, error) {
	if p.tenant == "" {
		p.full = len(p.dirs) >= maxFiles
		return fs.ReadDir(fsys, dir)
	}
	entries, err := readSome(fsys, dir, maxTenantNames-p.names+1)
	p.names += len(entries)
	p.full = p.names > maxTenantNames
	return entries, err
}

// readSome returns at most the given number of entries of a directory, by name.
func readSome(fsys fs.FS, dir string, most int) ([]fs.DirEntry, error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, errors.New("is not a directory")
	}
	var entries []fs.DirEntry
	for len(entries) < most {
		more, err := in.ReadDir(most - len(entries))
		entries = append(entries, more...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return entries, err
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// overflowed returns the error for too many folders or names in a part.
func (p *part) overflowed(dir string) (string, error) {
	if p.tenant == "" {
		return dir, fmt.Errorf("with this folder there are more than %d", maxFiles)
	}
	return p.folder(), fmt.Errorf("has more than %d files and folders", maxTenantNames)
}

// mayTell counts a reported fault and reports whether it is within the limit.
func (p *part) mayTell() bool {
	p.reported++
	return p.tenant == "" || p.reported <= maxReported
}

// fault records why a file or folder cannot be read. It always records the first, even over the limit on
// reports, because that one prevents reading the part.
func (l *listing) fault(name string, err error) {
	if p := l.part(name); p.mayTell() || len(p.unread) == 0 {
		p.unread = append(p.unread, unread{name, err})
	}
}

// misplace records a misplaced file or folder. It ignores nil.
func (l *listing) misplace(fault *faults.Fault) {
	if fault == nil {
		return
	}
	if p := l.part(fault.File); p.mayTell() {
		fault.File = printable(fault.File)
		p.misplaced = append(p.misplaced, *fault)
	}
}

// printable returns a path without characters that would break the line.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(name)
		return quoted[1 : len(quoted)-1]
	}
	return name
}

// bare returns a file system error without its path.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// finish reports the faults that concern whole parts.
func (l *listing) finish() {
	for _, p := range l.parts {
		slices.SortFunc(p.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
		slices.SortFunc(p.misplaced, func(a, b faults.Fault) int { return cmp.Compare(a.File, b.File) })
	}
	if len(l.parts) > maxFiles {
		l.fault(tenantsDir, fmt.Errorf("there are more than %d tenants", maxFiles-1))
	}
	l.checkEmpty()
	l.checkSize()
}

// checkEmpty reports a tenant's folder without files, and a folder tenants/ without tenants. Otherwise
// the root alone would answer that tenant's requests, or all requests.
func (l *listing) checkEmpty() {
	root := l.part(".")
	below := func(f faults.Fault) bool { return strings.HasPrefix(f.File, tenantsDir+"/") }
	if len(l.parts) == 1 && slices.Contains(root.dirs, tenantsDir) && !slices.ContainsFunc(root.misplaced, below) {
		l.misplace(misplaced(tenantsDir, "holds no tenant: the root would answer everybody", "remove it, or put the folder of a tenant into it"))
	}
	for _, p := range l.tenants() {
		if len(p.files) == 0 && p.reported == 0 {
			l.misplace(misplaced(p.folder(), "holds no file that is read", "put *.cedar files into it, or remove it"))
		}
	}
}

// checkSize omits the largest tenants until the total is within the limit.
func (l *listing) checkSize() {
	tenants := l.tenants()
	var size int64
	for _, p := range tenants {
		size += p.size
	}
	slices.SortStableFunc(tenants, func(a, b *part) int { return cmp.Compare(b.size, a.size) })
	for _, p := range tenants {
		if size <= maxTenants {
			return
		}
		size -= p.size
		l.fault(p.folder(), fmt.Errorf("all tenants have more than %d bytes together, and no other has more than this one", maxTenants))
	}
}

// tenants lists the readable parts of tenants, by name.
func (l *listing) tenants() []*part {
	var tenants []*part
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		if p := l.parts[name]; p.tenant != "" && len(p.unread) == 0 {
			tenants = append(tenants, p)
		}
	}
	return tenants
}

// dirs lists the directories that hold files or may.
func (l *listing) dirs() []string {
	var dirs []string
	for _, p := range l.parts {
		dirs = append(dirs, p.dirs...)
	}
	return dirs
}

// misplaced lists the misplaced names of all parts.
func (l *listing) misplaced() (all faults.List) {
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		all = append(all, l.parts[name].misplaced...)
	}
	return all
}

// unread lists what prevents reading tenants' parts.
func (l *listing) unread() (all faults.List) {
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		if p := l.parts[name]; p.tenant != "" {
			all = append(all, p.unreadFaults()...)
		}
	}
	return all
}

func (p *part) unreadFaults() (all faults.List) {
	for _, u := range p.unread {
		all = append(all, faults.Fault{File: printable(u.name), Message: u.err.Error()})
	}
	if more := p.reported - maxReported; more > 0 {
		all = append(all, faults.Fault{File: p.folder(), Message: fmt.Sprintf("has %d more faults", more)})
	}
	return all
}

// tenantFaults lists the faults that affect only their tenant.
func (l *listing) tenantFaults() (all faults.List) {
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		if p := l.parts[name]; p.tenant != "" {
			all = append(append(all, p.misplaced...), p.unreadFaults()...)
		}
	}
	return all
}

// moved lists, by tenant, the parts that differ between two listings.
func (l *listing) moved(other *listing) (parts []string) {
	for name, p := range l.parts {
		if !p.same(other.parts[name]) {
			parts = append(parts, name)
		}
	}
	for name := range other.parts {
		if l.parts[name] == nil {
			parts = append(parts, name)
		}
	}
	slices.Sort(parts)
	return parts
}

func (p *part) same(other *part) bool {
	return other != nil && slices.Equal(p.files, other.files) && slices.Equal(p.misplaced, other.misplaced) &&
		slices.EqualFunc(p.unread, other.unread, func(a, b unread) bool { return a.Error() == b.Error() })
}
