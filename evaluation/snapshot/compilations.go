package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// ErrInPart means that a policy store is in force but for what some of its
// tenants have changed: their last good files count, with the root as it is.
var ErrInPart = errors.New("the policy store is in force in part")

const (
	CompileDeadline = 30 * time.Second // of one snapshot

	// CompileGrace is how long a reload waits for the slowest tenant, and then for
	// the slowest of those that fall back to their last good files. A new root is in
	// force for every tenant by then, and one that is not compiled is not answered.
	CompileGrace = time.Second
	// LateGrace is the same once tenants come late: others come with them.
	LateGrace = CompileGrace / 4
)

// A compilation makes one snapshot, in the background: one that takes long keeps
// nothing else waiting, and is not begun twice.
type compilation struct {
	done     chan struct{}
	snapshot *Snapshot // when done
	err      error
	overdue  context.Context // ends with the deadline
}

// outcome is what has come of a compilation; ErrSlow after its deadline, and no
// snapshot and no error while it goes on.
func (c *compilation) outcome() (*Snapshot, error) {
	select {
	case <-c.done:
		return c.snapshot, c.err
	default:
	}
	if c.overdue.Err() != nil {
		return nil, ErrSlow
	}
	return nil, nil
}

// wait waits until there is an outcome.
func (c *compilation) wait(ctx context.Context) {
	select {
	case <-c.done:
	case <-c.overdue.Done():
	case <-ctx.Done():
	}
}

// A Compiler compiles policy stores. It keeps the compilations of the stores that
// came into force last, by revision: the same files are compiled once.
type Compiler struct {
	compile  func(context.Context, Archive) (*Snapshot, error)
	deadline time.Duration

	mu  sync.Mutex
	all map[string]*compilation
}

// NewCompiler returns a compiler that gives each snapshot so long. compile is nil
// for [CompileContext].
func NewCompiler(deadline time.Duration, compile func(context.Context, Archive) (*Snapshot, error)) *Compiler {
	if compile == nil {
		compile = CompileContext
	}
	return &Compiler{compile: compile, deadline: cmp.Or(deadline, CompileDeadline), all: map[string]*compilation{}}
}

// begin begins to compile an archive, or returns what has been begun.
func (c *Compiler) begin(a Archive) (*compilation, error) {
	manifest, err := decisionlog.Manifest(a)
	if err != nil {
		return nil, faults.List{{File: ".", Message: err.Error()}}
	}
	revision := decisionlog.Revision(manifest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun := c.all[revision]; begun != nil {
		return begun, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
	begun := &compilation{done: make(chan struct{}), overdue: ctx}
	c.all[revision] = begun
	go func() {
		defer cancel()
		defer close(begun.done)
		begun.snapshot, begun.err = c.unharmed(ctx, a)
		if ctx.Err() != nil { // it was told that it is too slow
			begun.snapshot, begun.err = nil, ErrSlow
		}
	}()
	return begun, nil
}

// unharmed compiles an archive. One that makes the compiler panic does not load.
func (c *Compiler) unharmed(ctx context.Context, a Archive) (s *Snapshot, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s, err = nil, fmt.Errorf("compile policy store: panic: %v", fault)
		}
	}()
	return c.compile(ctx, a)
}

// keep forgets all but the compilations that are wanted, and those that run. One
// that was too slow begins anew when it is next wanted, once that has been told.
func (c *Compiler) keep(wanted map[*compilation]bool, pending Pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.all, func(_ string, one *compilation) bool {
		select {
		case <-one.done:
			return !wanted[one] || errors.Is(one.err, ErrSlow) && !pending[one]
		default:
			return false
		}
	})
}

// partly is [ErrInPart] with what keeps the rest from it.
type partly struct{ problem error }

func (p *partly) Error() string   { return p.problem.Error() }
func (p *partly) Unwrap() []error { return []error{ErrInPart, p.problem} }

// An Upgrade is a policy store that is to come into force in the place of another.
type Upgrade struct {
	Archive      Archive
	TenantFaults faults.List   // what is wrong in tenants' folders beside what the archive shows
	Old          *Snapshots    // nil for none
	MayShrink    bool          // a tenant may lose policies
	Strict       bool          // see Config.GuardShrink
	Grace        time.Duration // to wait for slow tenants where policies are in force
}

// Pending are the compilations that go on after [Compiler.Compile] has returned.
type Pending map[*compilation]bool

// Wait waits until one of them ends.
func (p Pending) Wait(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for one := range p {
		go func() {
			defer cancel()
			one.wait(ctx)
		}()
	}
	<-ctx.Done()
}

// Compile compiles a store, tenant by tenant, and returns the snapshots that come
// into force. With an error that is ErrInPart they come into force without what
// keeps some tenants from theirs. Pending is nil where nothing goes on.
func (c *Compiler) Compile(ctx context.Context, u Upgrade) (*Snapshots, Pending, error) {
	t := attempt{Compiler: c, Upgrade: u, wanted: map[*compilation]bool{}, problems: map[string]error{}, pending: Pending{}}
	s, err := t.run(ctx)
	c.keep(t.wanted, t.pending)
	if len(t.pending) == 0 {
		return s, nil, err
	}
	return s, t.pending, err
}

// An attempt is one call of [Compiler.Compile].
type attempt struct {
	*Compiler
	Upgrade

	wanted   map[*compilation]bool
	problems map[string]error // of tenants
	pending  Pending
}

// run returns the snapshots that come into force. Beside them the error is
// ErrInPart with what keeps tenants from theirs.
func (t *attempt) run(ctx context.Context) (*Snapshots, error) {
	names := t.tenants()
	if len(names) == 0 {
		return t.everyone(ctx)
	}
	begun := map[string]*compilation{}
	for _, tenant := range names {
		if t.problems[tenant] != nil {
			continue
		}
		one, err := t.want(t.Archive.ForTenant(tenant))
		if err != nil {
			t.problems[tenant] = err
			continue
		}
		begun[tenant] = one
	}
	if t.Old == nil {
		t.wait(ctx, begun)
	} else {
		t.waitGrace(ctx, begun)
	}
	s := &Snapshots{tenants: map[string]*Snapshot{}, unavailable: map[string]*Snapshot{}}
	for tenant, one := range begun {
		t.place(s, tenant, one)
	}
	if err := t.rootAtFault(ctx); err != nil {
		return nil, err
	}
	t.fallBack(ctx, s, names, begun)
	return t.joined(s)
}

// tenants lists the tenants of the store. What is wrong in the folder of one is a
// problem of its own.
func (t *attempt) tenants() []string {
	names := t.Archive.Tenants()
	for _, fault := range t.TenantFaults {
		tenant := TenantAt(fault.File)
		own, _ := t.problems[tenant].(faults.List)
		t.problems[tenant] = append(own, fault)
		names = append(names, tenant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *attempt) want(a Archive) (*compilation, error) {
	one, err := t.begin(a)
	if err == nil {
		t.wanted[one] = true
	}
	return one, err
}

// everyone compiles a store without tenants.
func (t *attempt) everyone(ctx context.Context) (*Snapshots, error) {
	one, err := t.want(t.Archive)
	if err != nil {
		return nil, err
	}
	one.wait(ctx)
	compiled, err := one.outcome()
	if err == nil && compiled == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &Snapshots{archive: t.Archive, revision: compiled.revision, everyone: compiled}, nil
}

// wait waits for all compilations.
func (t *attempt) wait(ctx context.Context, begun map[string]*compilation) {
	for _, one := range begun {
		one.wait(ctx)
	}
}

// waitGrace waits for all compilations, but not long.
func (t *attempt) waitGrace(ctx context.Context, begun map[string]*compilation) {
	ctx, cancel := context.WithTimeout(ctx, min(t.Grace, t.deadline))
	defer cancel()
	t.wait(ctx, begun)
}

// place puts a tenant's new snapshot into the store or, while it is not known
// what comes of it, the last, unless that has another root: what this one forbids
// counts for all tenants at once. What is wrong with it is a problem.
func (t *attempt) place(s *Snapshots, tenant string, one *compilation) {
	compiled, err := one.outcome()
	if compiled != nil {
		err = t.guard(compiled, tenant)
	}
	switch {
	case err != nil:
		t.problems[tenant] = err
	case compiled != nil:
		s.tenants[tenant] = compiled
	default:
		t.pending[one] = true
		t.problems[tenant] = fmt.Errorf("tenant %s: its policies are being compiled", tenant)
		if before := t.Old.answering(tenant); before != nil && before.archive.sameRoot(t.Archive) {
			s.tenants[tenant] = before
		}
	}
}

// last returns what has answered a tenant so far, or did before it was
// unavailable; nil for nothing.
func (t *attempt) last(tenant string) *Snapshot {
	if now := t.Old.answering(tenant); now != nil || t.Old == nil {
		return now
	}
	return t.Old.unavailable[tenant]
}

// fallBack has tenants without a snapshot answered by their last good files. Where
// they do not compile with the root as it is now, or not yet, the tenant is not
// answered: what it had with the old root could be what the new one forbids.
func (t *attempt) fallBack(ctx context.Context, s *Snapshots, names []string, own map[string]*compilation) {
	begun := map[string]*compilation{}
	for _, tenant := range names {
		if s.tenants[tenant] != nil {
			continue
		}
		before := t.last(tenant)
		s.unavailable[tenant] = before
		if before == nil {
			continue
		}
		if one, err := t.want(t.Archive.withTenant(tenant, before.archive)); err == nil {
			begun[tenant] = one
		}
	}
	t.waitGrace(ctx, begun)
	for tenant, one := range begun {
		t.placeLast(s, tenant, one, one == own[tenant])
	}
}

// placeLast puts what comes of a tenant's last good files into the store. They may
// be its own of now, of which it is known only now what comes of them.
func (t *attempt) placeLast(s *Snapshots, tenant string, one *compilation, own bool) {
	compiled, err := one.outcome()
	if own && (err != nil || compiled != nil) {
		delete(t.pending, one)
		delete(t.problems, tenant)
	}
	switch {
	case err != nil && own:
		t.problems[tenant] = err
	case err != nil:
	case compiled == nil:
		t.pending[one] = true
	default:
		s.tenants[tenant] = compiled
		delete(s.unavailable, tenant)
	}
}

// guard refuses what an accident could have made of a tenant's files.
func (t *attempt) guard(now *Snapshot, tenant string) error {
	before := t.last(tenant)
	if before == nil || t.MayShrink {
		return nil
	}
	return checkTenantLosses(before, now, tenant, t.Strict)
}

// rootAtFault returns what is wrong with the whole store: if the root does not
// compile alone, it is not a tenant that is at fault.
func (t *attempt) rootAtFault(ctx context.Context) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(t.problems)), isFaults) {
		return nil
	}
	root, err := t.want(t.Archive.ForTenant(""))
	if err != nil {
		return err
	}
	root.wait(ctx)
	if _, err := root.outcome(); err == nil {
		return nil
	}
	return t.told()
}

func isFaults(err error) bool {
	var found faults.List
	return errors.As(err, &found)
}

// told joins what is wrong with tenants.
func (t *attempt) told() error {
	var found faults.List
	var all []error
	for _, tenant := range slices.Sorted(maps.Keys(t.problems)) {
		var own faults.List
		if errors.As(t.problems[tenant], &own) {
			found = append(found, own...)
		} else {
			all = append(all, t.problems[tenant])
		}
	}
	if sorted := found.Unique().Sorted(); sorted != nil {
		all = append(all, sorted)
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// joined names the store of what is in force.
func (t *attempt) joined(s *Snapshots) (*Snapshots, error) {
	s.archive = t.Archive.ForTenant("")
	for tenant, compiled := range s.tenants {
		for file, text := range compiled.archive {
			if TenantOf(file) == tenant {
				s.archive[file] = text
			}
		}
	}
	manifest, err := decisionlog.Manifest(s.archive)
	if err != nil {
		return nil, faults.List{{File: ".", Message: err.Error()}}
	}
	s.revision = decisionlog.Revision(manifest)
	if len(t.problems) == 0 {
		return s, nil
	}
	if len(s.tenants) == 0 {
		return nil, t.told()
	}
	return s, &partly{t.told()}
}
