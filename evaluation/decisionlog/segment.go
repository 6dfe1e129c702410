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

// Segments begin at a multiple of block. So every node below blockLevel has all its leaves in one
// segment.
const (
	blockLevel = 8
	block      = 1 << blockLevel
)

// Names of buckets and of the keys in bucket meta.
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
	file fs.FileInfo // identity of the open file at the last check
	used int64       // size in bytes before the last commit

	released int64 // value of used when the mapped memory was last released
}

// segmentFile returns the path of the segment that begins at first. With [prunedExt] it is the path
// of its remaining hashes.
func segmentFile(dir string, first int64, ext string) string {
	return filepath.Join(dir, logDir, fmt.Sprintf("%020d%s", first, ext))
}

// createSegment creates an empty segment with metadata e at path, all or nothing. It keeps an
// existing file.
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

// initialize creates the buckets of an empty segment.
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

// openReadOnly checks the file of a segment that nobody writes to, and opens it.
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

// checkExtent checks that a segment has intact meta pages and is not truncated. Its cost does not
// depend on the size.
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

// openSegment opens a segment for writing, exclusively.
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
		InitialMmapSize: size + pageSize, // one page more, so that the map never has to grow
		OpenFile:        s.open,
	})
	if err != nil {
		return nil, err
	}
	return s, s.View(func(tx *bbolt.Tx) error { s.used = tx.Size(); return nil })
}

// open opens the existing file of the segment and records the file's identity.
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

// setOrigin stores the name under which the log is signed.
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

// inPlace checks that the open file is still the file at its path and has not shrunk. Data written
// to a replaced file is lost.
func (s *segment) inPlace() (err error) {
	s.file, err = inPlace(s.path, s.file)
	return err
}

// inPlace checks that the file at path is the one seen before and has not shrunk. It returns the
// current state.
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

// openBolt opens a bbolt file. It returns [ErrLocked] without waiting, or an [IntegrityError].
func openBolt(path string, options *bbolt.Options) (db *bbolt.DB, err error) {
	options.Timeout = 1 // minimum; 0 means no timeout
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

// guard calls fn. bbolt reports a damaged file by a panic or a fault in mapped memory; guard turns
// either into an [IntegrityError].
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(-1, "is damaged: %v", p)
		}
	}()
	return fn()
}
