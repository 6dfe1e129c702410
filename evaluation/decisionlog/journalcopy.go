package decisionlog

import (
	"errors"
	"io"
	"os"
)

// A copiedSegment is a copy of the last segment of a log that was not closed cleanly, plus the
// entries that only the journal has. Readers see the log as it will be after the next opening, and
// no file of the log changes.
type copiedSegment struct {
	path     string
	original *segmentReader // kept open to prevent other processes from appending
}

func (c *copiedSegment) remove() error {
	return errors.Join(c.original.closeForGood(), os.Remove(c.path))
}

// readJournaled makes the entries of the journal readable, if there are any. It does not report an
// unreadable segment: the next read does.
func (r *Reader) readJournaled() error {
	last := r.last()
	e, err := last.meta()
	if err != nil {
		return nil
	}
	batch, err := readJournal(r.dir, e.head.Size)
	if err != nil || len(batch) == 0 {
		return err
	}
	t, err := r.edge(e.head.Size)
	if err != nil {
		return nil
	}
	path, err := copyFile(last.path)
	if err != nil {
		return err
	}
	r.copied = &copiedSegment{path, last}
	seg, err := openSegment(path, Config{}.withDefaults().MaxSize)
	if err != nil {
		return err
	}
	if err := errors.Join(guard(func() error { return seg.write(t, batch) }), seg.Close()); err != nil {
		return err
	}
	parts := *r.segments.Load()
	parts[len(parts)-1] = &segmentReader{first: last.first, path: path}
	return nil
}

// copyFile copies a file to a temporary file.
func copyFile(path string) (copied string, err error) {
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.CreateTemp("", "policy-service-*"+segmentExt)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return "", errors.Join(err, os.Remove(to.Name()))
	}
	return to.Name(), nil
}
