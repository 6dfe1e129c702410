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

// A flushStatus publishes the outcome of each attempt to flush entries to the
// segment.
type flushStatus struct {
	urgent chan struct{} // has a token when the flush must not wait for more entries

	mu    sync.Mutex
	tried chan struct{} // closed by the next attempt, or when no further attempt will follow
	err   error         // outcome of the last attempt
}

// nextTry returns a channel that is closed by the next attempt.
func (p *flushStatus) nextTry() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// report publishes the outcome of an attempt.
func (p *flushStatus) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	close(p.tried)
	p.tried = make(chan struct{})
}

// end announces that no further attempt will follow.
func (p *flushStatus) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.tried)
}

// lastErr returns the error of the last attempt.
func (p *flushStatus) lastErr() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// flushed waits until all accepted entries are in the segment. It returns the
// error that prevents this.
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

// flushLoop commits entries to the segment until the queue is closed. Before each
// commit it waits up to flushDelay, or batchedDelay, for more entries. While idle it checks the
// files at intervals of watchTime.
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

// waitForMore waits until the delay of the log has passed, a flush is urgent, or the log is
// closing.
func (c *committer) waitForMore() {
	delay := flushDelay
	if c.batched {
		delay = batchedDelay
	}
	select {
	case <-time.After(delay):
	case <-c.flushing.urgent:
	case <-c.closing:
	}
}

// replayJournal commits the entries that an unclean shutdown left in the journal.
func (c *committer) replayJournal(journaled []*pending) error {
	for len(journaled) > 0 {
		part := journaled[:c.room(journaled)]
		if err := c.commit(part); err != nil {
			return fmt.Errorf("replay journal: %w", err)
		}
		journaled = journaled[len(part):]
	}
	c.first = c.tree.size
	return nil
}

// flush commits a batch. While the disk is full, it retries until the log is
// closed. A strict log then commits nothing more, because the journal has these
// entries in order.
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

// countLost counts accepted entries that could not be written.
func (c *committer) countLost(batch []*pending, err error) {
	if err != nil {
		c.lost, c.lostErr = c.lost+len(batch), err
	}
}

// pause waits before the next attempt. It reports whether the log is still open.
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

// commit writes the batch in one transaction. It returns [ErrUnavailable] if it
// wrote nothing, and [ErrFailed] otherwise.
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
	c.config.OnReadable()
	_ = guard(c.seg.release) // on failure only memory stays in use
	return nil
}

// release releases the mapped pages that commits have read, once per releaseBytes of
// growth.
func (s *segment) release() error {
	if s.used-s.released < releaseBytes {
		return nil
	}
	s.released = s.used
	return s.View(func(tx *bbolt.Tx) error { release(tx); return nil })
}

// releaseBytes is the growth of a segment, in bytes, between two calls that
// release memory.
const releaseBytes = 8 << 20

// write adds the batch to the tree and commits it to the file. It checks before
// and after that the file is still at its path. After a panic the transaction
// stays open, because nothing may use the file any more.
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
	entries.FillPercent = 1 // keys are appended in order
	for _, p := range batch {
		k := key(t.size)
		if err := entries.Put(k, t.extend(p.tail)); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(headKey, encodeHead(t.head()))
}

// wroteNothing reports whether a commit that returned err left the file unchanged
// because the disk had no space for the write. Every other error has an unknown
// outcome, and so has a sync that finds the disk full.
func wroteNothing(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) || strings.HasPrefix(err.Error(), "file resize error: ") {
		return true
	}
	var write *fs.PathError
	return errors.As(err, &write) && write.Op == "write" &&
		(errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG))
}

// unchanged reports whether the file still has the last committed head.
func (c *committer) unchanged() bool {
	e, err := c.reader.last().meta()
	return err == nil && e.head == c.reader.committed() && e.count == e.head.Size
}
