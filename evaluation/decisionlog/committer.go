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

const (
	strictQueue  = 4096
	batchedQueue = 512

	commitEntries = 1024    // most entries in a commit
	commitBytes   = 1 << 20 // a commit takes no more entries once it has as many bytes
	lingerTime    = 50 * time.Millisecond
	retryTime     = 100 * time.Millisecond
	watchTime     = 2 * time.Second
)

// A committer is the one goroutine that writes to the segment. It takes what
// has queued meanwhile, commits it in one transaction, and then releases all
// who wait for it. A batched committer waits for more before, up to lingerTime
// or half of the queue.
type committer struct {
	config  Config
	origin  string // the name under which the log is signed
	seg     *segment
	tree    *tree // the committed one
	reader  *Reader
	batched bool

	slots chan struct{} // one for each entry accepted and not yet on disk
	queue chan *pending // has room for as many

	sending sync.RWMutex  // held for reading to send to queue, for writing to close it
	closing chan struct{} // closed when no more entries are accepted
	ended   chan struct{} // closed when the goroutine ends
	failed  chan struct{} // closed when failure is set
	failure error
	lost    int   // entries a batched committer accepted and could not write
	lostErr error // why
}

// A pending entry is one that is not committed.
type pending struct {
	rest []byte     // its line, without the beginning
	done chan error // receives the outcome; nil if nobody waits
}

func newCommitter(seg *segment, t *tree, r *Reader, origin string, cfg Config) *committer {
	queue := cfg.Queue
	switch {
	case queue > 0:
	case cfg.Durability == Batched:
		queue = batchedQueue
	default:
		queue = strictQueue
	}
	return &committer{
		config:  cfg,
		origin:  origin,
		seg:     seg,
		tree:    t,
		reader:  r,
		batched: cfg.Durability == Batched,
		slots:   make(chan struct{}, queue),
		queue:   make(chan *pending, queue),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		failed:  make(chan struct{}),
	}
}

// append queues an entry and, if strict, waits until it is committed.
func (c *committer) append(ctx context.Context, rest []byte, strict bool) error {
	p := &pending{rest: rest}
	if strict {
		p.done = make(chan error, 1)
	}
	if err := c.enqueue(ctx, p); err != nil || !strict {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for commit: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// enqueue waits for room in the queue and puts p there.
func (c *committer) enqueue(ctx context.Context, p *pending) error {
	c.sending.RLock()
	defer c.sending.RUnlock()
	if err := c.refusal(ctx); err != nil {
		return err
	}
	select {
	case c.slots <- struct{}{}:
		c.queue <- p
		return nil
	case <-c.failed:
	case <-c.closing:
	case <-ctx.Done():
	}
	return c.refusal(ctx)
}

// refusal returns why no entry is accepted, or nil.
func (c *committer) refusal(ctx context.Context) error {
	select {
	case <-c.failed:
		return c.failure
	case <-c.closing:
		return fmt.Errorf("%w: the log is closed", ErrUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for room: %w", ErrUnavailable, context.Cause(ctx))
	default:
		return nil
	}
}

// run commits until the queue is closed and empty. Meanwhile it looks after
// the files.
func (c *committer) run() {
	defer close(c.ended)
	watch := time.NewTicker(watchTime)
	defer watch.Stop()
	for {
		select {
		case first, open := <-c.queue:
			if !open {
				return
			}
			c.take(c.collect(first))
		case <-watch.C:
			c.look()
		}
	}
}

// take commits a batch, at most up to where a new segment has to begin at
// once.
func (c *committer) take(batch []*pending) {
	for len(batch) > 0 {
		part := batch[:min(len(batch), c.room())]
		err := c.commit(part)
		for c.batched && errors.Is(err, ErrUnavailable) && c.pause() {
			err = c.commit(part)
		}
		c.release(part, err)
		batch = batch[len(part):]
	}
}

// collect takes what is to be committed with first.
func (c *committer) collect(first *pending) []*pending {
	most, linger := commitEntries, (<-chan time.Time)(nil)
	if c.batched {
		most, linger = min(most, max(cap(c.queue)/2, 1)), time.After(lingerTime)
	}
	batch, size := []*pending{first}, len(first.rest)
	for len(batch) < most && size < commitBytes {
		p := c.next(linger)
		if p == nil {
			break
		}
		batch = append(batch, p)
		size += len(p.rest)
	}
	return batch
}

// next returns the next entry that is queued before linger fires, or if linger
// is nil before now; and else nil.
func (c *committer) next(linger <-chan time.Time) *pending {
	select {
	case p := <-c.queue:
		return p
	default:
	}
	if linger == nil {
		return nil
	}
	select {
	case p := <-c.queue:
		return p
	case <-linger:
		return nil
	case <-c.closing:
		return nil
	}
}

// commit writes the batch in one transaction. Its error is [ErrUnavailable] if
// nothing was written, else [ErrFailed].
func (c *committer) commit(batch []*pending) error {
	if err := c.err(); err != nil {
		return err
	}
	grown := *c.tree
	err := guard(func() error { return c.write(&grown, batch) })
	if err != nil && wroteNothing(err) && c.unchanged() {
		return fmt.Errorf("%w: commit: %w", ErrUnavailable, err)
	}
	if err != nil {
		return c.fail(fmt.Errorf("commit: %w", err))
	}
	head := grown.head()
	c.tree = &grown
	c.reader.head.Store(&head)
	return nil
}

// write adds the batch to the tree and commits it to the file, which is in its
// place before and after. After a panic the transaction stays open, for nothing
// may touch the file any more.
func (c *committer) write(t *tree, batch []*pending) error {
	if err := c.seg.inPlace(); err != nil {
		return err
	}
	tx, err := c.seg.Begin(true)
	if err != nil {
		return err
	}
	if err := put(tx, t, batch); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	c.seg.used = tx.Size()
	if err := tx.Commit(); err != nil {
		return err
	}
	return c.seg.inPlace()
}

func put(tx *bbolt.Tx, t *tree, batch []*pending) error {
	entries := tx.Bucket(entriesBucket)
	entries.FillPercent = 1 // every key is behind all others
	for _, p := range batch {
		k := key(t.size)
		if err := entries.Put(k, t.extend(p.rest)); err != nil {
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
	e, err := c.reader.last().extent()
	return err == nil && e.head == c.reader.Head() && e.count == e.head.Size
}

// fail makes the log fail for good.
func (c *committer) fail(err error) error {
	c.failure = fmt.Errorf("%w: %w", ErrFailed, err)
	close(c.failed)
	return c.failure
}

func (c *committer) err() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// pause waits before a batch is tried again, and reports whether the log is
// still open.
func (c *committer) pause() bool {
	select {
	case <-time.After(retryTime):
		return true
	case <-c.closing:
		return false
	}
}

// release tells those who wait what became of their entries.
func (c *committer) release(batch []*pending, err error) {
	for _, p := range batch {
		if p.done != nil {
			p.done <- err
		}
		<-c.slots
	}
	if c.batched && err != nil {
		c.lost, c.lostErr = c.lost+len(batch), err
	}
}

// close ends the goroutine after it has committed what is queued, and returns
// why it could not.
func (c *committer) close() error {
	close(c.closing)
	c.sending.Lock()
	close(c.queue)
	c.sending.Unlock()
	<-c.ended
	if c.lost > 0 {
		return fmt.Errorf("%d accepted entries are not recorded: %w", c.lost, c.lostErr)
	}
	return c.err()
}
