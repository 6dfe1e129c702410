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

// ErrInPart means that the policy store is active except for the changes of some tenants. Those
// tenants use their last good files with the new root.
var ErrInPart = errors.New("a part of the policy store was not applied")

const (
	CompileDeadline = 30 * time.Second // for one snapshot

	// CompileGrace is how long a reload waits for the slowest tenant. It then waits that long again for
	// the slowest tenant that falls back to its last good files. A new root applies to every tenant
	// after that, and the service refuses requests to a tenant that has not compiled.
	CompileGrace = time.Second
	// LateGrace replaces CompileGrace once some tenants are late, because others may be late as well.
	LateGrace = CompileGrace / 4
)

// A compilation compiles one snapshot in the background. A slow one does not delay other work, and
// no archive is compiled twice at the same time.
type compilation struct {
	done     chan struct{}
	snapshot *Snapshot // set when done
	err      error
	overdue  context.Context // ends at the deadline
}

// outcome returns the result of a compilation. It returns ErrSlow after the deadline, and neither a
// snapshot nor an error while the compilation runs.
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

// wait blocks until there is an outcome or ctx ends.
func (c *compilation) wait(ctx context.Context) {
	select {
	case <-c.done:
	case <-c.overdue.Done():
	case <-ctx.Done():
	}
}

// A Compiler compiles policy stores. It caches the compilations of the stores that last became
// active, by revision, so that the same files are compiled once.
type Compiler struct {
	compile  func(context.Context, Archive) (*Snapshot, error)
	deadline time.Duration

	mu  sync.Mutex
	all map[string]*compilation
}

// NewCompiler returns a Compiler with a deadline for each snapshot. A nil compile means
// [CompileContext].
func NewCompiler(deadline time.Duration, compile func(context.Context, Archive) (*Snapshot, error)) *Compiler {
	if compile == nil {
		compile = CompileContext
	}
	return &Compiler{compile: compile, deadline: cmp.Or(deadline, CompileDeadline), all: map[string]*compilation{}}
}

// begin starts to compile an archive, or returns the compilation in the cache.
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
		if ctx.Err() != nil { // the caller has already seen ErrSlow
			begun.snapshot, begun.err = nil, ErrSlow
		}
	}()
	return begun, nil
}

// unharmed compiles an archive. It turns a panic of the compiler into an error.
func (c *Compiler) unharmed(ctx context.Context, a Archive) (s *Snapshot, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s, err = nil, fmt.Errorf("compile policy store: panic: %v", fault)
		}
	}()
	return c.compile(ctx, a)
}

// keep removes all compilations from the cache except the wanted and the running ones. A slow one
// starts again when it is next wanted, once its ErrSlow has been reported.
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

// A PartError is [ErrInPart] with the problems that keep the other changes from becoming active.
type PartError struct {
	Tenants map[string]error // the problem of each tenant that is kept back

	all error
}

func (p *PartError) Error() string   { return p.all.Error() }
func (p *PartError) Unwrap() []error { return []error{ErrInPart, p.all} }

// An Upgrade is a policy store that replaces the active one.
type Upgrade struct {
	Archive      Archive
	TenantFaults faults.List   // faults in tenants' folders that the archive does not show
	Old          *Snapshots    // the active store; nil for none
	MayShrink    bool          // a tenant may lose policies
	Strict       bool          // see Config.GuardShrink
	Grace        time.Duration // how long to wait for slow tenants if a store is active
}

// Pending holds the compilations that continue after [Compiler.Compile] has returned.
type Pending map[*compilation]bool

// Wait blocks until one of them ends or ctx ends.
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

// Compile compiles a store, tenant by tenant, and returns the snapshots to activate. With an error
// that is a [PartError], the snapshots omit the changes that keep some tenants back. Pending is nil if
// no compilation continues.
func (c *Compiler) Compile(ctx context.Context, u Upgrade) (*Snapshots, Pending, error) {
	t := attempt{Compiler: c, Upgrade: u, wanted: map[*compilation]bool{}, problems: map[string]error{}, pending: Pending{}}
	s, err := t.run(ctx)
	c.keep(t.wanted, t.pending)
	if len(t.pending) == 0 {
		return s, nil, err
	}
	return s, t.pending, err
}

// An attempt is the state of one call of [Compiler.Compile].
type attempt struct {
	*Compiler
	Upgrade

	wanted   map[*compilation]bool
	problems map[string]error // by tenant
	pending  Pending
}

// run returns the snapshots to activate. An error next to them is a [PartError].
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

// tenants lists the tenants of the store. A fault in a tenant's folder is a problem of that tenant.
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

// wait blocks until all compilations have ended.
func (t *attempt) wait(ctx context.Context, begun map[string]*compilation) {
	for _, one := range begun {
		one.wait(ctx)
	}
}

// waitGrace waits for all compilations, for the grace period at most.
func (t *attempt) waitGrace(ctx context.Context, begun map[string]*compilation) {
	ctx, cancel := context.WithTimeout(ctx, min(t.Grace, t.deadline))
	defer cancel()
	t.wait(ctx, begun)
}

// place adds a tenant's new snapshot to the store. While the compilation runs, it adds the last
// snapshot, unless that has another root: the forbids of a new root apply to all tenants at once. A
// compile error becomes a problem of the tenant.
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

// last returns the tenant's active snapshot or, if the tenant is unavailable, its previous one. It
// returns nil for none.
func (t *attempt) last(tenant string) *Snapshot {
	if now := t.Old.answering(tenant); now != nil || t.Old == nil {
		return now
	}
	return t.Old.unavailable[tenant]
}

// fallBack activates the last good files of tenants without a snapshot. If these do not compile with
// the new root, or not in time, the tenant becomes unavailable. Its snapshot with the old root could
// permit what the new root forbids.
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

// placeLast adds the result of a tenant's last good files to the store. With own, these are the
// tenant's current files, which have only now compiled.
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

// guard refuses changes to a tenant's files that look like an accident.
func (t *attempt) guard(now *Snapshot, tenant string) error {
	before := t.last(tenant)
	if before == nil || t.MayShrink {
		return nil
	}
	return checkTenantLosses(before, now, tenant, t.Strict)
}

// rootAtFault returns the error of the whole store. If the root does not compile alone, no tenant is
// at fault.
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

// told joins the tenants' problems.
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

// joined computes the revision of the active files.
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
	return s, &PartError{t.problems, t.told()}
}
