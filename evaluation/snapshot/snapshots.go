package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// ErrUnknownTenant means that a policy store with tenants does not have the tenant, or that a request
// named none.
var ErrUnknownTenant = errors.New("unknown tenant")

// Snapshots is a compiled policy store. It holds one snapshot for all requests or, if the store has
// tenants, one for each. A tenant's snapshot combines the guardrails in the store's root with the
// tenant's files. Snapshots share no mutable state, so a request of one tenant cannot change a
// decision of another.
type Snapshots struct {
	archive  Archive
	revision string
	everyone *Snapshot // nil with tenants
	tenants  map[string]*Snapshot

	unavailable map[string]*Snapshot // tenants whose files do not compile, with their previous snapshot; nil for none
}

// CompileStore compiles a policy store. Like [Compile] it is all or nothing, over all tenants.
func CompileStore(a Archive) (*Snapshots, error) { return compileTenants(a, false) }

// CompileLogged compiles a revision from the decision log. It accepts what older versions accepted, so
// that past decisions can be explained.
func CompileLogged(a Archive) (*Snapshots, error) { return compileTenants(a, true) }

func compileTenants(a Archive, logged bool) (*Snapshots, error) {
	manifest, err := decisionlog.Manifest(a)
	if err != nil {
		return nil, faults.List{{File: ".", Message: err.Error()}}
	}
	s := &Snapshots{archive: a, revision: decisionlog.Revision(manifest)}
	names := a.Tenants()
	if len(names) == 0 {
		s.everyone, err = compileArchive(context.Background(), a, logged)
		return s, err
	}
	var found faults.List
	s.tenants = make(map[string]*Snapshot, len(names))
	for _, tenant := range names {
		compiled, err := compileArchive(context.Background(), a.ForTenant(tenant), logged)
		var own faults.List
		if errors.As(err, &own) {
			found = append(found, own...)
		}
		s.tenants[tenant] = compiled
	}
	if err := found.Unique().Sorted(); err != nil {
		return nil, err
	}
	return s, nil
}

// Inspect compiles a policy store as [CompileStore] does and returns both snapshots and faults. Do not
// decide with the snapshots of a store with faults. whole reports whether everything could be read.
func Inspect(a Archive) (s *Snapshots, found faults.List, whole bool) {
	manifest, err := decisionlog.Manifest(a)
	if err != nil {
		return nil, faults.List{{File: ".", Message: err.Error()}}, false
	}
	s, whole = &Snapshots{archive: a, revision: decisionlog.Revision(manifest)}, true
	inspect := func(own Archive) *Snapshot {
		one := compileWhole(&compiler{ctx: context.Background(), archive: own})
		found, whole = append(found, one.faults...), whole && !one.partial
		return one.snapshot
	}
	names := a.Tenants()
	if len(names) == 0 {
		s.everyone = inspect(a)
	} else {
		s.tenants = make(map[string]*Snapshot, len(names))
	}
	for _, tenant := range names {
		s.tenants[tenant] = inspect(a.ForTenant(tenant))
	}
	found = found.Unique()
	_ = found.Sorted()
	return s, found, whole
}

// Revision returns "sha256:" and the hash of all files of the store. Without tenants it equals the
// snapshot's revision.
func (s *Snapshots) Revision() string { return s.revision }

// Archive returns the files of the store. Callers must not modify them.
func (s *Snapshots) Archive() Archive { return s.archive }

// For returns the snapshot for a tenant's requests.
func (s *Snapshots) For(tenant string) (*Snapshot, error) {
	if s.everyone != nil {
		return s.everyone, nil
	}
	if compiled, ok := s.tenants[tenant]; ok {
		return compiled, nil
	}
	if _, known := s.unavailable[tenant]; known {
		return nil, fmt.Errorf("%w for tenant %q", ErrNoSnapshot, tenant)
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownTenant, tenant)
}

// answering returns the snapshot for a tenant, or nil. The store may be nil.
func (s *Snapshots) answering(tenant string) *Snapshot {
	if s == nil {
		return nil
	}
	return s.tenants[tenant]
}

// Guardrails returns the snapshot of the store's root alone. Without tenants it decides all requests.
// With tenants it applies to each of them and decides no request.
func (s *Snapshots) Guardrails() (*Snapshot, error) {
	if s.everyone != nil {
		return s.everyone, nil
	}
	return Compile(s.archive.ForTenant(""))
}

// Tenants lists the tenants. The list is empty if the store has none.
func (s *Snapshots) Tenants() []string { return slices.Sorted(maps.Keys(s.tenants)) }

// HasTenants reports whether the store has tenants. A store without tenants decides every request,
// whatever tenant it names.
func (s *Snapshots) HasTenants() bool { return s.everyone == nil }

// All lists the snapshots.
func (s *Snapshots) All() []*Snapshot {
	if s.everyone != nil {
		return []*Snapshot{s.everyone}
	}
	return slices.Collect(maps.Values(s.tenants))
}

// Size returns the number of policies and entities in the store. The guardrails count once for each
// tenant.
func (s *Snapshots) Size() (policies, entities int) {
	for _, compiled := range s.All() {
		p, e := compiled.Size()
		policies, entities = policies+p, entities+e
	}
	return policies, entities
}

// Actions returns the number of actions that the schemas declare. The guardrails' count once for each
// tenant.
func (s *Snapshots) Actions() int {
	actions := 0
	for _, compiled := range s.All() {
		if compiled.Schema != nil {
			actions += len(compiled.Schema.Actions)
		}
	}
	return actions
}

// ArchivesBeyond lists the archives of the store and its snapshots that another store does not have.
// other may be nil.
func (s *Snapshots) ArchivesBeyond(other *Snapshots) []Archive {
	archives := []Archive{s.archive}
	known := map[*Snapshot]bool{}
	if other != nil {
		for _, compiled := range other.All() {
			known[compiled] = true
		}
	}
	for _, compiled := range s.All() {
		if !known[compiled] {
			archives = append(archives, compiled.archive)
		}
	}
	return archives
}

// counted returns the number of policies in the store. It includes the previous policies of unavailable
// tenants, which are late and not lost.
func (s *Snapshots) counted() (policies, forbids int) {
	for _, compiled := range slices.Concat(s.All(), slices.Collect(maps.Values(s.unavailable))) {
		if compiled == nil {
			continue
		}
		policies += len(compiled.Policies.Ordered)
		for _, p := range compiled.Policies.Ordered {
			if !p.Permits() {
				forbids++
			}
		}
	}
	return policies, forbids
}
