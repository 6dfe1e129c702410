package evaluation

import (
	"context"
	"reflect"
	"slices"

	"github.com/cedar-policy/cedar-go"
)

// Leaks are mistakes by which one tenant's requests would be decided with
// something of another's.
var Leaks = map[string]func(own, other Snapshot) Snapshot{
	"the wrong snapshot":  func(_, other Snapshot) Snapshot { return other },
	"the entities shared": func(own, other Snapshot) Snapshot { own.store = other.store; return own },
	"the policies shared": func(own, other Snapshot) Snapshot { own.policies = other.policies; return own },
	"the settings shared": func(own, other Snapshot) Snapshot { own.settings = other.settings; return own },
}

// Leak has the engine compile a tenant's part of a store with a mistake, if the
// store has both tenants; a nil leak is none.
func (e *Engine) Leak(leak func(own, other Snapshot) Snapshot, store Archive, tenant, other string) {
	e.compiler = NewCompiler(0, func(ctx context.Context, a Archive) (*Snapshot, error) {
		own, err := CompileContext(ctx, a)
		if leak == nil || err != nil || !slices.Contains(a.tenants(), tenant) || !slices.Contains(store.tenants(), other) {
			return own, err
		}
		theirs, err := CompileContext(ctx, store.of(other))
		if err != nil {
			return own, nil
		}
		leaky := leak(*own, *theirs)
		return &leaky, nil
	})
}

// BreakShadow has a shadow panic whenever it decides.
func (e *Engine) BreakShadow() error {
	broken, err := CompileStore(Archive{"a.cedar": []byte(`@id("a") permit (principal, action, resource);`)})
	if err != nil {
		return err
	}
	for _, snapshot := range broken.all() {
		snapshot.store = nil
	}
	e.shadow.Store(broken)
	return nil
}

// NewForesight returns what says whether a search goes on.
func NewForesight(ctx context.Context, candidates, results int) func(ctx context.Context, decided, results int) error {
	f := newForesight(ctx, candidates, results)
	return f.look
}

// CompileUnchecked is [CompileStore] without the check of what tenants add.
func CompileUnchecked(a Archive) (*Snapshots, error) { return CompileLogged(a) }

// OnCompile has the engine call a function before it compiles an archive.
func (e *Engine) OnCompile(before func(Archive)) {
	e.compiler = NewCompiler(e.config.CompileDeadline, func(ctx context.Context, a Archive) (*Snapshot, error) {
		before(a)
		return CompileContext(ctx, a)
	})
}

// SettingsType is what config.yaml is decoded into.
var SettingsType = reflect.TypeFor[settings]()

// DecideCedar decides a request that is in Cedar's form already, as some are
// that AuthZEN cannot say.
func DecideCedar(s *Snapshot, r cedar.Request) *Outcome {
	return s.decide(&query{request: r, store: s.store})
}
