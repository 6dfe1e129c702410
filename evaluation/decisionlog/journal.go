package decisionlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// journalFileBytes is the size in bytes from which a journal file takes no more
// records until its entries are in the segment.
const journalFileBytes = 2 << 20

// A record is a header, its lines, each terminated by a line feed, and a trailer.
// Numbers are big-endian.
const (
	recordMagic  = "dlj1"
	recordHeader = 4 + 4 + 8 + 4 // magic, checksum of everything after it, first index, length of lines and trailer in bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errJournalFull means that the journal has no space until more entries are in
// the segment.
var errJournalFull = errors.New("the journal is full")

// A journal is a write-ahead journal for the entries of a strict log: one write
// and one flush put a whole batch on disk. It alternates between two files. It
// overwrites a file from the beginning once all entries of the file are in the
// segment, so the size is bounded. Soon no write changes the length of a file any
// more, which makes a flush cheap.
type journal struct {
	files  [2]journalFile
	active int
	buf    []byte
}

// A journalFile is one of the two files of a journal.
type journalFile struct {
	file  *os.File
	seen  fs.FileInfo
	size  int64 // length in bytes of the valid records
	until int64 // index after its last entry
}

// journalPaths returns the paths of the journal files of the log in dir.
func journalPaths(dir string) [2]string {
	return [2]string{filepath.Join(dir, logDir, "journal.0"), filepath.Join(dir, logDir, "journal.1")}
}

// createJournal creates an empty journal in dir. It replaces a journal whose
// entries are all in the segment.
func createJournal(dir string) (*journal, error) {
	j := new(journal)
	for i, path := range journalPaths(dir) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.files[i].file = file
		if j.files[i].seen, err = file.Stat(); err != nil {
			return nil, errors.Join(err, j.close())
		}
	}
	return j, durable.SyncDir(filepath.Join(dir, logDir))
}

// write writes a batch to disk. The batch begins at index first. Entries with
// indexes below flushed are in the segment.
func (j *journal) write(first int64, batch []*pending, flushed int64) error {
	b, err := j.room(flushed)
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

// inPlace checks that the files are still at their paths. It does not run for
// each record, because a stat makes the next flush of the file slower. Entries of
// a deleted file are still in memory on their way to the segment.
func (j *journal) inPlace() error {
	var errs []error
	for i := range j.files {
		_, err := inPlace(j.files[i].file.Name(), j.files[i].seen)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// room returns the file for the next record.
func (j *journal) room(flushed int64) (*journalFile, error) {
	b := &j.files[j.active]
	if b.until > flushed && b.size >= journalFileBytes {
		j.active = 1 - j.active
		b = &j.files[j.active]
		if b.until > flushed {
			j.active = 1 - j.active
			return nil, errJournalFull
		}
	}
	if b.until <= flushed {
		b.size = 0
	}
	return b, nil
}

func appendRecord(b []byte, first int64, batch []*pending) []byte {
	b = append(b, make([]byte, recordHeader)...)
	for i, p := range batch {
		b = appendIndex(b, first+int64(i))
		b = append(b, p.tail...)
		b = append(b, '\n')
	}
	b = appendTrailer(b, first)
	copy(b, recordMagic)
	binary.BigEndian.PutUint64(b[8:], uint64(first))
	binary.BigEndian.PutUint32(b[16:], uint32(len(b)-recordHeader))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// appendTrailer ends a record with its first index, encoded as text on a line of
// its own. The trailer shows whether a record was written to its end, because an
// earlier record of the same length has another trailer. Records of older
// versions have no trailer.
func appendTrailer(b []byte, first int64) []byte {
	b = append(b, '#')
	from := len(b)
	b = strconv.AppendInt(b, first, 10)
	for i, digit := range b[from:] {
		b[from+i] = trailerDigits[digit-'0']
	}
	return append(b, '\n')
}

// trailerDigits are letters that differ pairwise in more than one bit, so that a
// flipped bit does not turn one index into another.
const trailerDigits = "ABDGHKMNPS"

// A journalBatch is a run of consecutive entries.
type journalBatch struct {
	first int64
	tails [][]byte // their lines, each without its beginning
	harm  int64    // index after the last damaged entry that follows them, or 0
}

// next returns the index after the last entry.
func (r *journalBatch) next() int64 { return r.first + int64(len(r.tails)) }

// readJournalFile reads the valid records at the beginning of a journal file. The
// bytes after them come from an earlier use of the file or from a write that a
// crash interrupted and nobody relied on. A complete record among them is
// damaged: its entries may have been acknowledged.
func readJournalFile(file []byte) (r journalBatch, err error) {
	for at := 0; ; {
		record, first, ok := cutRecord(file[at:])
		if !ok || r.tails != nil && first != r.next() {
			first, until := damagedRecord(file, at)
			switch {
			case until > 0 && r.tails == nil:
				r.first, r.harm = first, until
			case until > 0 && first >= r.next():
				r.harm = until
			}
			return r, nil
		}
		if r.tails == nil {
			r.first = first
		}
		for line := range bytes.Lines(bytes.TrimSuffix(record[recordHeader:], appendTrailer(nil, first))) {
			n := r.next()
			rest, found := bytes.CutPrefix(line, appendIndex(nil, n))
			if !found {
				return r, damaged(n, "differs from the entry of the journal at its index")
			}
			r.tails = append(r.tails, bytes.TrimSuffix(rest, []byte{'\n'}))
		}
		at += len(record)
	}
}

// cutRecord returns the first record of text and the record's first index.
func cutRecord(text []byte) (record []byte, first int64, ok bool) {
	if len(text) <= recordHeader || string(text[:4]) != recordMagic {
		return nil, 0, false
	}
	first, length := int64(binary.BigEndian.Uint64(text[8:])), int64(binary.BigEndian.Uint32(text[16:]))
	if length > int64(len(text)-recordHeader) {
		return nil, 0, false
	}
	record = text[:recordHeader+length]
	return record, first, binary.BigEndian.Uint32(record[4:]) == crc32.Checksum(record[8:], castagnoli)
}

// sector is the smallest number of bytes that a disk writes atomically.
const sector = 512

// damagedRecord returns the index range of the record at an offset of a file if
// the record was written completely and then changed. Otherwise until is 0. An
// interrupted write leaves sectors with their old content: zeros or entries with
// lower indexes.
func damagedRecord(file []byte, at int) (first, until int64) {
	text := file[at:]
	if len(text) <= recordHeader {
		return 0, 0
	}
	lines := text[recordHeader:]
	began, ok := lineIndex(lines[:min(len(lines), sector)])
	first, length := int64(binary.BigEndian.Uint64(text[8:])), int64(binary.BigEndian.Uint32(text[16:]))
	magic, whole := string(text[:4]) == recordMagic, length <= int64(len(lines))
	switch {
	case magic && (whole && oneBit(text[:recordHeader+length]) || otherLength(text)):
		return max(first, began), max(first, began) + 1
	case !ok:
		return 0, 0
	case magic && whole && first == began:
		return first, wholeLines(lines[:length], first)
	case magic && first == began:
		return 0, 0
	}
	end := at + recordHeader + len(appendIndex(nil, began))
	if at/sector != (end-1)/sector { // the header may have its old content
		return 0, 0
	}
	return began, began + 1
}

// otherLength reports whether text begins with a record that differs from the
// written one in exactly one bit of its length.
func otherLength(text []byte) bool {
	header := bytes.Clone(text[:recordHeader])
	for bit := range 32 {
		length := binary.BigEndian.Uint32(text[16:]) ^ 1<<bit
		if int64(length) > int64(len(text)-recordHeader) {
			continue
		}
		binary.BigEndian.PutUint32(header[16:], length)
		sum := crc32.Update(crc32.Checksum(header[8:], castagnoli), castagnoli, text[recordHeader:][:length])
		if sum == binary.BigEndian.Uint32(text[4:]) {
			return true
		}
	}
	return false
}

// oneBit reports whether a record differs from its checksum by exactly one
// flipped bit.
func oneBit(record []byte) bool {
	wrong := binary.BigEndian.Uint32(record[4:]) ^ crc32.Checksum(record[8:], castagnoli)
	if bits.OnesCount32(wrong) == 1 {
		return true
	}
	for bit := range 8 {
		of := castagnoli[1<<bit] // change of the checksum for this bit of the last byte
		for range len(record) - 8 {
			if of == wrong {
				return true
			}
			of = castagnoli[of&0xff] ^ of>>8
		}
	}
	return false
}

// wholeLines returns the index after the last line if all lines, beginning with
// index n, are in order and end with their trailer. Otherwise it returns 0.
func wholeLines(lines []byte, n int64) int64 {
	lines, ended := bytes.CutSuffix(lines, appendTrailer(nil, n))
	if !ended {
		return 0
	}
	for line := range bytes.Lines(lines) {
		if !bytes.HasPrefix(line, appendIndex(nil, n)) {
			return 0
		}
		n++
	}
	return n
}

// readJournal returns the entries from index next on that are in the journal in
// dir and not in the segment. It stops at the first damaged entry. A log that was
// closed cleanly has no journal.
func readJournal(dir string, next int64) (batch []*pending, err error) {
	var runs []journalBatch
	for _, path := range journalPaths(dir) {
		file, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := readJournalFile(file)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b journalBatch) int { return cmp.Compare(a.first, b.first) })
	for _, r := range runs {
		for i, rest := range r.tails {
			switch n := r.first + int64(i); {
			case n > next:
				return batch, rollback{damaged(next, "is missing: the journal goes on at %d", n)}
			case n == next:
				batch = append(batch, &pending{tail: rest})
				next++
			}
		}
		if r.harm > next {
			return batch, rollback{damaged(next, "is damaged: its record in the journal differs from what was written")}
		}
	}
	return batch, nil
}

// close closes the files.
func (j *journal) close() error {
	var errs []error
	for _, b := range j.files {
		if b.file != nil {
			errs = append(errs, b.file.Close())
		}
	}
	return errors.Join(errs...)
}

// removeJournal removes the journal in dir, if it exists. All its entries must be
// in the segment.
func removeJournal(dir string) error {
	var errs []error
	for _, path := range journalPaths(dir) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
