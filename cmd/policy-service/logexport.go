package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

type logExportCmd struct {
	stateFlag
	filterFlags
	Format string `help:"Format of the entries: ${enum}. The program log-parquet converts jsonl to Parquet." enum:"jsonl,csv,ocsf" default:"jsonl" placeholder:"FORMAT"`
	Bundle string `help:"File for a verifiable bundle, in place of standard output." placeholder:"FILE"`
	Cursor string `env:"-" help:"File that stores the position. The next export continues there." placeholder:"FILE"`
}

func (c *logExportCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	if c.Bundle != "" {
		return writeTo(c.Bundle, func(w io.Writer) error { return log.bundle(ctx, w, c.filter()) })
	}
	f := c.filter()
	if f.From, err = readCursor(c.Cursor, f.From); err != nil {
		return err
	}
	until, err := c.export(ctx, log, f)
	if err != nil {
		return err
	}
	return writeCursor(c.Cursor, until)
}

type logEvidenceCmd struct {
	stateFlag
	ID   string `arg:"" help:"Decision-ID or index of the entry."`
	File string `help:"File to write. Default: evidence-ID.zip." placeholder:"FILE"`
}

func (c *logEvidenceCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	path := cmp.Or(c.File, "evidence-"+filepath.Base(c.ID)+".zip")
	if err := writeTo(path, func(w io.Writer) error { return log.evidence(ctx, w, c.ID) }); err != nil {
		return err
	}
	_, err = fmt.Printf("wrote %s; policy-service log verify --bundle %[1]s verifies it\n", path)
	return err
}

// export writes the entries to standard output and its progress to standard error. It
// returns the index of the next entry.
func (c *logExportCmd) export(ctx context.Context, log logSource, f decisionlog.Filter) (next int64, err error) {
	encoder, err := decisionlog.NewEncoder(os.Stdout, c.Format)
	if err != nil {
		return 0, err
	}
	p := &progress{word: "exported", next: f.From, told: time.Now(), silent: c.Cursor == ""}
	err = eachLine(ctx, log, f, func(line []byte) error {
		if err := encoder.Encode(line); err != nil {
			return err
		}
		return p.step(line)
	})
	p.tell()
	return p.next, errors.Join(err, encoder.Flush())
}

// eachLine calls fn with each line that f selects. Writers of the log may add lines
// meanwhile.
func eachLine(ctx context.Context, log logSource, f decisionlog.Filter, fn func(line []byte) error) error {
	return linesOf(func(w io.Writer) error { return log.export(ctx, w, f) }, fn)
}

// linesOf calls fn with each line that write writes.
func linesOf(write func(io.Writer) error, fn func(line []byte) error) error {
	r, w := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := write(w)
		exported <- err
		w.CloseWithError(err)
	}()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return <-exported
		}
		if err == nil {
			err = fn(line[:len(line)-1])
		}
		if err != nil {
			r.CloseWithError(err)
			<-exported
			return err
		}
	}
}

// A progress prints the progress of an export.
type progress struct {
	word          string
	entries, next int64
	told          time.Time
	silent        bool // until the end of a second
}

func (p *progress) step(line []byte) error {
	index, ok := decisionlog.Index(line)
	if !ok {
		return fmt.Errorf("a line without an index: %.80s", line)
	}
	p.entries, p.next = p.entries+1, index+1
	if time.Since(p.told) >= time.Second {
		p.silent = false
		p.tell()
	}
	return nil
}

func (p *progress) tell() {
	if !p.silent {
		fmt.Fprintf(os.Stderr, "%s %s, next is index %d\n", p.word, plain.Count(p.entries, "entry", "entries"), p.next)
		p.told = time.Now()
	}
}

// readCursor returns the end of the last export, or from if there was none.
func readCursor(file string, from int64) (int64, error) {
	if file == "" {
		return from, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return from, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read cursor: %w", err)
	}
	next, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || next < 0 {
		return 0, fmt.Errorf("read cursor: %s has no index in it", file)
	}
	return max(from, next), nil
}

// writeCursor stores the end of an export. It runs last, so that an export that breaks
// off is repeated and omits nothing.
func writeCursor(file string, next int64) error {
	if file == "" {
		return nil
	}
	if err := writeTo(file, func(w io.Writer) error { _, err := fmt.Fprintln(w, next); return err }); err != nil {
		return fmt.Errorf("write cursor: %w", err)
	}
	return nil
}

// writeTo writes a file completely or not at all.
func writeTo(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".policy-service-*")
	if err != nil {
		return err
	}
	err = write(file)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), path)
}
