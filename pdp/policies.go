package pdp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policystore"
)

// Why a policy store comes into force, in the log.
const (
	causeStart   = "start"
	causeChange  = "change"
	causeRequest = "request" // SIGHUP or the admin listener
)

// errEmbedded means that the policies are part of the program.
var errEmbedded = errors.New("the embedded example policies do not change")

// A supply keeps the engine on what a policy store holds.
type supply struct {
	engine *evaluation.Engine
	store  *policystore.Store // nil for policies that do not change
	log    *slog.Logger
	first  *policystore.State
	asked  atomic.Bool
}

// supplyPolicies puts the configured policies into force for the first time.
func supplyPolicies(ctx context.Context, engine *evaluation.Engine, c Config) (*supply, error) {
	if c.PolicyDir == "" {
		return loadEmbedded(ctx, engine, c.Policies)
	}
	return loadDirectory(ctx, engine, c)
}

// loadEmbedded puts a policy store into force that cannot change, and so has
// to be valid.
func loadEmbedded(ctx context.Context, engine *evaluation.Engine, store fs.FS) (*supply, error) {
	archive, err := policystore.Read(store)
	if err != nil {
		return nil, err
	}
	_, err = engine.Reload(ctx, evaluation.Change{Archive: archive, Cause: causeStart})
	return &supply{engine: engine}, err
}

// loadDirectory puts the policy store of a directory into force. Without a
// valid one the service is not ready until there is; a directory that is not
// there is a mistake.
func loadDirectory(ctx context.Context, engine *evaluation.Engine, c Config) (*supply, error) {
	if _, err := os.Stat(c.PolicyDir); err != nil {
		return nil, fmt.Errorf("policy store: %w", err)
	}
	s := &supply{engine: engine, log: c.Log}
	s.store = policystore.New(c.PolicyDir, policystore.Config{
		RequireManifest: c.RequireManifest,
		ManifestKey:     c.ManifestKey,
		Failed:          func(err error) { s.failed(ctx, causeChange, err) },
		Log:             c.Log,
	})
	state, err := s.store.Read()
	if err != nil {
		s.failed(ctx, causeStart, err)
		return s, nil
	}
	s.first = state
	_ = s.apply(ctx, causeStart, state) // it is in the log, and the status has it
	return s, nil
}

// follow applies what changes in the store until ctx ends.
func (s *supply) follow(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	s.store.Watch(ctx, s.first, func(ctx context.Context, state *policystore.State) error {
		cause := causeChange
		if s.asked.Swap(false) {
			cause = causeRequest
		}
		return s.apply(ctx, cause, state)
	})
	return nil
}

// reload reads and applies the store now.
func (s *supply) reload(ctx context.Context) error {
	if s.store == nil {
		return errEmbedded
	}
	s.asked.Store(true)
	return s.store.Reload(ctx)
}

// reloadOn reloads whenever a signal comes.
func (s *supply) reloadOn(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			_ = s.reload(ctx) // it is in the log
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *supply) apply(ctx context.Context, cause string, state *policystore.State) error {
	status, err := s.engine.Reload(ctx, evaluation.Change{
		Archive: state.Archive,
		Cause:   cause,
		Shrink:  state.Manifest != nil && state.Manifest.AllowShrink,
	})
	if err != nil {
		s.log.Error("policies not loaded", "cause", cause, "in_force", status.Revision, "error", err)
		if errors.Is(err, decisionlog.ErrUnavailable) {
			err = errors.Join(err, policystore.ErrRetry)
		}
		return err
	}
	s.log.Info("policies loaded", "cause", cause, "revision", status.Revision,
		"policies", status.Policies, "entities", status.Entities, "tenants", len(status.Tenants))
	return nil
}

func (s *supply) failed(ctx context.Context, cause string, err error) {
	s.log.Error("policy store not read", "cause", cause, "error", err)
	s.engine.ReloadFailed(ctx, cause, err)
}
