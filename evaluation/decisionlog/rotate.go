package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// room returns how many entries of a batch go into the next commit, at least one. If a new segment
// is due, room begins it, or ends the commit at the next block boundary.
func (c *committer) room(batch []*pending) int {
	size, used, aged := c.tree.size, c.seg.used, c.aged()
	if size%block == 0 && size > c.reader.last().first && (aged || c.large(used)) && c.err() == nil {
		if err := c.rotate(); err != nil {
			_ = c.fail(err)
		}
		used, aged = c.seg.used, c.aged()
	}
	most := commitLen(batch)
	for i, p := range batch[:most] {
		used += int64(len(p.tail))
		if (aged || c.large(used)) && (size+int64(i)+1)%block == 0 {
			return i + 1
		}
	}
	return most
}

// large reports whether a segment of that size in bytes is full.
func (c *committer) large(bytes int64) bool { return bytes >= c.config.SegmentBytes }

// aged reports whether the segment is old enough for a new one.
func (c *committer) aged() bool {
	return c.config.Now().Sub(c.reader.last().created) >= c.config.SegmentAge
}

// rotate begins a new segment. If there is no space for one, the log continues the old segment.
// After an error it is unknown whether the new one exists.
func (c *committer) rotate() error {
	head, now := c.tree.head(), c.config.Now()
	path := segmentFile(c.reader.dir, head.Size, segmentExt)
	if err := createSegment(path, segmentMeta{base: head, created: now, origin: c.origin}); err != nil {
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
	parts := append(slices.Clone(*c.reader.segments.Load()), &segmentReader{first: head.Size, created: now, path: path, db: seg.DB})
	c.reader.segments.Store(&parts)
	c.seg = seg
	if err := old.close(); err != nil {
		return fmt.Errorf("seal segment: %w", err)
	}
	return nil
}

// checkFiles checks that the files of the log are still at their paths. Data written to a deleted
// file is lost. Early detection may still find a copy.
func (c *committer) checkFiles() {
	if c.err() != nil {
		return
	}
	err := c.seg.inPlace()
	if c.journal != nil {
		err = errors.Join(err, c.journal.inPlace())
	}
	parts := *c.reader.segments.Load()
	for _, p := range parts[:len(parts)-1] {
		err = errors.Join(err, p.checkInPlace())
	}
	if err != nil {
		_ = c.fail(fmt.Errorf("check log files: %w", err))
	}
}
