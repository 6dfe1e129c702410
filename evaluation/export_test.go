package evaluation

import (
	"context"
	"maps"
	"reflect"

	"github.com/cedar-policy/cedar-go"
)

// DecideCedar decides a request that is in Cedar's form already, as some are
// that AuthZEN cannot say.
func (s *Snapshot) DecideCedar(r cedar.Request) *Outcome {
	q := &query{request: r, store: s.store}
	decision, diagnostic := cedar.Authorize(s.policies.candidates(q), q, q.request)
	return s.outcome(bool(decision), diagnostic, &query{})
}

// Leaks are mistakes by which one tenant's requests would be decided with
// something of another's.
var Leaks = map[string]func(own, other Snapshot) Snapshot{
	"the wrong snapshot":  func(_, other Snapshot) Snapshot { return other },
	"the entities shared": func(own, other Snapshot) Snapshot { own.store = other.store; return own },
	"the policies shared": func(own, other Snapshot) Snapshot { own.policies = other.policies; return own },
	"the settings shared": func(own, other Snapshot) Snapshot { own.settings = other.settings; return own },
}

// Leak plants a mistake into what is in force, if it has both tenants.
func (e *Engine) Leak(leak func(own, other Snapshot) Snapshot, tenant, other string) {
	leaky := *e.current.Load()
	if leaky.tenants[tenant] == nil || leaky.tenants[other] == nil {
		return
	}
	snapshot := leak(*leaky.tenants[tenant], *leaky.tenants[other])
	leaky.tenants = maps.Clone(leaky.tenants)
	leaky.tenants[tenant] = &snapshot
	e.current.Store(&leaky)
}

// BreakShadow has the shadow panic whenever it decides.
func (e *Engine) BreakShadow() { e.shadow.Store(&Snapshots{everyone: &Snapshot{}}) }

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
