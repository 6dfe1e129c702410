package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

const (
	strictQueue  = 4096
	batchedQueue = 512

	commitEntries = 1024    // most entries in a commit
	commitBytes   = 1 << 20 // a commit takes no more entries once it has as many bytes
	flushDelay    = 50 * time.Millisecond
	retryTime     = 100 * time.Millisecond
	watchTime     = 2 * time.Second
)

// A committer takes entries to the disk. Those of a strict log go to the
// journal first: one goroutine takes what has queued meanwhile, writes and
// flushes it at once, and then releases all who wait for it. Another goroutine
// settles entries, those of a batched log without a journal: it commits them to
// the segment, many in one transaction.
type committer struct {
	config  Config
	origin  string // the name under which the log is signed
	seg     *segment
	tree    *tree // the committed one
	reader  *Reader
	batched bool

	// outcomes are channels for the outcome of an entry that nobody uses: one comes
	// back when it has been received from.
	outcomes sync.Pool

	slots     chan struct{} // one for each entry accepted and not yet on disk
	incoming  *queue        // entries that are not in the journal; nil of a batched log
	journal   *journal      // nil of a batched log
	next      int64         // index after the last entry in the journal
	backlog   *queue        // entries that are not in the segment
	first     int64         // index of the first of them that ever was there
	flushing  flushStatus
	unflushed bool // some entry was not settled when the log was closed

	closing chan struct{} // closed when no more entries are accepted
	ended   chan struct{} // closed when the goroutines have ended
	failing sync.Once
	failed  chan struct{} // closed when failure is set
	failure error
	lost    int   // entries a batched committer accepted and could not write
	lostErr error // why
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
		config:   cfg,
		origin:   origin,
		seg:      seg,
		tree:     t,
		reader:   r,
		batched:  cfg.Durability == Batched,
		outcomes: sync.Pool{New: func() any { return make(chan error, 1) }},
		slots:    make(chan struct{}, queue),
		backlog:  newQueue(),
		flushing: flushStatus{urgent: make(chan struct{}, 1), tried: make(chan struct{})},
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
		failed:   make(chan struct{}),
	}
}

// start takes over what is in the journal of a log that was not closed, and
// begins to accept entries.
func (c *committer) start(journaled []*pending) error {
	if err := c.replayJournal(journaled); err != nil {
		return err
	}
	if c.batched {
		if err := removeJournal(c.reader.dir); err != nil {
			return err
		}
		go c.flushLoop()
		return nil
	}
	var err error
	if c.journal, err = createJournal(c.reader.dir); err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	c.next, c.incoming = c.tree.size, newQueue()
	go c.journalLoop()
	go c.flushLoop()
	return nil
}

// append queues an entry and, if strict, waits until it is on disk.
func (c *committer) append(ctx context.Context, rest []byte, strict bool) error {
	p := &pending{tail: rest}
	if strict {
		p.done = c.outcomes.Get().(chan error)
	}
	if err := c.enqueue(ctx, p); err != nil || !strict {
		return err
	}
	select {
	case err := <-p.done:
		c.outcomes.Put(p.done)
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for commit: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// enqueue waits for room and queues p.
func (c *committer) enqueue(ctx context.Context, p *pending) error {
	if err := c.refusal(ctx); err != nil {
		return err
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.failed:
		return c.refusal(ctx)
	case <-c.closing:
		return c.refusal(ctx)
	case <-ctx.Done():
		return c.refusal(ctx)
	}
	if n := c.inputQueue().put(p); n == 0 {
		<-c.slots
		return errClosed
	} else if c.batched && n >= cap(c.slots)/2 {
		notify(c.flushing.urgent)
	}
	return nil
}

// inputQueue is the queue for new entries.
func (c *committer) inputQueue() *queue {
	if c.batched {
		return c.backlog
	}
	return c.incoming
}

var errClosed = fmt.Errorf("%w: the log is closed", ErrUnavailable)

// refusal returns why no entry is accepted, or nil.
func (c *committer) refusal(ctx context.Context) error {
	select {
	case <-c.failed:
		return c.failure
	case <-c.closing:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for room: %w", ErrUnavailable, context.Cause(ctx))
	default:
		return nil
	}
}

// journalLoop puts entries in the journal until no more come.
func (c *committer) journalLoop() {
	defer c.backlog.close()
	for open := true; open; {
		<-c.incoming.wake
		runtime.Gosched() // those who are about to queue do
		var batch []*pending
		for batch, open = c.incoming.take(); len(batch) > 0; {
			part, start := batch[:commitLen(batch)], time.Now()
			err := c.writeJournal(part)
			c.config.OnCommit(len(part), time.Since(start))
			if err == nil && c.backlog.put(part...) >= commitEntries {
				notify(c.flushing.urgent)
			}
			c.release(part, err)
			batch = batch[len(part):]
		}
	}
}

// commitLen returns how many entries go into one commit, at least one.
func commitLen(batch []*pending) int {
	size := 0
	for i, p := range batch[:min(len(batch), commitEntries)] {
		if size += len(p.tail); size >= commitBytes {
			return i + 1
		}
	}
	return min(len(batch), commitEntries)
}

// writeJournal puts a batch in the journal. Its error is [ErrUnavailable] if nothing
// of it is there, else [ErrFailed]. As long as entries cannot be settled no
// more are accepted.
func (c *committer) writeJournal(batch []*pending) error {
	if err := c.err(); err != nil {
		return err
	}
	if c.flushing.lastErr() != nil {
		if err := c.flushed(context.Background()); err != nil {
			return err
		}
	}
	err := c.journal.write(c.next, batch, c.reader.committed().Size)
	for errors.Is(err, errJournalFull) {
		if err := c.flushed(context.Background()); err != nil {
			return err
		}
		err = c.journal.write(c.next, batch, c.reader.committed().Size)
	}
	if err == nil {
		err = c.reader.last().checkInPlace()
	}
	switch {
	case err == nil:
		c.next += int64(len(batch))
		return nil
	case wroteNothing(err):
		return fmt.Errorf("%w: write journal: %w", ErrUnavailable, err)
	}
	return c.fail(fmt.Errorf("write journal: %w", err))
}

// fail makes the log fail for good.
func (c *committer) fail(err error) error {
	c.failing.Do(func() {
		c.failure = fmt.Errorf("%w: %w", ErrFailed, err)
		close(c.failed)
	})
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

// release tells those who wait what became of their entries.
func (c *committer) release(batch []*pending, err error) {
	for _, p := range batch {
		if p.done != nil {
			p.done <- err
		}
		<-c.slots
	}
}

// close ends the goroutines after they have committed what is queued, and
// returns why they could not. What is in the journal is not lost.
func (c *committer) close() error {
	close(c.closing)
	c.inputQueue().close()
	<-c.ended
	if c.lost > 0 {
		return fmt.Errorf("%d accepted entries are not recorded: %w", c.lost, c.lostErr)
	}
	if err := c.err(); err != nil || c.batched {
		return err
	}
	if err := c.journal.close(); err != nil || c.reader.committed().Size < c.next {
		return err
	}
	return removeJournal(c.reader.dir)
}
