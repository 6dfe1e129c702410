package decisionlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/policy-service/policy-service/evaluation/durable"
)

const (
	logDir     = "log"
	segmentExt = ".db"
	prunedExt  = ".pruned"

	format = "decisionlog 1"
)

// Segments begin at a multiple of block, so that every node of the tree below
// blockLevel has all its leaves in one segment.
const (
	blockLevel = 8
	block      = 1 << blockLevel
)

// The names of buckets and of keys in the bucket meta.
var (
	entriesBucket = []byte("entries")
	metaBucket    = []byte("meta")
	headKey       = []byte("head")
	formatKey     = []byte("format")
	baseKey       = []byte("base")
	createdKey    = []byte("created")
	originKey     = []byte("origin")
)

// A segment is a bbolt file that is open for writing.
type segment struct {
	*bbolt.DB
	path string
	file fs.FileInfo // of the file that is open, when it was seen last
	used int64       // bytes, before the last commit

	released int64 // what used was when its map was released
}

// segmentFile returns the path of the segment that begins at first, or with
// [prunedExt] of what is left of it.
func segmentFile(dir string, first int64, ext string) string {
	return filepath.Join(dir, logDir, fmt.Sprintf("%020d%s", first, ext))
}

// createSegment puts an empty segment at path, whole or not at all, and leaves
// one that is there alone. What e says of the segment is what it says of
// itself.
func createSegment(path string, e segmentMeta) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	db, err := bbolt.Open(tmp.Name(), 0, &bbolt.Options{PageSize: pageSize, NoFreelistSync: true})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(e.initialize), db.Close(), tmp.Sync()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// initialize makes the buckets of an empty segment.
func (e segmentMeta) initialize(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucket(entriesBucket); err != nil {
		return err
	}
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	return errors.Join(
		meta.Put(formatKey, []byte(format)),
		meta.Put(createdKey, []byte(e.created.UTC().Format(time.RFC3339Nano))),
		meta.Put(originKey, []byte(e.origin)),
		meta.Put(baseKey, encodeHead(e.base)),
		meta.Put(headKey, encodeHead(e.base)),
	)
}

// openReadOnly opens a segment that nobody writes to, after a check of the
// file.
func openReadOnly(path string, check func(path string) error) (*bbolt.DB, error) {
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
	if err := check(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkFile checks the pages of a segment without bbolt.
func checkFile(path string) error { return inspect(path, checkPages) }

// checkExtent checks that a segment has its meta pages and is not cut off,
// which takes no longer for a large one.
func checkExtent(path string) error {
	return inspect(path, func(file io.ReaderAt, size int64) error {
		_, err := checkMeta(file, size)
		return err
	})
}

func inspect(path string, check func(file io.ReaderAt, size int64) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return check(file, info.Size())
}

// openSegment opens a segment for writing. No one else has it open then.
func openSegment(path string, maxSize int64) (*segment, error) {
	checked, err := openReadOnly(path, checkFile)
	if err != nil {
		return nil, err
	}
	if err := checked.Close(); err != nil {
		return nil, err
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
	return s, s.View(func(tx *bbolt.Tx) error { s.used = tx.Size(); return nil })
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

// setOrigin notes under which name the log is signed.
func (s *segment) setOrigin(origin string) error {
	var known string
	err := s.View(func(tx *bbolt.Tx) error {
		known = string(tx.Bucket(metaBucket).Get(originKey))
		return nil
	})
	if err != nil || known == origin {
		return err
	}
	return s.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(originKey, []byte(origin)) })
}

// inPlace checks that the file that is open still is the file at its path, and
// has not shrunk. What is written to another file is lost.
func (s *segment) inPlace() (err error) {
	s.file, err = inPlace(s.path, s.file)
	return err
}

// inPlace checks that the file at path is the one that was seen there, and has
// not shrunk. It returns how it is now.
func inPlace(path string, seen fs.FileInfo) (fs.FileInfo, error) {
	now, err := os.Stat(path)
	if err != nil {
		return seen, err
	}
	if !os.SameFile(seen, now) || now.Size() < seen.Size() {
		return seen, fmt.Errorf("%s was replaced or cut off", path)
	}
	return now, nil
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
