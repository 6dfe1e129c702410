package decisionlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// bankBytes is from which size on a file of the journal takes no more records
// before the entries it has are in the segment.
const bankBytes = 2 << 20

// A record has a header, and its lines with a line feed behind each. Numbers
// are big-endian.
const (
	recordMagic  = "dlj1"
	recordHeader = 4 + 4 + 8 + 4 // magic, checksum of what follows it, first index, bytes of the lines
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errJournalFull means that the journal has no room before more entries are in
// the segment.
var errJournalFull = errors.New("the journal is full")

// A journal is where the entries of a strict log are on disk first: one write
// and one flush for all that have queued. Its two files take turns, and are
// written to again from the beginning once all that they have is in the
// segment. So their size is bounded, and what is written to them soon changes
// no length any more, which is what makes a flush cheap.
type journal struct {
	banks  [2]bank
	active int
	buf    []byte
}

// A bank is a file of the journal.
type bank struct {
	file  *os.File
	seen  fs.FileInfo
	size  int64 // bytes of the records that count
	until int64 // index after its last entry
}

// journalFiles are the paths of the journal of the log in dir.
func journalFiles(dir string) [2]string {
	return [2]string{filepath.Join(dir, logDir, "journal.0"), filepath.Join(dir, logDir, "journal.1")}
}

// createJournal makes an empty journal in dir, in place of one whose entries
// are all in the segment.
func createJournal(dir string) (*journal, error) {
	j := new(journal)
	for i, path := range journalFiles(dir) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.banks[i].file = file
		if j.banks[i].seen, err = file.Stat(); err != nil {
			return nil, errors.Join(err, j.close())
		}
	}
	return j, syncDir(filepath.Join(dir, logDir))
}

// write puts a batch on disk, which begins at index first. The entries below
// settled are in the segment.
func (j *journal) write(first int64, batch []*pending, settled int64) error {
	b, err := j.room(settled)
	if err != nil {
		return err
	}
	j.buf = appendRecord(j.buf[:0], first, batch)
	if _, err := b.file.WriteAt(j.buf, b.size); err != nil {
		return err
	}
	if err := datasync(b.file); err != nil {
		return fmt.Errorf("flush journal: %w", err)
	}
	b.size += int64(len(j.buf))
	b.until = first + int64(len(batch))
	return nil
}

// inPlace checks that the files are where they were. It is not asked for each
// record: to be looked at makes the next flush of a file a longer one, and what
// is in a file that is gone is on its way to the segment.
func (j *journal) inPlace() error {
	var errs []error
	for i := range j.banks {
		_, err := inPlace(j.banks[i].file.Name(), j.banks[i].seen)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// room returns the bank that takes the next record.
func (j *journal) room(settled int64) (*bank, error) {
	b := &j.banks[j.active]
	if b.until > settled && b.size >= bankBytes {
		j.active = 1 - j.active
		b = &j.banks[j.active]
		if b.until > settled {
			j.active = 1 - j.active
			return nil, errJournalFull
		}
	}
	if b.until <= settled {
		b.size = 0
	}
	return b, nil
}

func appendRecord(b []byte, first int64, batch []*pending) []byte {
	b = append(b, make([]byte, recordHeader)...)
	for i, p := range batch {
		b = appendIndex(b, first+int64(i))
		b = append(b, p.rest...)
		b = append(b, '\n')
	}
	copy(b, recordMagic)
	binary.BigEndian.PutUint64(b[8:], uint64(first))
	binary.BigEndian.PutUint32(b[16:], uint32(len(b)-recordHeader))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// A run is entries in a row.
type run struct {
	first int64
	rests [][]byte // their lines, without the beginning
}

// readRun reads the records at the beginning of a file of a journal. What
// follows them is of an earlier turn, or was being written when the process
// died, and nobody was told that it is there.
func readRun(file []byte) (r run, err error) {
	for len(file) > recordHeader && string(file[:4]) == recordMagic {
		first, length := int64(binary.BigEndian.Uint64(file[8:])), int64(binary.BigEndian.Uint32(file[16:]))
		if length > int64(len(file)-recordHeader) || first != r.first+int64(len(r.rests)) && r.rests != nil {
			return r, nil
		}
		record := file[:recordHeader+length]
		if binary.BigEndian.Uint32(record[4:]) != crc32.Checksum(record[8:], castagnoli) {
			return r, nil
		}
		if r.rests == nil {
			r.first = first
		}
		for line := range bytes.Lines(record[recordHeader:]) {
			n := r.first + int64(len(r.rests))
			rest, found := bytes.CutPrefix(line, appendIndex(nil, n))
			if !found {
				return r, damaged(n, "is not what the journal has in its place")
			}
			r.rests = append(r.rests, bytes.TrimSuffix(rest, []byte{'\n'}))
		}
		file = file[len(record):]
	}
	return r, nil
}

// readJournal returns the entries of the journal in dir from index next on,
// which are not in the segment. There is no journal of a log that was closed.
func readJournal(dir string, next int64) (batch []*pending, err error) {
	var runs []run
	for _, path := range journalFiles(dir) {
		file, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := readRun(file)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	for _, r := range runs {
		for i, rest := range r.rests {
			switch n := r.first + int64(i); {
			case n > next:
				return nil, rollback{damaged(next, "is missing: the journal goes on at %d", n)}
			case n == next:
				batch = append(batch, &pending{rest: rest})
				next++
			}
		}
	}
	return batch, nil
}

// close closes the files.
func (j *journal) close() error {
	var errs []error
	for _, b := range j.banks {
		if b.file != nil {
			errs = append(errs, b.file.Close())
		}
	}
	return errors.Join(errs...)
}

// removeJournal removes the journal in dir, if there is one, once all that it
// has is in the segment.
func removeJournal(dir string) error {
	var errs []error
	for _, path := range journalFiles(dir) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
