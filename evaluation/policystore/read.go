package policystore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

const maxAttempts = 10

// Read reads the policy store at the root of fsys. With an error that depends only on the names of the
// files, [ErrEmpty] or [evaluation.Faults], it also returns the files that could be read.
func Read(fsys fs.FS) (snapshot.Archive, error) {
	state, err := untilSteady(func(last bool) (*State, error) { return attempt(fsys, &Config{}, last) })
	if state == nil {
		return nil, err
	}
	return state.Archive, state.asError(err)
}

// asError returns the faults of tenants as an error of the whole store. Without any it returns err.
func (s *State) asError(err error) error {
	if len(s.TenantFaults) == 0 {
		return err
	}
	return errFaults(s.TenantFaults)
}

// Read reads the store.
func (s *Store) Read() (*State, error) {
	state, err := s.read()
	if err != nil {
		return nil, err
	}
	return state, nil
}

// read reads the store. With an error that depends only on the files, it also returns the state.
func (s *Store) read() (*State, error) {
	return untilSteady(s.attempt)
}

// attempt reads the store once. It checks that the directory is still at its path, because it could be
// in the process of removal.
func (s *Store) attempt(last bool) (*State, error) {
	root, err := openRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	state, err := attempt(root, &s.config, last)
	if !root.inPlace() {
		return nil, ErrUnstable
	}
	return state, err
}

// untilSteady repeats attempts while files change. The last attempt omits tenants whose files still
// change.
func untilSteady(attempt func(last bool) (*State, error)) (state *State, err error) {
	for i := range maxAttempts {
		state, err = attempt(i == maxAttempts-1)
		if !errors.Is(err, ErrUnstable) {
			return state, err
		}
	}
	return nil, err
}

// attempt reads the store at the root of fsys once.
func attempt(fsys fs.FS, c *Config, last bool) (*State, error) {
	before := list(fsys)
	texts, err := before.readAll()
	for _, tenant := range before.moved(list(fsys)) {
		if tenant == "" || !last {
			return nil, ErrUnstable
		}
		before.fault(path.Join(tenantsDir, tenant), ErrUnstable)
	}
	if errors.Is(err, ErrUnstable) || before.unsteady() && !last {
		return nil, ErrUnstable
	}
	if err == nil && c.covers(texts) {
		err = faultsOf(before.unread())
	}
	if err != nil {
		return nil, fmt.Errorf("read policy store: %w", before.joinMisplaced(err))
	}
	return c.state(before, before.readable(texts))
}

// state returns the state of the files that could be read.
func (c *Config) state(l *listing, texts map[string][]byte) (*State, error) {
	state, err := c.accept(l, texts)
	state.TenantFaults = l.tenantFaults()
	switch {
	case len(l.part(".").misplaced) > 0:
		state.TenantFaults = append(slices.Clone(l.part(".").misplaced), state.TenantFaults...)
		err = errFaults(state.TenantFaults)
	case errors.Is(err, ErrEmpty):
		err = state.asError(err)
	}
	return state, err
}

// covers reports whether a manifest determines the files of the store. Then no part is valid alone.
func (c *Config) covers(texts map[string][]byte) bool {
	return c.RequireManifest || len(c.ManifestKey) > 0 || texts[manifestFile] != nil
}

func errFaults(found faults.List) error {
	return fmt.Errorf("read policy store: %w", found)
}

// faultsOf returns found as an error, or nil if it is empty.
func faultsOf(found faults.List) error {
	if len(found) == 0 {
		return nil
	}
	return found
}

// joinMisplaced joins the misplaced names with an error that is not an [evaluation.Faults], so that neither
// hides the other.
func (l *listing) joinMisplaced(err error) error {
	found := append(l.misplaced(), l.unread()...)
	if own, ok := errors.AsType[faults.List](err); ok {
		return append(l.misplaced(), own...)
	}
	if len(found) == 0 {
		return err
	}
	return errors.Join(err, errors.New(found.Error()))
}

// readAll reads the files of all readable parts. The error is the root's.
func (l *listing) readAll() (map[string][]byte, error) {
	texts := map[string][]byte{}
	if err := l.err(); err != nil {
		return nil, err
	}
	if err := l.part(".").readAll(l.fsys, texts); err != nil {
		return nil, err
	}
	for _, p := range l.tenants() {
		var at unread
		if err := p.readAll(l.fsys, texts); errors.As(err, &at) {
			l.fault(at.name, at.err)
		}
	}
	return texts, nil
}

func (p *part) readAll(fsys fs.FS, texts map[string][]byte) error {
	for _, f := range p.files {
		text, err := readFile(fsys, f)
		if err != nil {
			return unread{f.name, bare(err)}
		}
		texts[f.name] = text
	}
	return nil
}

// unsteady reports whether a tenant's file changed during the read.
func (l *listing) unsteady() bool {
	for _, p := range l.parts {
		if slices.ContainsFunc(p.unread, func(u unread) bool { return errors.Is(u, ErrUnstable) }) {
			return true
		}
	}
	return false
}

// readable omits the files of tenants that cannot be read completely.
func (l *listing) readable(texts map[string][]byte) map[string][]byte {
	maps.DeleteFunc(texts, func(name string, _ []byte) bool {
		p := l.part(name)
		return p.tenant != "" && len(p.unread) > 0
	})
	return texts
}

// readFile reads a file up to its listed size.
func readFile(fsys fs.FS, f file) ([]byte, error) {
	in, err := fsys.Open(f.name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, ErrUnstable)
	}
	text := make([]byte, f.size)
	if _, err := io.ReadFull(in, text); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, ErrUnstable
	} else if err != nil {
		return nil, err
	}
	return text, nil
}

// A root is the directory of a store as a file system. Symbolic links cannot leave it, and opening a
// file never blocks.
type root struct {
	*os.Root
	path string
}

// openRoot opens a directory. The trailing slash prevents it from opening, and blocking on, anything
// else.
func openRoot(path string) (*root, error) {
	if path == "" {
		return nil, fmt.Errorf("open policy store: %w", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist})
	}
	dir, err := os.OpenRoot(path + string(os.PathSeparator))
	var fault *fs.PathError
	if errors.As(err, &fault) {
		fault.Path = path
	}
	if err != nil {
		return nil, fmt.Errorf("open policy store: %w", err)
	}
	return &root{dir, path}, nil
}

// Open returns the files of a directory. To open one of them never blocks, not even a named pipe. A path
// or a symbolic link out of the directory is an error.
func Open(dir string) (fs.FS, error) { return openRoot(dir) }

// inPlace reports whether the directory is still at its path.
func (r *root) inPlace() bool {
	there, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	here, err := r.Root.Stat(".")
	return err == nil && os.SameFile(here, there)
}

// ReadLink returns the target of a symbolic link.
func (r *root) ReadLink(name string) (string, error) { return r.Readlink(name) }

func (r *root) Open(name string) (fs.File, error) {
	f, err := r.Root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}
