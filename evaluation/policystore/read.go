package policystore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/policy-service/policy-service/evaluation"
)

const maxAttempts = 10

// Load reads the policy store in dir, which may be empty.
func Load(dir string) (evaluation.Archive, error) {
	state, err := New(dir, Config{}).read()
	if err != nil && !errors.Is(err, ErrEmpty) {
		return nil, err
	}
	return state.Archive, nil
}

// Read reads the policy store at the root of fsys. Beside an error that follows
// from the names of the files alone, [ErrEmpty] or [evaluation.Faults], it returns
// what could be read.
func Read(fsys fs.FS) (evaluation.Archive, error) {
	state, err := untilSteady(func() (*State, error) { return attempt(fsys, &Config{}) })
	if state == nil {
		return nil, err
	}
	if len(state.Misplaced) > 0 {
		err = errMisplaced(state.Misplaced)
	}
	return state.Archive, err
}

// Read reads the store.
func (s *Store) Read() (*State, error) {
	state, err := s.read()
	if err != nil {
		return nil, err
	}
	return state, nil
}

// read reads the store. Beside an error that follows from the files alone there
// is the state that has it.
func (s *Store) read() (*State, error) {
	return untilSteady(s.attempt)
}

// attempt reads the store once. A directory that is no longer in its place may
// be one that is being removed.
func (s *Store) attempt() (*State, error) {
	root, err := openRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	state, err := attempt(root, &s.config)
	if !root.inPlace() {
		return nil, ErrUnstable
	}
	return state, err
}

// untilSteady repeats attempts while something moves.
func untilSteady(attempt func() (*State, error)) (state *State, err error) {
	for range maxAttempts {
		state, err = attempt()
		if !errors.Is(err, ErrUnstable) {
			return state, err
		}
	}
	return nil, err
}

// attempt reads the store at the root of fsys once.
func attempt(fsys fs.FS, c *Config) (*State, error) {
	before := list(fsys)
	var texts map[string][]byte
	err := before.err()
	if err == nil {
		texts, err = readAll(fsys, before.files)
	}
	if !before.same(list(fsys)) {
		return nil, ErrUnstable
	}
	if err != nil {
		return nil, fmt.Errorf("read policy store: %w", before.beside(err))
	}
	state, err := c.accept(before, texts)
	state.Misplaced = before.misplaced
	if slices.ContainsFunc(before.misplaced, ofRoot) {
		err = errMisplaced(before.misplaced)
	}
	return state, err
}

// ofRoot reports whether a fault is the root's, and not of one tenant alone.
func ofRoot(fault evaluation.Fault) bool {
	return !evaluation.ValidTenant(locate(fault.File).tenant)
}

func errMisplaced(faults evaluation.Faults) error {
	return fmt.Errorf("read policy store: %w", faults)
}

// beside adds what is misplaced to an error that is no [evaluation.Faults], so
// that neither hides the other.
func (l *listing) beside(err error) error {
	if len(l.misplaced) == 0 {
		return err
	}
	return errors.Join(err, errors.New(l.misplaced.Error()))
}

func readAll(fsys fs.FS, files []file) (map[string][]byte, error) {
	texts := make(map[string][]byte, len(files))
	for _, f := range files {
		text, err := readFile(fsys, f)
		if err != nil {
			return nil, err
		}
		texts[f.name] = text
	}
	return texts, nil
}

// readFile reads as much of a file as was listed.
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

// A root is the directory of a store as a file system that is not left by way
// of a symbolic link and in which no opening blocks.
type root struct {
	*os.Root
	path string
}

// openRoot opens a directory. The slash keeps it from opening, and waiting for,
// anything else.
func openRoot(path string) (*root, error) {
	if path == "" {
		return nil, fmt.Errorf("open policy store: %w", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist})
	}
	dir, err := os.OpenRoot(path + string(os.PathSeparator))
	if err != nil {
		return nil, fmt.Errorf("open policy store: %w", err)
	}
	return &root{dir, path}, nil
}

// inPlace reports whether the directory still is the one of that path.
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
