package pdp

import (
	"sync"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/replay"
)

// ShadowChanges are the decisions that the shadow policies would have changed, of those that this
// process has made since it loaded them.
type ShadowChanges struct {
	Since    time.Time         `json:"since"`             // time of the first decision
	Compared int64             `json:"compared"`          // number of decisions
	Changes  []*replay.Changes `json:"changes,omitempty"` // by effect, the most severe first
}

// shadowTally counts decisions that the shadow policies would have changed, by tenant. It forgets
// those of an earlier shadow.
type shadowTally struct {
	mu       sync.Mutex
	revision string // of the shadow store
	tenants  map[string]*tenantTally
}

type tenantTally struct {
	since    time.Time
	compared int64
	tally    replay.Tally
}

// add counts the decisions of an entry that shadow policies have decided. The tenant is a name of
// which there are few.
func (s *shadowTally) add(revision, tenant string, e *decisionlog.Entry) {
	var rows []decisionlog.DecisionRow // read only if there is a difference
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range resultsOf(e) {
		if r.Shadow == nil {
			continue
		}
		of := s.of(revision, tenant, e.Time)
		of.compared++
		effect := evaluation.ShadowEffect(&r)
		if effect == "" {
			continue
		}
		if rows == nil {
			rows = decisionlog.Record{Entry: *e}.Decisions()
		}
		of.tally.Add(effect, explain.Cause(&r, &r.Shadow.Result), rows[i].Subject.String(), rows[i].ID)
	}
}

// of returns the counts of a tenant. Callers hold s.mu.
func (s *shadowTally) of(revision, tenant string, at time.Time) *tenantTally {
	if s.revision != revision || s.tenants == nil {
		s.revision, s.tenants = revision, map[string]*tenantTally{}
	}
	of := s.tenants[tenant]
	if of == nil {
		of = &tenantTally{since: at}
		s.tenants[tenant] = of
	}
	return of
}

// changes returns the changes of some tenants, or of all for nil. It returns nil if the shadow has not
// decided for them.
func (s *shadowTally) changes(revision string, visible func(tenant string) bool) *ShadowChanges {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision != revision {
		return nil
	}
	var out *ShadowChanges
	var all replay.Tally
	for tenant, of := range s.tenants {
		if !visible(tenant) {
			continue
		}
		if out == nil {
			out = &ShadowChanges{Since: of.since}
		}
		if of.since.Before(out.Since) {
			out.Since = of.since
		}
		out.Compared += of.compared
		all.Merge(&of.tally)
	}
	if out != nil {
		out.Changes = all.Changes()
	}
	return out
}

// resultsOf returns the results of the decisions of an entry.
func resultsOf(e *decisionlog.Entry) []decisionlog.Result {
	if e.Result != nil {
		return []decisionlog.Result{*e.Result}
	}
	return e.Evaluations
}
