package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

type logStreamCmd struct {
	stateFlag
	filterFlags
	To     string        `help:"Sink: file:PATH, an http:// or https:// URL for POST requests, or otlp for the collector of OTEL_EXPORTER_OTLP_ENDPOINT." placeholder:"SINK" required:""`
	Cursor string        `help:"File that stores the position across restarts." placeholder:"FILE" required:""`
	Format string        `help:"Format of the entries in a file or a POST request: ${enum}." enum:"jsonl,ocsf" default:"jsonl" placeholder:"FORMAT"`
	Header []string      `help:"Header of POST requests, as in 'Authorization: Bearer …'." placeholder:"NAME: VALUE" sep:"none"`
	Batch  int           `help:"Maximum number of entries in one delivery." default:"500" some:"" placeholder:"N"`
	Every  time.Duration `help:"Interval between polls." default:"1s" some:"" placeholder:"DURATION"`
	Once   bool          `help:"Stop after one delivery attempt for all existing entries."`
}

// longestWait is the longest pause after a sink did not accept entries.
const longestWait = time.Minute

// errNotDelivered means that a sink did not accept entries.
var errNotDelivered = errors.New("not delivered")

// Run delivers the existing entries and then new ones, until it is interrupted. Each
// entry is delivered at least once: the cursor moves after the sink has stored the
// entries.
func (c *logStreamCmd) Run(ctx context.Context) error {
	if c.Batch < 1 {
		return fmt.Errorf("--batch must be at least 1: %d", c.Batch)
	}
	to, err := newStreamSink(ctx, c)
	if err != nil {
		return err
	}
	s := stream{command: c, to: to, told: progress{word: "delivered", told: time.Now(), silent: true}}
	if s.filter = c.filter(); c.Once {
		return s.pass(ctx)
	}
	return s.follow(ctx)
}

// A streamSink accepts complete lines of the log in order. When deliver returns
// without an error, the sink has stored them.
type streamSink interface {
	deliver(ctx context.Context, lines [][]byte) error
}

// A stream copies a log to a sink.
type stream struct {
	command *logStreamCmd
	to      streamSink
	filter  decisionlog.Filter
	told    progress
}

// follow delivers new entries until ctx ends.
func (s *stream) follow(ctx context.Context) error {
	wait := s.command.Every
	for {
		err := s.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil || errors.Is(err, decisionlog.ErrLocked): // by a server that is about to answer, or to end
			wait = s.command.Every
		case errors.Is(err, errNotDelivered):
			wait = min(max(2*wait, time.Second), longestWait)
			fmt.Fprintf(os.Stderr, "policy-service: %v; again in %s\n", err, wait)
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// batchBytes is the size of a batch.
const batchBytes = 1 << 20

// pass delivers the entries after the cursor. It does not keep the log open while it
// waits for the sink, because a server could not start.
func (s *stream) pass(ctx context.Context) error {
	next, err := readCursor(s.command.Cursor, s.filter.From)
	if err != nil {
		return err
	}
	log, err := s.command.open()
	if err != nil {
		return err
	}
	defer log.Close()
	f := s.filter
	f.From = next
	complete := f.SelectsAll() && f.Until == 0
	s.told.next = next
	var batch [][]byte
	size := 0
	flush := func() error {
		err := s.deliver(ctx, batch)
		batch, size = nil, 0
		return err
	}
	err = eachLine(ctx, log, f, func(line []byte) error {
		index, _ := decisionlog.Index(line)
		if complete && index > next {
			complete = isOfAll(ctx, log)
		}
		if complete && index > next {
			fmt.Fprintf(os.Stderr, "policy-service: entries %d to %d are no longer in the log, and were not delivered\n", next, index-1)
		}
		next = index + 1
		batch, size = append(batch, line), size+len(line)
		if len(batch) < s.command.Batch && size < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(batch) > 0 {
		err = flush()
	}
	return err
}

// isOfAll reports whether a log shows the entries of every tenant. A server shows a
// caller the entries of the caller's tenants only, and no checkpoint.
func isOfAll(ctx context.Context, log logSource) bool {
	_, err := log.checkpoint(ctx)
	return err == nil
}

// deliver sends lines to the sink and then moves the cursor.
func (s *stream) deliver(ctx context.Context, lines [][]byte) error {
	if err := s.to.deliver(ctx, lines); err != nil {
		return fmt.Errorf("%w: %w", errNotDelivered, err)
	}
	for _, line := range lines {
		if err := s.told.step(line); err != nil {
			return err
		}
	}
	return writeCursor(s.command.Cursor, s.told.next)
}
