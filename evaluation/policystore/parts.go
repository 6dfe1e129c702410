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

// maxTold bounds what is told of one tenant's folder, as the decision log keeps it.
const maxTold = 50

// A part of a store is its root or the folder of one tenant. Each has bounds of its
// own, and what keeps a tenant's part from being read is that tenant's fault alone.
type part struct {
	tenant    string // "" for the root
	files     []file // that are read, in order of their names
	dirs      []string
	names     int // that were seen in a tenant's folders
	size      int64
	full      bool        // no more is listed
	told      int         // faults of a tenant
	unread    []unread    // what keeps it from being read
	misplaced faults.List // names that look as if they were read
}

// unread is a file or folder that cannot be read.
type unread struct {
	name string
	err  error
}

func (u unread) Error() string { return printable(u.name) + ": " + u.err.Error() }
func (u unread) Unwrap() error { return u.err }

// part returns the part of the store that a path belongs to.
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

// most is how many bytes the files of the part may have.
func (p *part) most() int64 {
	if p.tenant == "" {
		return maxStore
	}
	return maxTenant
}

// read reads a directory. Of a tenant's it reads no more than fits into the bounds,
// so that masses of names cost no one else time or memory.
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

// readSome returns at most so many entries of a directory, by name.
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

// overflowed says that a part has too many folders or names.
func (p *part) overflowed(dir string) (string, error) {
	if p.tenant == "" {
		return dir, fmt.Errorf("with this folder there are more than %d", maxFiles)
	}
	return p.folder(), fmt.Errorf("has more than %d files and folders", maxTenantNames)
}

// mayTell counts what is told of the part, up to its bound.
func (p *part) mayTell() bool {
	p.told++
	return p.tenant == "" || p.told <= maxTold
}

// fault notes what keeps a file or folder from being read. The first is noted
// whatever has been told: it is what keeps the part from being read.
func (l *listing) fault(name string, err error) {
	if p := l.part(name); p.mayTell() || len(p.unread) == 0 {
		p.unread = append(p.unread, unread{name, err})
	}
}

// misplace notes a file or folder that is not where or what it should be, if it
// is one.
func (l *listing) misplace(fault *faults.Fault) {
	if fault == nil {
		return
	}
	if p := l.part(fault.File); p.mayTell() {
		fault.File = printable(fault.File)
		p.misplaced = append(p.misplaced, *fault)
	}
}

// printable is a path without the characters that make a second line of one.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(name)
		return quoted[1 : len(quoted)-1]
	}
	return name
}

// bare returns what an error of a file system says beside the path.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// finish says what can be said of whole parts.
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

// checkEmpty reports a folder of a tenant without files, and a folder of tenants
// without tenants: the root alone would answer them, or everybody.
func (l *listing) checkEmpty() {
	root := l.part(".")
	below := func(f faults.Fault) bool { return strings.HasPrefix(f.File, tenantsDir+"/") }
	if len(l.parts) == 1 && slices.Contains(root.dirs, tenantsDir) && !slices.ContainsFunc(root.misplaced, below) {
		l.misplace(misplaced(tenantsDir, "holds no tenant: the root would answer everybody", "remove it, or put the folder of a tenant into it"))
	}
	for _, p := range l.tenants() {
		if len(p.files) == 0 && p.told == 0 {
			l.misplace(misplaced(p.folder(), "holds no file that is read", "put *.cedar files into it, or remove it"))
		}
	}
}

// checkSize leaves out the largest tenants while all together are too large.
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

// tenants lists the parts of tenants that can be read, by name.
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

// misplaced lists the names of all parts that look as if they were read.
func (l *listing) misplaced() (all faults.List) {
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		all = append(all, l.parts[name].misplaced...)
	}
	return all
}

// unread lists what keeps tenants from being read.
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
	if more := p.told - maxTold; more > 0 {
		all = append(all, faults.Fault{File: p.folder(), Message: fmt.Sprintf("has %d more faults", more)})
	}
	return all
}

// tenantFaults lists what is wrong with tenants and nobody else.
func (l *listing) tenantFaults() (all faults.List) {
	for _, name := range slices.Sorted(maps.Keys(l.parts)) {
		if p := l.parts[name]; p.tenant != "" {
			all = append(append(all, p.misplaced...), p.unreadFaults()...)
		}
	}
	return all
}

// moved lists the parts, by their tenants, that two listings show differently.
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
