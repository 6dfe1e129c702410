package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// room returns how many entries may go into the next commit. At the end of a
// block it begins a new segment, if that is due.
func (c *committer) room() int {
	size := c.tree.size
	if c.err() != nil || !c.due() {
		return commitEntries
	}
	if size%block == 0 {
		if err := c.rotate(); err != nil {
			_ = c.fail(err)
		}
		return commitEntries
	}
	return int(block - size%block)
}

// due reports whether the segment is large or old enough, and not empty.
func (c *committer) due() bool {
	p := c.reader.last()
	if c.tree.size == p.first {
		return false
	}
	return c.seg.used >= c.config.SegmentBytes || c.config.Now().Sub(p.created) >= c.config.SegmentAge
}

// rotate begins a new segment. While there is no room for one the old segment
// goes on; its error is of one that may or may not be there.
func (c *committer) rotate() error {
	head, now := c.tree.head(), c.config.Now()
	path := segmentFile(c.reader.dir, head.Size, segmentExt)
	if err := createSegment(path, extent{base: head, created: now, origin: c.origin}); err != nil {
		if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("begin segment: %w", err)
	}
	seg, err := openSegment(path, c.config.MaxSize)
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	old := c.reader.last()
	parts := append(slices.Clone(*c.reader.parts.Load()), &part{first: head.Size, created: now, path: path, db: seg.DB})
	c.reader.parts.Store(&parts)
	c.seg = seg
	if err := old.close(); err != nil {
		return fmt.Errorf("seal segment: %w", err)
	}
	return nil
}

// look checks that the files of all segments are where they were. What was
// written to a file that is gone is lost, and has to be noticed while there
// may still be a copy of it.
func (c *committer) look() {
	if c.err() != nil {
		return
	}
	err := c.seg.inPlace()
	parts := *c.reader.parts.Load()
	for _, p := range parts[:len(parts)-1] {
		err = errors.Join(err, p.look())
	}
	if err != nil {
		_ = c.fail(fmt.Errorf("look after the files: %w", err))
	}
}
