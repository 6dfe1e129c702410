package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	logDir       = "log"
	segmentExt   = ".db"
	firstSegment = "00000000000000000000" + segmentExt

	format = "decisionlog 1"
)

// defaultMaxSize is how large a segment may become, in bytes, unless the
// configuration says otherwise. It costs address space, not memory.
const defaultMaxSize = 64 << 30

// The names of buckets and of keys in the bucket meta.
var (
	entriesBucket = []byte("entries")
	metaBucket    = []byte("meta")
	headKey       = []byte("head")
	formatKey     = []byte("format")
)

// A segment is a bbolt file that is open for writing.
type segment struct {
	*bbolt.DB
	path string
	file fs.FileInfo // of the file that is open, when it was seen last
}

// findSegment returns the path of the log's segment and whether it is there.
func findSegment(dir string) (path string, found bool, err error) {
	dir = filepath.Join(dir, logDir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	for _, file := range files {
		switch {
		case filepath.Ext(file.Name()) != segmentExt:
		case file.Name() == firstSegment:
			found = true
		default:
			return "", false, fmt.Errorf("%s is not a segment this version can read", filepath.Join(dir, file.Name()))
		}
	}
	return filepath.Join(dir, firstSegment), found, nil
}

// createSegment puts an empty segment at path, whole or not at all, and leaves
// one that is there alone.
func createSegment(path string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	db, err := bbolt.Open(tmp.Name(), 0, &bbolt.Options{PageSize: pageSize, NoFreelistSync: true})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(initialize), db.Close(), tmp.Sync()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// initialize makes the buckets of an empty log.
func initialize(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucket(entriesBucket); err != nil {
		return err
	}
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	if err := meta.Put(formatKey, []byte(format)); err != nil {
		return err
	}
	return meta.Put(headKey, encodeHead(new(tree).head()))
}

// openReadOnly opens a segment that nobody writes to, after a check of its
// pages.
func openReadOnly(path string) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() < 2*pageSize {
		return nil, damaged(-1, "is cut off: %s has %d bytes", path, info.Size())
	}
	db, err := openBolt(path, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	if err := checkFile(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkFile checks the pages of a segment without bbolt.
func checkFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return checkPages(file, info.Size())
}

// openSegment opens a segment for writing. No one else has it open then.
func openSegment(path string, maxSize int64) (*segment, error) {
	checked, err := openReadOnly(path)
	if err != nil {
		return nil, err
	}
	if err := checked.Close(); err != nil {
		return nil, err
	}
	if maxSize == 0 {
		maxSize = defaultMaxSize
	}
	size := int(min(maxSize, math.MaxInt-pageSize))
	s := &segment{path: path}
	s.DB, err = openBolt(path, &bbolt.Options{
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		MaxSize:         size,
		InitialMmapSize: size + pageSize, // larger, so that the map never has to grow
		OpenFile:        s.open,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open opens the file of the segment, which exists, and remembers which it is.
func (s *segment) open(path string, flag int, perm fs.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag&^os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	if s.file, err = file.Stat(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// inPlace checks that the file that is open still is the file at its path, and
// has not shrunk. What is written to another file is lost.
func (s *segment) inPlace() error {
	now, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if !os.SameFile(s.file, now) || now.Size() < s.file.Size() {
		return fmt.Errorf("%s was replaced or cut off", s.path)
	}
	s.file = now
	return nil
}

// openBolt opens a bbolt file or returns at once [ErrLocked] or an
// [IntegrityError].
func openBolt(path string, options *bbolt.Options) (db *bbolt.DB, err error) {
	options.Timeout = 1 // the shortest there is; 0 is forever
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0, options)
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, ErrLocked)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, damaged(-1, "is no segment: %s: %v", path, err)
	case err != nil:
		return nil, err
	}
	return db, nil
}

// guard calls fn. A panic, or a fault in mapped memory, is what bbolt has for
// a damaged file, and becomes an [IntegrityError].
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(-1, "is damaged: %v", p)
		}
	}()
	return fn()
}
