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

// ErrUnknownTenant means that a policy store with tenants has none of that
// name, or that a request to it named none.
var ErrUnknownTenant = errors.New("unknown tenant")

// Snapshots are a policy store, compiled: one snapshot that answers everybody
// or, where the store has tenants, one for each, of the guardrails in the
// store's root and what the tenant adds. They share nothing that a request
// could change, so no request of one tenant changes an answer of another.
type Snapshots struct {
	archive  Archive
	revision string
	everyone *Snapshot // nil with tenants
	tenants  map[string]*Snapshot

	unavailable map[string]*Snapshot // tenants of which no files compile, with what answered them last; nil for nothing
}

// CompileStore makes the snapshots of a policy store. Like [Compile] it is all
// or nothing, over all tenants.
func CompileStore(a Archive) (*Snapshots, error) { return compileTenants(a, false) }

// CompileLogged makes the snapshots of a revision that the log has: it has decided,
// so that what is refused today does not keep its decisions from being explained.
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

// Inspect compiles a policy store as [CompileStore] does and returns snapshots and
// faults. Snapshots of a store with faults decide nothing. They are whole if all
// that was written could be read.
func Inspect(a Archive) (s *Snapshots, found faults.List, whole bool) {
	manifest, err := decisionlog.Manifest(a)
	if err != nil {
		return nil, faults.List{{File: ".", Message: err.Error()}}, false
	}
	s, whole = &Snapshots{archive: a, revision: decisionlog.Revision(manifest)}, true
	inspect := func(own Archive) *Snapshot {
		one := compileWhole(context.Background(), own, false)
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

// Revision names the whole store: "sha256:" and the hash of its files. Without
// tenants it is the snapshot's.
func (s *Snapshots) Revision() string { return s.revision }

// For returns the snapshot that answers a tenant's requests.
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

// answering returns what answers a tenant of a store that may be nil, or nil.
func (s *Snapshots) answering(tenant string) *Snapshot {
	if s == nil {
		return nil
	}
	return s.tenants[tenant]
}

// Guardrails returns the snapshot of the store's root alone: what answers
// everybody or, with tenants, what holds for each of them and answers none.
func (s *Snapshots) Guardrails() (*Snapshot, error) {
	if s.everyone != nil {
		return s.everyone, nil
	}
	return Compile(s.archive.ForTenant(""))
}

// Tenants lists the tenants; none when the store answers everybody.
func (s *Snapshots) Tenants() []string { return slices.Sorted(maps.Keys(s.tenants)) }

// HasTenants reports whether the store has tenants. One without answers
// everybody, whatever tenant a request names.
func (s *Snapshots) HasTenants() bool { return s.everyone == nil }

// All lists the snapshots.
func (s *Snapshots) All() []*Snapshot {
	if s.everyone != nil {
		return []*Snapshot{s.everyone}
	}
	return slices.Collect(maps.Values(s.tenants))
}

// Size counts what is in the store, guardrails once for each tenant.
func (s *Snapshots) Size() (policies, entities int) {
	for _, compiled := range s.All() {
		p, e := compiled.Size()
		policies, entities = policies+p, entities+e
	}
	return policies, entities
}

// Actions counts the actions that the schemas declare, the guardrails' once for
// each tenant.
func (s *Snapshots) Actions() int {
	actions := 0
	for _, compiled := range s.All() {
		if compiled.Schema != nil {
			actions += len(compiled.Schema.Actions)
		}
	}
	return actions
}

// ArchivesBeyond lists the store's archive and those of its snapshots that another
// store does not have; nil is no other.
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

// counted counts the policies of the store, with those that tenants had who are
// not answered now: they are late, not lost.
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
