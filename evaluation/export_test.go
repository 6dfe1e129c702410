package evaluation

import (
	"context"
	"reflect"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// Leaks are mistakes by which one tenant's requests would be decided with
// something of another's.
var Leaks = map[string]func(own, other snapshot.Snapshot) snapshot.Snapshot{
	"the wrong snapshot":  func(_, other snapshot.Snapshot) snapshot.Snapshot { return other },
	"the entities shared": func(own, other snapshot.Snapshot) snapshot.Snapshot { own.Entities = other.Entities; return own },
	"the policies shared": func(own, other snapshot.Snapshot) snapshot.Snapshot { own.Policies = other.Policies; return own },
	"the settings shared": func(own, other snapshot.Snapshot) snapshot.Snapshot { own.Settings = other.Settings; return own },
}

// Leak has the engine compile a tenant's part of a store with a mistake, if the
// store has both tenants; a nil leak is none.
func (e *Engine) Leak(leak func(own, other snapshot.Snapshot) snapshot.Snapshot, store snapshot.Archive, tenant, other string) {
	e.compiler = snapshot.NewCompiler(0, func(ctx context.Context, a snapshot.Archive) (*snapshot.Snapshot, error) {
		own, err := snapshot.CompileContext(ctx, a)
		if leak == nil || err != nil || !slices.Contains(a.Tenants(), tenant) || !slices.Contains(store.Tenants(), other) {
			return own, err
		}
		theirs, err := snapshot.CompileContext(ctx, store.ForTenant(other))
		if err != nil {
			return own, nil
		}
		leaky := leak(*own, *theirs)
		return &leaky, nil
	})
}

// BreakShadow has a shadow panic whenever it decides.
func (e *Engine) BreakShadow() error {
	broken, err := snapshot.CompileStore(snapshot.Archive{"a.cedar": []byte(`@id("a") permit (principal, action, resource);`)})
	if err != nil {
		return err
	}
	for _, compiled := range broken.All() {
		compiled.Entities = nil
	}
	e.shadow.Store(broken)
	return nil
}

// NewForesight returns what says whether a search goes on.
func NewForesight(ctx context.Context, candidates, results int) func(ctx context.Context, decided, results int) error {
	f := snapshot.NewTimeBudget(ctx, candidates, results)
	return f.Check
}

// CompileUnchecked is [CompileStore] without the check of what tenants add.
func CompileUnchecked(a snapshot.Archive) (*snapshot.Snapshots, error) {
	return snapshot.CompileLogged(a)
}

// OnCompile has the engine call a function before it compiles an archive.
func (e *Engine) OnCompile(before func(snapshot.Archive)) {
	e.compiler = snapshot.NewCompiler(e.config.CompileDeadline, func(ctx context.Context, a snapshot.Archive) (*snapshot.Snapshot, error) {
		before(a)
		return snapshot.CompileContext(ctx, a)
	})
}

// SettingsType is what config.yaml is decoded into.
var SettingsType = reflect.TypeFor[snapshot.Settings]()

// DecideCedar decides a request that is in Cedar's form already, as some are
// that AuthZEN cannot say.
func DecideCedar(s *snapshot.Snapshot, r cedar.Request) *snapshot.Outcome {
	return s.DecideQuery(&snapshot.Query{Request: r, Store: s.Entities})
}
