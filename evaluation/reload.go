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

// A Change is a policy store to activate.
type Change struct {
	Archive snapshot.Archive
	Cause   string // the trigger: start, change, signal, admin
	Shrink  bool   // the operator allows a loss of policies
	Version int64  // of the store's manifest; 0 without one

	// TenantFaults lists faults in tenants' folders that the archive does not show. Such a tenant keeps its
	// last good files.
	TenantFaults faults.List
}

// A slot holds a policy store: the active one or its shadow.
type slot struct {
	store     string // name of the store in the log; "" for the active one
	snapshots *atomic.Pointer[snapshot.Snapshots]
	status    *atomic.Pointer[Status]

	changed    *atomic.Pointer[time.Time] // the time of the first change that is not active
	generation *atomic.Int64              // number of reloads
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

// Reload compiles a policy store and activates it. On failure the active store stays. Either way it
// records the attempt in the log before the new policies decide the first request.
func (e *Engine) Reload(ctx context.Context, c Change) (Status, error) {
	return e.reload(ctx, e.activeSlot(), c)
}

func (e *Engine) reload(ctx context.Context, to slot, c Change) (Status, error) {
	to.changed.CompareAndSwap(nil, new(e.config.Now().UTC()))
	e.reloading.Lock()
	defer e.reloading.Unlock()
	return e.reloadLocked(ctx, to, c, snapshot.CompileGrace)
}

// reloadLocked is Reload for callers that hold e.reloading.
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

// retryPending reloads a store when more of it has compiled. It does nothing if another store has been loaded
// since.
func (e *Engine) retryPending(ctx context.Context, to slot, c Change, pending snapshot.Pending) {
	generation := to.generation.Load()
	go func() {
		pending.Wait(ctx)
		e.reloading.Lock()
		defer e.reloading.Unlock()
		if ctx.Err() == nil && to.generation.Load() == generation {
			_, _ = e.reloadLocked(ctx, to, c, snapshot.LateGrace) // the log and the status have the error
		}
	}()
}

// install activates snapshots. partly holds the problems of tenants that keep their old ones.
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
	if before := to.status.Load(); before != nil && before.Revision == status.Revision {
		status.Since = before.Since // it was never out of force
	}
	status.Policies, status.Entities = s.Size()
	if partly != nil {
		status.refused(partly)
	}
	to.status.Store(&status)
	return status, partly
}

// Pending returns the time since which a change is neither active nor refused, or the zero time.
func (e *Engine) Pending() time.Time {
	if since := e.activeSlot().changed.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// ReloadFailed records that the policy store could not be read.
func (e *Engine) ReloadFailed(ctx context.Context, cause string, err error) {
	e.reloadFailed(ctx, e.activeSlot(), cause, err)
}

func (e *Engine) reloadFailed(ctx context.Context, to slot, cause string, err error) {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	_, _ = e.refuse(ctx, to, cause, e.config.Now().UTC(), err)
}

// refuse keeps the store in the slot, and records why in the status and the log.
func (e *Engine) refuse(ctx context.Context, to slot, cause string, start time.Time, why error) (Status, error) {
	status := to.get()
	status.refused(why)
	status.Attempt, status.TookUS = start, e.config.Now().Sub(start).Microseconds()
	to.status.Store(&status)
	if err := e.recordReload(ctx, to, reloadRequest{Cause: cause}, start, status.Revision, why); err != nil {
		return status, errors.Join(why, err)
	}
	return status, why
}

// refused notes why a change is not active, or a part of it.
func (s *Status) refused(why error) {
	s.Stale, s.Problem, s.Faults = true, why.Error(), faultsIn(why)
	s.InPart, _ = errors.AsType[*snapshot.PartError](why)
}

// faultsIn returns the faults that an error lists, or nil.
func faultsIn(err error) faults.List {
	found, _ := errors.AsType[faults.List](err)
	return found
}

// checkLosses refuses a store whose losses look like an accident.
func (e *Engine) checkLosses(s *snapshot.Snapshots, mayShrink bool) error {
	old := e.current.Load()
	if old == nil || mayShrink {
		return nil
	}
	return snapshot.CheckLosses(old, s, e.config.GuardShrink)
}

// keepArchives writes to the log the archives of s that old does not have.
func (e *Engine) keepArchives(s, old *snapshot.Snapshots) error {
	for _, archive := range s.ArchivesBeyond(old) {
		if _, err := e.log.KeepArchive(archive); err != nil {
			return fmt.Errorf("keep policies: %w", err)
		}
	}
	return nil
}

// recordReload records an attempt. Decision is whether the store took the slot, and revision is the one
// in the slot now.
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
	for _, fault := range faultsIn(why) {
		result.Errors = append(result.Errors, decisionlog.PolicyError{Message: fault.Error()})
	}
	if why != nil && result.Errors == nil {
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
	size := e.log.Head().Size
	if err := e.log.Append(ctx, &entry); err != nil {
		return fmt.Errorf("record reload: %w", err)
	}
	e.reloads.add(newReload(&entry, what, size))
	return nil
}
