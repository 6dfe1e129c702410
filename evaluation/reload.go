package evaluation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Change is a policy store that is to come into force.
type Change struct {
	Archive snapshot.Archive
	Cause   string // why now: start, change, signal, admin
	Shrink  bool   // the operator says that policies may go
	Version int64  // of the store's manifest; 0 without one

	// TenantFaults are what is wrong in tenants' folders beside what the archive
	// shows. Such a tenant keeps its last good files.
	TenantFaults faults.List
}

// A seat is where a policy store takes its place: in force, or beside the one
// that is, as its shadow.
type slot struct {
	store     string // what the log calls the store; "" where it comes into force
	snapshots *atomic.Pointer[snapshot.Snapshots]
	status    *atomic.Pointer[Status]

	changed    *atomic.Pointer[time.Time] // since when a change has not been in force
	generation *atomic.Int64              // counts reloads
}

const shadowStore = "shadow"

func (e *Engine) activeSlot() slot { return slot{"", &e.current, &e.status, &e.changed, &e.generation} }
func (e *Engine) shadowSlot() slot {
	return slot{shadowStore, &e.shadow, &e.shadowStatus, &e.shadowChanged, &e.shadowGeneration}
}

func (s slot) get() Status {
	if status := s.status.Load(); status != nil {
		return *status
	}
	return Status{}
}

// Status returns the engine's status.
func (e *Engine) Status() Status { return e.activeSlot().get() }

// Reload compiles a policy store and puts it into force, or leaves in force
// what is. Either way the attempt is an entry of the log, and it is there
// before the first request is decided by the new policies.
func (e *Engine) Reload(ctx context.Context, c Change) (Status, error) {
	return e.reload(ctx, e.activeSlot(), c)
}

func (e *Engine) reload(ctx context.Context, to slot, c Change) (Status, error) {
	to.changed.CompareAndSwap(nil, new(e.config.Now().UTC()))
	e.reloading.Lock()
	defer e.reloading.Unlock()
	return e.reloadLocked(ctx, to, c, snapshot.CompileGrace)
}

// reloadLocked is reload for who holds e.reloading.
func (e *Engine) reloadLocked(ctx context.Context, to slot, c Change, grace time.Duration) (Status, error) {
	start := e.config.Now().UTC()
	s, pending, err := e.compiler.Compile(ctx, snapshot.Upgrade{
		Archive: c.Archive, TenantFaults: c.TenantFaults, Old: to.snapshots.Load(),
		MayShrink: c.Shrink || to.store != "", Strict: e.config.GuardShrink, Grace: grace,
	})
	to.generation.Add(1)
	if pending != nil {
		defer e.retryPending(ctx, to, c, pending)
	} else {
		defer to.changed.Store(nil)
	}
	if s == nil {
		return e.refuse(ctx, to, c.Cause, start, err)
	}
	return e.install(ctx, to, c, start, s, err)
}

// retryPending reloads a store when more of it is compiled, unless another came: also
// one that was on its way when it was compiled.
func (e *Engine) retryPending(ctx context.Context, to slot, c Change, pending snapshot.Pending) {
	generation := to.generation.Load()
	go func() {
		pending.Wait(ctx)
		e.reloading.Lock()
		defer e.reloading.Unlock()
		if ctx.Err() == nil && to.generation.Load() == generation {
			_, _ = e.reloadLocked(ctx, to, c, snapshot.LateGrace) // it is in the log, and the status has it
		}
	}()
}

// install puts snapshots into force, with what keeps tenants from theirs.
func (e *Engine) install(ctx context.Context, to slot, c Change, start time.Time, s *snapshot.Snapshots, partly error) (Status, error) {
	var err error
	if to.store == "" {
		err = e.checkLosses(s, c.Shrink)
	}
	if err == nil {
		err = e.keepArchives(s, to.snapshots.Load())
	}
	if err == nil && to.store == "" {
		err = e.raiseFloor(ctx, c.Version)
	}
	if err == nil {
		err = e.recordReload(ctx, to, reloadRequest{Cause: c.Cause, Version: c.Version}, start, s.Revision(), partly)
	}
	if err != nil {
		return e.refuse(ctx, to, c.Cause, start, err)
	}
	to.snapshots.Store(s)
	status := Status{Revision: s.Revision(), Since: start, Tenants: s.Tenants(), Attempt: start, TookUS: e.config.Now().Sub(start).Microseconds()}
	status.Policies, status.Entities = s.Size()
	if partly != nil {
		status.Stale, status.Problem = true, partly.Error()
	}
	to.status.Store(&status)
	return status, partly
}

// Pending says since when there has been a change that is neither in force nor
// refused; the zero time for none.
func (e *Engine) Pending() time.Time {
	if since := e.activeSlot().changed.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// ReloadFailed notes that the policy store could not even be read.
func (e *Engine) ReloadFailed(ctx context.Context, cause string, err error) {
	e.reloadFailed(ctx, e.activeSlot(), cause, err)
}

func (e *Engine) reloadFailed(ctx context.Context, to slot, cause string, err error) {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	_, _ = e.refuse(ctx, to, cause, e.config.Now().UTC(), err)
}

// refuse leaves in its place what is there, and says why in status and log.
func (e *Engine) refuse(ctx context.Context, to slot, cause string, start time.Time, why error) (Status, error) {
	status := to.get()
	status.Stale, status.Problem = true, why.Error()
	status.Attempt, status.TookUS = start, e.config.Now().Sub(start).Microseconds()
	to.status.Store(&status)
	if err := e.recordReload(ctx, to, reloadRequest{Cause: cause}, start, status.Revision, why); err != nil {
		return status, errors.Join(why, err)
	}
	return status, why
}

// checkLosses refuses a store that an accident could have made.
func (e *Engine) checkLosses(s *snapshot.Snapshots, mayShrink bool) error {
	old := e.current.Load()
	if old == nil || mayShrink {
		return nil
	}
	return snapshot.CheckLosses(old, s, e.config.GuardShrink)
}

// keepArchives puts the archives of a store into the log that the old one did not
// have.
func (e *Engine) keepArchives(s, old *snapshot.Snapshots) error {
	for _, archive := range s.ArchivesBeyond(old) {
		if _, err := e.log.KeepArchive(archive); err != nil {
			return fmt.Errorf("keep policies: %w", err)
		}
	}
	return nil
}

// recordReload records an attempt. Decision says whether the store took its
// place, revision what is there now.
func (e *Engine) recordReload(ctx context.Context, to slot, what reloadRequest, start time.Time, revision string, why error) error {
	if to.store != "" {
		what.Store, what.Revision = to.store, revision
		revision = e.Status().Revision
	}
	request, err := json.Marshal(what)
	if err != nil {
		return err
	}
	result := decisionlog.Result{Decision: why == nil || errors.Is(why, snapshot.ErrInPart)}
	var found faults.List
	switch {
	case errors.As(why, &found):
		for _, fault := range found {
			result.Errors = append(result.Errors, decisionlog.PolicyError{Message: fault.Error()})
		}
	case why != nil:
		result.Errors = []decisionlog.PolicyError{{Message: why.Error()}}
	}
	entry := decisionlog.Entry{
		ID:            NewDecisionID(),
		Time:          start,
		Kind:          decisionlog.KindReload,
		Request:       request,
		Result:        &result,
		Revision:      revision,
		LatencyMicros: e.config.Now().Sub(start).Microseconds(),
	}
	if err := e.log.Append(ctx, &entry); err != nil {
		return fmt.Errorf("record reload: %w", err)
	}
	return nil
}
