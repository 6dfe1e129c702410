//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	policies     = 1000
	fewPolicies  = 10
	manyPolicies = 10_000

	// baseline is the row of the ratios, in the same round with as many clients.
	baseline = "net/http"

	// beforePrefix begins the rows of the program to compare with.
	beforePrefix = "before: "
)

// durabilities are those of the decision log; a row is named for its own.
var durabilities = []string{"strict", "batched"}

// clientCounts are how many connections a load has.
var clientCounts = []int{32, 256}

// A row is a server with a load.
type row struct {
	Name    string
	Clients int

	server       *server
	path, bodies string
	rounds       []measured
}

// A measured is what one round has measured of a row.
type measured struct {
	sample
	processor time.Duration
	mallocs   float64
	resident  float64
}

// An engine is a server that decides, or a floor.
type engine struct {
	name      string
	server    *server
	path      string
	work      *workload
	constant  bool // a floor: it does not decide
	coldStart time.Duration
}

// A bench has the servers and the rows.
type bench struct {
	config
	dir       string
	generator *generator
	engines   []*engine
	rows      []*row
	commits   []time.Duration // of a file of its own, one after the other
}

func newBench(ctx context.Context, c config, dir string) (*bench, error) {
	b := &bench{config: c, dir: dir}
	generator, err := findWrk(filepath.Join(dir, "wrk.lua"))
	if err != nil {
		return nil, err
	}
	b.generator = generator
	if err := b.start(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bench) stop() {
	for _, e := range b.engines {
		_ = e.server.stop() // its state is removed next
	}
}

// start starts every server, holds it to its answers and adds its rows.
func (b *bench) start(ctx context.Context) error {
	work := newWorkload(policies)
	if err := b.write(work); err != nil {
		return err
	}
	if err := b.startFloor(ctx, baseline, work); err != nil {
		return err
	}
	if b.Before != "" {
		return b.startPair(ctx, work)
	}
	for _, name := range []string{"durability", "echo", "cedar-go"} {
		if err := b.startFloor(ctx, name, work); err != nil {
			return err
		}
	}
	for _, durability := range durabilities {
		if err := b.startService(ctx, durability, b.Service, work); err != nil {
			return err
		}
	}
	if err := b.startSizes(ctx); err != nil {
		return err
	}
	return b.startOPA(ctx, work)
}

// startPair starts two programs, each in both kinds of durability. Their rows
// alternate.
func (b *bench) startPair(ctx context.Context, work *workload) error {
	for _, durability := range durabilities {
		if err := b.startService(ctx, beforePrefix+durability, b.Before, work); err != nil {
			return err
		}
		if err := b.startService(ctx, durability, b.Service, work); err != nil {
			return err
		}
	}
	slices.SortStableFunc(b.rows, func(r, s *row) int {
		return strings.Compare(strings.TrimPrefix(r.Name, beforePrefix), strings.TrimPrefix(s.Name, beforePrefix))
	})
	return nil
}

// startSizes adds rows of a small and a large policy store.
func (b *bench) startSizes(ctx context.Context) error {
	for _, n := range []int{fewPolicies, manyPolicies} {
		work := newWorkload(n)
		if err := b.write(work); err != nil {
			return err
		}
		e, err := b.launchService(ctx, fmt.Sprintf("strict, %d policies", n), b.Service, work)
		if err != nil {
			return err
		}
		b.add(e, e.name, e.path, b.bodiesFile(work), clientCounts[0])
	}
	return nil
}

func (b *bench) startFloor(ctx context.Context, name string, work *workload) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	dir := b.cedarDir(work)
	if name == "durability" {
		dir = b.dir
	}
	e := &engine{name: name, path: evaluationPath, work: work, constant: name != "cedar-go"}
	return b.startEverywhere(ctx, e, printed, program, floorCommand, name, dir)
}

func (b *bench) startOPA(ctx context.Context, work *workload) error {
	if b.OPA == "" {
		return nil
	}
	if err := b.launchOPA(ctx, "opa", work); err != nil {
		return err
	}
	return b.launchOPA(ctx, "opa, decision log", work, "--set", "decision_logs.console=true")
}

// launchOPA starts OPA. Version 0 of its API takes a body as it is and returns
// a rule's value as it is, so that OPA reads and writes the same bytes as all
// others.
func (b *bench) launchOPA(ctx context.Context, name string, work *workload, args ...string) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	e := &engine{name: name, path: "/v0/data/authzen/answer", work: work}
	args = append([]string{"run", "--server", "--addr", address, "--skip-version-check", "--log-level", "error"}, args...)
	return b.startEverywhere(ctx, e, healthy("http://"+address), b.OPA, append(args, b.regoDir(work))...)
}

// startService starts a policy-service with rows for single requests and, in
// strict durability, for batches and searches.
func (b *bench) startService(ctx context.Context, name, program string, work *workload) error {
	e, err := b.launchService(ctx, name, program, work)
	if err != nil {
		return err
	}
	b.addEverywhere(e)
	if !strings.HasSuffix(name, "strict") {
		return nil
	}
	for _, l := range []load{batches(work), searches(work)} {
		if err := e.check(ctx, l); err != nil {
			return err
		}
		file := filepath.Join(b.dir, l.name)
		if err := writeFiles(map[string]string{file: l.lines()}); err != nil {
			return err
		}
		b.add(e, name+", "+l.name, l.path, file, clientCounts[0])
	}
	return nil
}

func (b *bench) launchService(ctx context.Context, name, program string, work *workload) (*engine, error) {
	durability := "strict"
	if strings.HasSuffix(name, "batched") {
		durability = "batched"
	}
	e := &engine{name: name, path: evaluationPath, work: work}
	return e, b.launch(ctx, e, printed, program, "serve", "--policies", b.cedarDir(work), "--state", filepath.Join(b.dir, "state "+name),
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--durability", durability)
}

func (b *bench) startEverywhere(ctx context.Context, e *engine, ready func(*server) bool, program string, args ...string) error {
	if err := b.launch(ctx, e, ready, program, args...); err != nil {
		return err
	}
	b.addEverywhere(e)
	return nil
}

// launch starts an engine and holds it to the answers of its workload.
func (b *bench) launch(ctx context.Context, e *engine, ready func(*server) bool, program string, args ...string) error {
	began := time.Now()
	s, err := launch(ctx, b.logFile(e), ready, program, args...)
	if err != nil {
		return err
	}
	e.server = s
	b.engines = append(b.engines, e)
	if _, err := post(ctx, s.URL+e.path, encode(e.work.Requests[0])); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	e.coldStart = time.Since(began)
	return e.check(ctx, singles(e.work, e.path))
}

func (b *bench) addEverywhere(e *engine) {
	for _, clients := range clientCounts {
		b.add(e, e.name, e.path, b.bodiesFile(e.work), clients)
	}
}

func (b *bench) add(e *engine, name, path, bodies string, clients int) {
	b.rows = append(b.rows, &row{Name: name, Clients: clients, server: e.server, path: path, bodies: bodies})
}

func (b *bench) logFile(e *engine) string {
	return filepath.Join(b.dir, strings.ReplaceAll(e.name, "/", "-")+".log")
}

func (b *bench) sizeDir(w *workload) string    { return filepath.Join(b.dir, fmt.Sprint(w.Policies)) }
func (b *bench) cedarDir(w *workload) string   { return filepath.Join(b.sizeDir(w), "cedar") }
func (b *bench) regoDir(w *workload) string    { return filepath.Join(b.sizeDir(w), "rego") }
func (b *bench) bodiesFile(w *workload) string { return filepath.Join(b.sizeDir(w), "bodies") }

func (b *bench) write(w *workload) error {
	return errors.Join(w.Write(b.cedarDir(w), b.regoDir(w)), writeFiles(map[string]string{b.bodiesFile(w): singles(w, "").lines()}))
}

// measure goes through the rounds. The first second of every server is not
// measured.
func (b *bench) measure(ctx context.Context) error {
	slices.SortStableFunc(b.rows, func(r, s *row) int { return r.Clients - s.Clients })
	took := time.Duration(b.Rounds*len(b.rows)) * (b.Slice + 100*time.Millisecond)
	fmt.Fprintf(os.Stderr, "%d rounds of %d rows, %s each: about %s\n", b.Rounds, len(b.rows), b.Slice, took.Round(time.Second))
	for _, e := range b.engines {
		if _, err := b.generator.run(ctx, e.server.URL, e.path, b.bodiesFile(e.work), clientCounts[0], time.Second); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	order := slices.Clone(b.rows)
	for n := range b.Rounds {
		if err := b.round(ctx, order); err != nil {
			return err
		}
		slices.Reverse(order)
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, b.Rounds)
	}
	return nil
}

func (b *bench) round(ctx context.Context, rows []*row) error {
	for _, r := range rows {
		if err := again(func() error { return b.slice(ctx, r) }); err != nil {
			return fmt.Errorf("%s, %d clients: %w", r.Name, r.Clients, err)
		}
	}
	took, err := commitAlone(filepath.Join(b.dir, "commit"), 100)
	b.commits = append(b.commits, took...)
	return err
}

// again measures, and twice more if the sample is worth nothing. A busy machine
// that stands still for two seconds breaks the connections of every server with
// time limits; a server that breaks them by itself does so each time.
func again(measure func() error) error {
	for left := 2; ; left-- {
		err := measure()
		if !errors.Is(err, errWorthless) || left == 0 {
			return err
		}
		fmt.Fprintln(os.Stderr, "measured again:", err)
	}
}

// slice measures one row once.
func (b *bench) slice(ctx context.Context, r *row) error {
	mallocs, err := r.server.mallocs()
	if err != nil {
		return err
	}
	processor, err := r.server.processorTime()
	if err != nil {
		return err
	}
	s, err := b.generator.run(ctx, r.server.URL, r.path, r.bodies, r.Clients, b.Slice)
	if err != nil {
		return err
	}
	m := measured{sample: s}
	if m.processor, err = r.server.processorTime(); err != nil {
		return err
	}
	if m.mallocs, err = r.server.mallocs(); err != nil {
		return err
	}
	m.processor, m.mallocs = m.processor-processor, m.mallocs-mallocs
	m.resident, err = r.server.residentMiB()
	r.rounds = append(r.rounds, m)
	return err
}

// commitAlone writes and flushes n bodies, one after the other.
func commitAlone(name string, n int) (took []time.Duration, err error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	g := &groupCommit{file: file}
	if _, err := file.Write(make([]byte, maxBody)); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	for range n {
		before := time.Now()
		if err := g.flush(make([]byte, 600)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(before))
	}
	return took, nil
}
