package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A progress tells those who wait for entries to be settled of each try.
type flushStatus struct {
	urgent chan struct{} // has a token when settling is not to wait for more entries

	mu    sync.Mutex
	tried chan struct{} // closed with the next try, and once there will be none
	err   error         // of the last
}

// nextTry returns a channel that is closed with the next try.
func (p *flushStatus) nextTry() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// report tells of a try.
func (p *flushStatus) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	close(p.tried)
	p.tried = make(chan struct{})
}

// end tells that there will be no other try.
func (p *flushStatus) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.tried)
}

// lastErr returns how the last try ended.
func (p *flushStatus) lastErr() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// flushed has all that was accepted committed to the segment, and returns why
// that cannot be.
func (c *committer) flushed(ctx context.Context) error {
	for all := c.first + c.backlog.accepted(); ; {
		tried := c.flushing.nextTry()
		if c.reader.committed().Size >= all {
			return nil
		}
		notify(c.flushing.urgent)
		select {
		case <-tried:
			if err := c.flushing.lastErr(); err != nil {
				return err
			}
		case <-c.ended:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: wait for commit: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// flushLoop commits entries to the segment until no more come. It waits for more
// before, up to lingerTime or until there are many, and meanwhile looks after
// the files.
func (c *committer) flushLoop() {
	defer close(c.ended)
	watch := time.NewTicker(watchTime)
	defer watch.Stop()
	for open := true; open; {
		select {
		case <-watch.C:
			c.checkFiles()
			continue
		case <-c.backlog.wake:
		}
		c.waitForMore()
		var batch []*pending
		batch, open = c.backlog.take()
		c.flush(batch)
	}
}

// waitForMore waits for more entries.
func (c *committer) waitForMore() {
	select {
	case <-time.After(flushDelay):
	case <-c.flushing.urgent:
	case <-c.closing:
	}
}

// replayJournal commits what the journal has of a log that was not closed.
func (c *committer) replayJournal(journaled []*pending) error {
	for len(journaled) > 0 {
		part := journaled[:c.room(journaled)]
		if err := c.commit(part); err != nil {
			return fmt.Errorf("settle the journal: %w", err)
		}
		journaled = journaled[len(part):]
	}
	c.first = c.tree.size
	return nil
}

// flush commits a batch. As long as the disk has no room for it, it tries again
// until the log is closed. Of a strict log it then commits nothing any more:
// the journal has these entries, and has them in their places.
func (c *committer) flush(batch []*pending) {
	for len(batch) > 0 && !c.unflushed {
		part, start := batch[:c.room(batch)], time.Now()
		err := c.commit(part)
		c.flushing.report(err)
		for errors.Is(err, ErrUnavailable) && c.pause() {
			err = c.commit(part)
			c.flushing.report(err)
		}
		if c.unflushed = err != nil && !c.batched; c.unflushed {
			c.flushing.end()
		}
		if c.batched {
			c.config.OnCommit(len(part), time.Since(start))
			c.release(part, err)
			c.countLost(part, err)
		}
		batch = batch[len(part):]
	}
}

// countLost counts entries that are accepted and not on disk.
func (c *committer) countLost(batch []*pending, err error) {
	if err != nil {
		c.lost, c.lostErr = c.lost+len(batch), err
	}
}

// pause waits before a batch is tried again, and reports whether the log is
// still open.
func (c *committer) pause() bool {
	select {
	case <-time.After(retryTime):
		return true
	case <-c.flushing.urgent:
		return true
	case <-c.closing:
		return false
	}
}

// commit writes the batch in one transaction. Its error is [ErrUnavailable] if
// nothing was written, else [ErrFailed].
func (c *committer) commit(batch []*pending) error {
	if err := c.err(); err != nil {
		return err
	}
	grown := *c.tree
	err := guard(func() error { return c.seg.write(&grown, batch) })
	if err != nil && wroteNothing(err) && c.unchanged() {
		return fmt.Errorf("%w: commit: %w", ErrUnavailable, err)
	}
	if err != nil {
		return c.fail(fmt.Errorf("commit: %w", err))
	}
	head := grown.head()
	c.reader.ids.add(c.tree.size, batch)
	c.tree = &grown
	c.reader.head.Store(&head)
	_ = guard(c.seg.release) // what is not released costs memory, and nothing else
	return nil
}

// release releases what commits have read of the map, whenever there is enough.
func (s *segment) release() error {
	if s.used-s.released < releaseBytes {
		return nil
	}
	s.released = s.used
	return s.View(func(tx *bbolt.Tx) error { release(tx); return nil })
}

// releaseBytes is after how many new bytes of a segment that is done.
const releaseBytes = 8 << 20

// write adds the batch to the tree and commits it to the file, which is in its
// place before and after. After a panic the transaction stays open, for nothing
// may touch the file any more.
func (s *segment) write(t *tree, batch []*pending) error {
	if err := s.inPlace(); err != nil {
		return err
	}
	tx, err := s.Begin(true)
	if err != nil {
		return err
	}
	if err := put(tx, t, batch); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	s.used = tx.Size()
	if err := tx.Commit(); err != nil {
		return err
	}
	return s.inPlace()
}

func put(tx *bbolt.Tx, t *tree, batch []*pending) error {
	entries := tx.Bucket(entriesBucket)
	entries.FillPercent = 1 // every key is behind all others
	for _, p := range batch {
		k := key(t.size)
		if err := entries.Put(k, t.extend(p.tail)); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(headKey, encodeHead(t.head()))
}

// wroteNothing reports whether a commit that ended in err has left the file as
// it was: it had no room to write. Any other error, and a flush that finds the
// disk full, has an unknown outcome.
func wroteNothing(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) || strings.HasPrefix(err.Error(), "file resize error: ") {
		return true
	}
	var write *fs.PathError
	return errors.As(err, &write) && write.Op == "write" &&
		(errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG))
}

// unchanged reports whether the file has the head that was committed last.
func (c *committer) unchanged() bool {
	e, err := c.reader.last().meta()
	return err == nil && e.head == c.reader.committed() && e.count == e.head.Size
}
