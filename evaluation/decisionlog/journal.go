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

// journalFileBytes is from which size on a file of the journal takes no more records
// before the entries it has are in the segment.
const journalFileBytes = 2 << 20

// A record has a header, its lines with a line feed behind each, and a trailer.
// Numbers are big-endian.
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
	files  [2]journalFile
	active int
	buf    []byte
}

// A bank is a file of the journal.
type journalFile struct {
	file  *os.File
	seen  fs.FileInfo
	size  int64 // bytes of the records that count
	until int64 // index after its last entry
}

// journalPaths are the paths of the journal of the log in dir.
func journalPaths(dir string) [2]string {
	return [2]string{filepath.Join(dir, logDir, "journal.0"), filepath.Join(dir, logDir, "journal.1")}
}

// createJournal makes an empty journal in dir, in place of one whose entries
// are all in the segment.
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
	for i := range j.files {
		_, err := inPlace(j.files[i].file.Name(), j.files[i].seen)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// room returns the bank that takes the next record.
func (j *journal) room(settled int64) (*journalFile, error) {
	b := &j.files[j.active]
	if b.until > settled && b.size >= journalFileBytes {
		j.active = 1 - j.active
		b = &j.files[j.active]
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

// appendTrailer ends a record with its first index, as text on a line. What an
// earlier record of the same length has left at its end is another text: so it is
// known whether a record was written to its end. A record of an older version has
// none.
func appendTrailer(b []byte, first int64) []byte {
	b = append(b, '#')
	from := len(b)
	b = strconv.AppendInt(b, first, 10)
	for i, digit := range b[from:] {
		b[from+i] = trailerDigits[digit-'0']
	}
	return append(b, '\n')
}

// trailerDigits are letters of which each two differ by more than a bit: another
// index is not taken for a bit that was flipped.
const trailerDigits = "ABDGHKMNPS"

// A run is entries in a row.
type journalBatch struct {
	first int64
	tails [][]byte // their lines, without the beginning
	harm  int64    // index after the last entry that is behind them and damaged, or 0
}

// next is the index after the last entry.
func (r *journalBatch) next() int64 { return r.first + int64(len(r.tails)) }

// readJournalFile reads the records at the beginning of a file of a journal. What
// follows them is of an earlier turn, or was being written when the process
// died, and nobody was told that it is there. Unless it is whole: then its
// entries may have been answered, and it is damaged.
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
				return r, damaged(n, "is not what the journal has in its place")
			}
			r.tails = append(r.tails, bytes.TrimSuffix(rest, []byte{'\n'}))
		}
		at += len(record)
	}
}

// cutRecord returns the record that a text begins with, and its first index.
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

// sector is how many bytes a disk writes whole or not at all, at the least.
const sector = 512

// damagedRecord returns the indexes of the entries of the record at an offset of
// a file, if that record was written whole and is not what was written; else an
// until of 0. A record that was being written has sectors that are as they were
// before: of zeros, or of entries with lower indexes.
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
	if at/sector != (end-1)/sector { // the header may be as it was before
		return 0, 0
	}
	return began, began + 1
}

// otherLength reports whether a text begins with a record that is as it was
// written but for one bit of its length.
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

// oneBit reports whether a record is another than its checksum says by one bit.
func oneBit(record []byte) bool {
	wrong := binary.BigEndian.Uint32(record[4:]) ^ crc32.Checksum(record[8:], castagnoli)
	if bits.OnesCount32(wrong) == 1 {
		return true
	}
	for bit := range 8 {
		of := castagnoli[1<<bit] // what a bit of the last byte adds to the sum
		for range len(record) - 8 {
			if of == wrong {
				return true
			}
			of = castagnoli[of&0xff] ^ of>>8
		}
	}
	return false
}

// wholeLines returns the index after the last of lines that are in their
// places and have their trailer, beginning with that of index n; 0 if some of them
// are not there.
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

// readJournal returns the entries of the journal in dir from index next on,
// which are not in the segment, up to the first that is not as it was. There is
// no journal of a log that was closed.
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
			return batch, rollback{damaged(next, "is damaged: the journal has it, and it is not what was written")}
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

// removeJournal removes the journal in dir, if there is one, once all that it
// has is in the segment.
func removeJournal(dir string) error {
	var errs []error
	for _, path := range journalPaths(dir) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
