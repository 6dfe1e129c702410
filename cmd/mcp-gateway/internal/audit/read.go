package audit

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

const extension = ".jsonl"

// segments lists the files of a trail, in their order.
func segments(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	slices.Sort(names)
	return names, err
}

// number returns which segment a file is.
func number(name string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), extension))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: there is a file %s", ErrIntegrity, filepath.Base(name))
	}
	return n, nil
}

// Read returns the records of a trail in their order, from the oldest segment
// that is there. It ends with an [ErrIntegrity] where one does not follow the one
// before. A last line that does not end is one that was never acknowledged.
func Read(dir string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		names, err := segments(dir)
		if err != nil {
			yield(Record{}, err)
			return
		}
		last, before := head{}, 0
		for i, name := range names {
			n, err := number(name)
			if err == nil && i > 0 && n != before+1 {
				err = fmt.Errorf("%w: segment %d follows %d", ErrIntegrity, n, before)
			}
			before = n
			var content []byte
			if err == nil {
				content, err = os.ReadFile(name)
			}
			whole := content[:bytes.LastIndexByte(content, '\n')+1]
			if err == nil && len(whole) < len(content) && i < len(names)-1 {
				err = fmt.Errorf("%w: segment %d ends within a record", ErrIntegrity, n)
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
			for r, err := range records(whole, last) {
				if !yield(r.Record, err) || err != nil {
					return
				}
				last = head{r.Seq, hash(r.line)}
			}
		}
	}
}

// A written record is one with the line that it was read from.
type written struct {
	Record
	line []byte
}

// records reads the lines of a segment, each of which follows the one before,
// and the first the last. Whether the first follows an unknown one, the zero
// head, nobody can say.
func records(content []byte, last head) iter.Seq2[written, error] {
	return func(yield func(written, error) bool) {
		first := true
		for line := range bytes.Lines(content) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			r := written{line: line}
			err := json.Unmarshal(line, &r.Record)
			switch {
			case err != nil:
				err = fmt.Errorf("%w: a line is not a record: %w", ErrIntegrity, err)
			case first != (r.Kind == Segment):
				err = fmt.Errorf("%w: record %d is a %s", ErrIntegrity, r.Seq, r.Kind)
			case last != (head{}) && (r.Seq != last.seq+1 || r.Prev != last.hash):
				err = fmt.Errorf("%w: record %d does not follow record %d", ErrIntegrity, r.Seq, last.seq)
			}
			if !yield(r, err) || err != nil {
				return
			}
			first, last = false, head{r.Seq, hash(line)}
		}
	}
}
