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

	commitEntries = 1024                   // maximum number of entries in one commit
	commitBytes   = 1 << 20                // a commit that has reached this size takes no more entries
	flushDelay    = 250 * time.Millisecond // of entries in the journal
	batchedDelay  = 50 * time.Millisecond  // of entries that are nowhere on disk yet
	laterDelay    = 5 * time.Millisecond   // of entries that nobody waits for
	retryTime     = 100 * time.Millisecond
	watchTime     = 2 * time.Second
)

// A committer writes entries to disk. In a strict log one goroutine takes all
// queued entries, writes them to the journal with one flush, and then releases
// the waiting callers. A second goroutine commits entries to the segment, many in
// one transaction. A batched log has no journal and uses only the second
// goroutine.
type committer struct {
	config  Config
	origin  string // name that signs the log
	seg     *segment
	tree    *tree // state after the last commit
	reader  *Reader
	batched bool

	// outcomes pools the channels that report the outcome of an entry. A channel
	// returns to the pool after its value has been received.
	outcomes sync.Pool

	slots     chan struct{} // holds one token for each accepted entry that is not yet on disk
	incoming  *queue        // entries not yet in the journal; nil for a batched log
	journal   *journal      // nil for a batched log
	next      int64         // index after the last entry in the journal
	backlog   *queue        // entries not yet in the segment
	first     int64         // index of the first entry ever queued in backlog
	flushing  flushStatus
	unflushed bool // the log was closed before every entry was in the segment

	closing chan struct{} // closed when the log stops accepting entries
	ended   chan struct{} // closed when the goroutines have ended
	failing sync.Once
	failed  chan struct{} // closed when failure is set
	failure error
	lost    int   // number of accepted entries that a batched log could not write
	lostErr error // error that lost them
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

// start commits the entries that an unclean shutdown left in the journal, and
// then begins to accept entries.
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

// append queues an entry. If strict is set, it waits until the entry is on disk.
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

// enqueue waits for a free slot and queues p.
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
	if n := c.put(p); n == 0 {
		<-c.slots
		return errClosed
	} else if c.batched && (n >= cap(c.slots)/2 || p.done != nil) {
		notify(c.flushing.urgent)
	}
	return nil
}

// put adds p to the queue for new entries. It returns the length of the queue, 0 if it is closed.
func (c *committer) put(p *pending) int {
	if p.later != nil && !c.batched {
		return c.incoming.putLater(p, laterDelay)
	}
	return c.inputQueue().put(p)
}

// inputQueue returns the queue for new entries.
func (c *committer) inputQueue() *queue {
	if c.batched {
		return c.backlog
	}
	return c.incoming
}

var errClosed = fmt.Errorf("%w: the log is closed", ErrUnavailable)

// refusal returns the reason why the log accepts no entries, or nil.
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

// journalLoop writes queued entries to the journal until the queue is closed.
func (c *committer) journalLoop() {
	defer c.backlog.close()
	for open := true; open; {
		<-c.incoming.wake
		runtime.Gosched() // lets goroutines that are about to enqueue do so
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

// commitLen returns the number of entries for the next commit, at least one.
func commitLen(batch []*pending) int {
	size := 0
	for i, p := range batch[:min(len(batch), commitEntries)] {
		if size += len(p.tail); size >= commitBytes {
			return i + 1
		}
	}
	return min(len(batch), commitEntries)
}

// writeJournal writes a batch to the journal. It returns [ErrUnavailable] if it
// wrote nothing, and [ErrFailed] otherwise. It accepts no entries while flushes
// to the segment fail.
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

// fail puts the log into its permanent failed state.
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

// release reports the outcome of a batch to the waiting callers.
func (c *committer) release(batch []*pending, err error) {
	for _, p := range batch {
		if p.done != nil {
			p.done <- err
		}
		if p.later != nil {
			p.later(err)
		}
		<-c.slots
	}
}

// close ends the goroutines after they have committed the queued entries. It
// returns the error that prevented a commit. Entries in the journal are not lost.
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
