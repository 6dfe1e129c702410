package pdp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// Causes of a policy load, as the log records them.
const (
	causeStart   = "start"
	causeChange  = "change"
	causeRequest = "request" // SIGHUP or the admin listener
)

// errEmbedded means that the policies are part of the program.
var errEmbedded = errors.New("the embedded example policies do not change")

// A policyLoader loads the revisions of a policy store into the engine.
type policyLoader struct {
	name      string             // kind of policies in the program's log
	store     *policystore.Store // nil for policies that cannot change
	log       *slog.Logger
	first     *policystore.State
	requested atomic.Bool
	now       func() time.Time // nil means time.Now
	load      func(context.Context, evaluation.Change) (evaluation.Status, error)
	refuse    func(ctx context.Context, cause string, err error) // records that the store could not be read
	loaded    func()                                             // runs after each change that is in force; nil for none
}

// newPolicyLoader loads the configured policies for the first time.
func newPolicyLoader(ctx context.Context, engine *evaluation.Engine, c Config) (*policyLoader, error) {
	if c.PolicyDir == "" {
		return loadEmbedded(ctx, engine, c.Policies)
	}
	floor, err := engine.Floor(ctx)
	if err != nil {
		return nil, err
	}
	s := &policyLoader{name: "policies", log: c.Log, load: engine.Reload, refuse: engine.ReloadFailed}
	return s, s.open(ctx, c.PolicyDir, policystore.Config{RequireManifest: c.RequireManifest, ManifestKey: c.ManifestKey, MinVersion: floor})
}

// newShadowLoader loads the configured shadow policies, if any. They need no manifest, because they
// are never enforced.
func newShadowLoader(ctx context.Context, engine *evaluation.Engine, c Config) (*policyLoader, error) {
	if c.ShadowDir == "" {
		return &policyLoader{}, nil
	}
	s := &policyLoader{name: "shadow policies", log: c.Log, load: engine.ReloadShadow, refuse: engine.ShadowFailed}
	return s, s.open(ctx, c.ShadowDir, policystore.Config{})
}

// loadEmbedded loads a policy store that cannot change and therefore must be valid.
func loadEmbedded(ctx context.Context, engine *evaluation.Engine, store fs.FS) (*policyLoader, error) {
	archive, err := policystore.Read(store)
	if err != nil {
		return nil, err
	}
	_, err = engine.Reload(ctx, evaluation.Change{Archive: archive, Cause: causeStart})
	return &policyLoader{}, err
}

// open loads the policy store of a directory. Until the store is valid, the service is not ready. A
// missing directory is an error.
func (s *policyLoader) open(ctx context.Context, dir string, c policystore.Config) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("policy store: %w", err)
	}
	c.Failed, c.Log = func(err error) { s.failed(ctx, causeChange, err) }, s.log
	s.store = policystore.New(dir, c)
	state, err := s.store.Read()
	if err != nil {
		s.failed(ctx, causeStart, err)
		return nil
	}
	s.first = state
	_ = s.apply(ctx, causeStart, state) // the log and the status have the error
	return nil
}

// follow applies changes of the store until ctx ends.
func (s *policyLoader) follow(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	s.store.Watch(ctx, s.first, func(ctx context.Context, state *policystore.State) error {
		cause := causeChange
		if s.requested.Swap(false) {
			cause = causeRequest
		}
		return s.apply(ctx, cause, state)
	})
	return nil
}

// reload reads and applies the store now.
func (s *policyLoader) reload(ctx context.Context) error {
	if s.store == nil {
		return errEmbedded
	}
	s.requested.Store(true)
	return s.store.Reload(ctx)
}

func (s *policyLoader) apply(ctx context.Context, cause string, state *policystore.State) error {
	change := evaluation.Change{Archive: state.Archive, TenantFaults: state.TenantFaults, Cause: cause}
	if m := state.Manifest; m != nil {
		change.Shrink, change.Version = m.AllowShrink, m.Version
	}
	status, err := s.load(ctx, change)
	if errors.Is(err, snapshot.ErrInPart) {
		s.log.Error(s.name+" loaded in part", "cause", cause, "in_force", status.Revision, "error", err)
		return errors.Join(err, policystore.ErrInPart)
	}
	if err != nil {
		s.log.Error(s.name+" not loaded", "cause", cause, "in_force", status.Revision, "error", err)
		if errors.Is(err, decisionlog.ErrUnavailable) {
			err = errors.Join(err, policystore.ErrRetry)
		}
		return err
	}
	s.log.Info(s.name+" loaded", "cause", cause, "revision", status.Revision,
		"policies", status.Policies, "entities", status.Entities, "tenants", len(status.Tenants))
	if s.loaded != nil {
		s.loaded()
	}
	return nil
}

func (s *policyLoader) failed(ctx context.Context, cause string, err error) {
	s.log.Error(s.name+" not read", "cause", cause, "error", err)
	s.refuse(ctx, cause, err)
}

func (s *policyLoader) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// overdue is the age from which a pending change is reported.
const overdue = 3 * time.Second

// pending returns how long a change of the policy store that concerns a caller has been neither active
// nor refused. Up to overdue it returns 0. It does not block on reads or compilation.
func (s *policyLoader) pending(engine *evaluation.Engine, v view) time.Duration {
	since := engine.Pending()
	if status := engine.Status(); status.InPart != nil && !v.stale(status) {
		since = time.Time{} // only policies of other tenants are being compiled
	}
	if s.store != nil {
		if unread := s.store.Pending(); since.IsZero() || !unread.IsZero() && unread.Before(since) {
			since = unread
		}
	}
	if since.IsZero() {
		return 0
	}
	if age := s.time().Sub(since); age >= overdue {
		return age
	}
	return 0
}
