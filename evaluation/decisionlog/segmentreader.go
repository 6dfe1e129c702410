package decisionlog

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// A segmentReader reads one segment. It opens a sealed segment at the first read
// and checks its pages then. A pruned segment has only its hashes.
type segmentReader struct {
	first   int64
	created time.Time

	opening sync.Mutex // held during the check of the file, which is slow

	mu   sync.RWMutex
	path string
	seen fs.FileInfo
	db   *bbolt.DB // nil while the file is closed
	done bool      // the file must not be opened again

	// skipPageCheck is set while the log is opened. Sealed segments are then read
	// without a check of all pages, because the entries read must lead to the root
	// hash.
	skipPageCheck bool
}

// listSegments lists the segments of the log in dir, ordered by first index. A
// segment file that exists counts even if it is about to be pruned.
func listSegments(dir string) ([]*segmentReader, error) {
	dir = filepath.Join(dir, logDir)
	files, err := os.ReadDir(dir) // sorted: "….db" comes before "….pruned"
	if err != nil {
		return nil, err
	}
	var parts []*segmentReader
	for _, file := range files {
		ext := filepath.Ext(file.Name())
		if ext != segmentExt && ext != prunedExt {
			continue
		}
		path := filepath.Join(dir, file.Name())
		first, err := segmentFirst(path, ext)
		if err != nil {
			return nil, err
		}
		if len(parts) > 0 && parts[len(parts)-1].first == first {
			continue
		}
		parts = append(parts, &segmentReader{first: first, path: path})
	}
	if len(parts) > 0 && parts[0].first != 0 {
		return nil, damaged(0, "is missing, with all before entry %d", parts[0].first)
	}
	return parts, nil
}

// segmentFirst returns the first index of a segment, parsed from its file name.
func segmentFirst(path, ext string) (int64, error) {
	name := strings.TrimSuffix(filepath.Base(path), ext)
	first, err := strconv.ParseInt(name, 10, 64)
	if err != nil || len(name) != 20 || first%block != 0 {
		return 0, errors.New(path + " is not a segment this version can read")
	}
	return first, nil
}

// pruned reports whether the segment has only its hashes.
func (p *segmentReader) pruned() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return filepath.Ext(p.path) == prunedExt
}

// view calls read in a read transaction. The buckets are valid only until read
// returns.
func (p *segmentReader) view(read func(entries, meta *bbolt.Bucket) error) error {
	if err := p.open(); err != nil {
		return err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.db == nil {
		return ErrPruned
	}
	return viewBuckets(p.db, read)
}

// open checks and opens the file of a closed segment.
func (p *segmentReader) open() error {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.mu.RLock()
	path, isOpen, done, check := p.path, p.db != nil, p.done, checkFile
	if p.skipPageCheck {
		check = checkExtent
	}
	p.mu.RUnlock()
	switch {
	case isOpen:
		return nil
	case done:
		return fs.ErrClosed
	case filepath.Ext(path) == prunedExt:
		return ErrPruned
	}
	db, err := openReadOnly(path, check)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != path || p.done { // pruned or closed during the check
		return errors.Join(ErrPruned, db.Close())
	}
	p.db = db
	return nil
}

// closeForGood closes the file and prevents it from being opened again.
func (p *segmentReader) closeForGood() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	return p.closeLocked()
}

// close closes the file. The next read opens it again.
func (p *segmentReader) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closeLocked()
}

func (p *segmentReader) closeLocked() error {
	if p.db == nil {
		return nil
	}
	err := p.db.Close()
	p.db = nil
	return err
}

// checkInPlace records the identity of the file at the path on the first call.
// Later calls check that the same file is still there.
func (p *segmentReader) checkInPlace() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen, err = os.Stat(p.path)
		return err
	}
	_, err = inPlace(p.path, p.seen)
	return err
}

// size returns the size of the file in bytes.
func (p *segmentReader) size() (int64, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	info, err := os.Stat(p.path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// viewBuckets calls read with the buckets of a segment in a read transaction.
func viewBuckets(db *bbolt.DB, read func(entries, meta *bbolt.Bucket) error) error {
	return guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			entries, meta := tx.Bucket(entriesBucket), tx.Bucket(metaBucket)
			if entries == nil || meta == nil {
				return damaged(-1, "lacks a bucket")
			}
			return read(entries, meta)
		})
	})
}

// A segmentMeta is the metadata stored in a segment.
type segmentMeta struct {
	base, head Head // tree heads before the first entry and after the last
	created    time.Time
	origin     string // name that signs the log; "" before the first signature
	count      int64  // index after the last key
}

// meta reads the metadata of the segment.
func (p *segmentReader) meta() (e segmentMeta, err error) {
	err = p.view(func(entries, meta *bbolt.Bucket) (err error) {
		e, err = readSegmentMeta(p.first, entries, meta)
		return err
	})
	return e, err
}

func readSegmentMeta(first int64, entries, meta *bbolt.Bucket) (e segmentMeta, err error) {
	if got := string(meta.Get(formatKey)); got != format {
		return e, damaged(-1, "has format %q, not %q", got, format)
	}
	e.base = new(tree).head()
	if base := meta.Get(baseKey); base != nil || first > 0 {
		if e.base, err = decodeHead(base); err != nil {
			return e, err
		}
	}
	if e.base.Size != first {
		return e, damaged(first, "is where a segment begins that should begin at %d", e.base.Size)
	}
	if e.head, err = decodeHead(meta.Get(headKey)); err != nil {
		return e, err
	}
	if created := meta.Get(createdKey); created != nil {
		if e.created, err = time.Parse(time.RFC3339Nano, string(created)); err != nil {
			return e, damaged(-1, "has a segment without a date")
		}
	}
	e.origin = string(meta.Get(originKey))
	e.count = first
	if k, _ := entries.Cursor().Last(); k != nil {
		last, err := index(k)
		e.count = last + 1
		return e, err
	}
	return e, nil
}

// setSkipPageCheck sets whether the segment is read without a check of all its
// pages. Clearing it closes a segment read so, and the next read checks all
// pages.
func (p *segmentReader) setSkipPageCheck(skip bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.skipPageCheck
	p.skipPageCheck = skip
	if was && !skip {
		return p.closeLocked()
	}
	return nil
}

// readHashes returns the hashes of nodes whose last leaf is in the segment.
func (p *segmentReader) readHashes(indexes []int64) ([]tlog.Hash, error) {
	if p.pruned() {
		return p.readPruned(indexes)
	}
	hashes := make([]tlog.Hash, len(indexes))
	err := p.view(func(entries, _ *bbolt.Bucket) error {
		for i, index := range indexes {
			level, n := tlog.SplitStoredHashIndex(index)
			last := (n+1)<<level - 1
			stored, _, err := split(last, entries.Get(key(last)))
			if err != nil {
				return err
			}
			copy(hashes[i][:], stored[level*tlog.HashSize:])
		}
		return nil
	})
	if errors.Is(err, ErrPruned) { // pruned after the first check
		return p.readPruned(indexes)
	}
	return hashes, err
}

// segmentAt returns the segment that contains entry n, and the index after the
// segment's last entry.
func segmentAt(parts []*segmentReader, n int64) (p *segmentReader, until int64) {
	i, found := slices.BinarySearchFunc(parts, n, func(p *segmentReader, n int64) int { return cmp.Compare(p.first, n) })
	if !found {
		i--
	}
	if i+1 < len(parts) {
		return parts[i], parts[i+1].first
	}
	return parts[i], maxIndex
}
