package decisionlog

import (
	"errors"
	"io"
	"os"
)

// A copiedSegment is a copy of the last segment of a log that was not closed,
// with the entries that only its journal has. So the log is read as it will be
// once it is opened, and no file of it changes.
type copiedSegment struct {
	path     string
	original *segmentReader // kept open, and with it others from appending
}

func (c *copiedSegment) remove() error {
	return errors.Join(c.original.closeForGood(), os.Remove(c.path))
}

// readJournaled has the entries of the journal read, too, if there are any. A
// segment that cannot be read is left to who reads it next.
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

// copyFile copies a file to a temporary one.
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
