package pdp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/rates"
)

// A State summarizes the service.
type State string

// The states, the most severe last.
const (
	StateWell       State = "well"
	StateStale      State = "stale"       // a change of the policy store is not in force
	StateNotReady   State = "not_ready"   // no policies are loaded
	StateLogFailing State = "log_failing" // decisions cannot be recorded
)

// A ServiceStatus describes the service to an operator. A caller of some tenants gets only what
// concerns these tenants: the members Log, InFlight, Queued and Rates are absent, and faults in the
// folders of other tenants do not affect State.
type ServiceStatus struct {
	State    State          `json:"state"`
	Advice   string         `json:"advice,omitzero"`  // what to do
	Pending  float64        `json:"pending,omitzero"` // age in seconds of a change that is neither in force nor refused
	Policies StoreStatus    `json:"policies"`
	Shadow   *StoreStatus   `json:"shadow,omitempty"`  // nil without a shadow store
	Changes  *ShadowChanges `json:"changes,omitempty"` // of the shadow; nil before its first decision
	Waiting  int            `json:"waiting"`           // access requests that await a person
	Log      *LogStatus     `json:"log,omitempty"`
	InFlight *int           `json:"in_flight,omitempty"` // requests in processing
	Queued   *int           `json:"queued,omitempty"`    // requests that wait for admission
	Rates    []rates.Point  `json:"rates,omitempty"`     // the last hour, the oldest minute first
}

// A StoreStatus is the status of a policy store, with the faults of a change that was refused.
type StoreStatus struct {
	evaluation.Status
	Faults faults.List `json:"faults,omitempty"`
}

// A LogStatus describes the decision log.
type LogStatus struct {
	Size    int64        `json:"size"`              // number of entries
	Signed  time.Time    `json:"signed,omitzero"`   // time of the last checkpoint
	Under   int64        `json:"signed_size"`       // number of entries under it
	Queued  int          `json:"queued"`            // entries in memory, not yet on disk
	Sinks   []SinkStatus `json:"sinks,omitempty"`   // copies of checkpoints outside the log
	Failing time.Time    `json:"failing,omitzero"`  // since when the log does not take every entry
	Problem string       `json:"problem,omitempty"` // why the log has failed for good
}

// Advice for each state.
const (
	adviceStale     = "Correct the faults of the policy store. The last valid policies decide until then."
	adviceUnread    = "Correct what prevents the policy store from being read. The last valid policies decide until then."
	advicePending   = "Wait: the change of the policy store is being read. If this does not end, look into the program's log."
	adviceNotReady  = "Correct the faults of the policy store. Every request fails until then."
	adviceDisk      = "Check that the disk of the state directory has room and works. Requests fail while the log does not take their entries, the large ones first."
	adviceLogFailed = "Restart the service, and then run log verify. Every request fails until then."
)

// serveStatus answers with the status of the service, as far as it concerns the caller's tenants.
func (s *server) serveStatus(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	status, err := s.status(c.Request().Context(), callerFrom(c.Request().Context()).Tenants)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, status)
}

// status returns the status of the service for some tenants, or for all if tenants is nil.
func (s *server) status(ctx context.Context, tenants []string) (*ServiceStatus, error) {
	v := view{tenants}
	waiting, err := s.approvals.Pending(ctx, tenants...)
	if err != nil {
		return nil, err
	}
	out := &ServiceStatus{Policies: v.store(s.engine.Snapshots(), s.engine.Status()), Waiting: waiting}
	if shadow := s.engine.ShadowStatus(); !shadow.Attempt.IsZero() {
		own := v.store(s.engine.ShadowSnapshots(), shadow)
		out.Shadow, out.Changes = &own, s.metrics.changes.changes(shadow.Revision, v.sees)
	}
	out.Pending = s.policies.pending(s.engine, v).Seconds()
	if tenants == nil {
		s.addLoad(out)
	}
	out.State, out.Advice = s.state(out)
	return out, nil
}

// addLoad adds what concerns all tenants.
func (s *server) addLoad(out *ServiceStatus) {
	working, queued := s.limits.queue.Load()
	out.InFlight, out.Queued = &working, &queued
	out.Rates = s.metrics.lastHour.Points(time.Now())
	out.Log = &LogStatus{Size: s.log.Head().Size, Queued: s.log.Queued(), Signed: s.log.PublishedAt(), Failing: s.metrics.failingSince()}
	if last := s.log.Published(); last != nil {
		out.Log.Under = last.Size
	}
	for _, sink := range s.sinks {
		out.Log.Sinks = append(out.Log.Sinks, sink.status())
	}
	if err := s.log.Err(); err != nil {
		out.Log.Problem = err.Error()
	}
}

// state returns the most severe state and what to do about it.
func (s *server) state(out *ServiceStatus) (State, string) {
	switch {
	case s.log.Err() != nil:
		return StateLogFailing, adviceLogFailed
	case !s.metrics.failingSince().IsZero():
		return StateLogFailing, adviceDisk
	case s.engine.Snapshots() == nil:
		return StateNotReady, adviceNotReady
	case out.Policies.Stale && len(out.Policies.Faults) == 0:
		return StateStale, adviceUnread
	case out.Policies.Stale:
		return StateStale, adviceStale
	case out.Pending > 0:
		return StateStale, advicePending
	}
	return StateWell, ""
}

// A view is what a caller may see: everything if tenants is nil, else the root of a policy store and
// what belongs to the tenants.
type view struct{ tenants []string }

// sees reports whether the caller may see what belongs to a tenant. The root's tenant is "".
func (v view) sees(tenant string) bool {
	return v.tenants == nil || slices.Contains(v.tenants, tenant)
}

// file reports whether the caller may see a file of a policy store.
func (v view) file(name string) bool {
	if v.tenants == nil {
		return true
	}
	if !strings.HasPrefix(name, "tenants/") {
		return true
	}
	return v.sees(snapshot.TenantAt(name))
}

// store returns what the caller may see of the status of a policy store.
func (v view) store(all *snapshot.Snapshots, s evaluation.Status) StoreStatus {
	out := StoreStatus{s, s.Faults}
	if v.tenants == nil {
		return out
	}
	out.Stale, out.Faults, out.Problem = v.stale(s), v.faultsOf(s), ""
	if out.Stale {
		out.Problem = "The last change of the policy store was refused."
	}
	if all == nil || !all.HasTenants() {
		return out
	}
	// Every change of any tenant changes the revision and the times of the whole store.
	out.Revision, out.Since, out.Attempt, out.TookUS = "", time.Time{}, time.Time{}, 0
	out.Tenants, out.Policies, out.Entities = nil, 0, 0
	for _, tenant := range v.tenants {
		own, err := all.For(tenant)
		if err != nil {
			continue
		}
		policies, entities := own.Size()
		out.Tenants, out.Policies, out.Entities = append(out.Tenants, tenant), out.Policies+policies, out.Entities+entities
		out.Revision = own.Revision()
	}
	if len(out.Tenants) != 1 {
		out.Revision = ""
	}
	return out
}

// stale reports whether a change that concerns the caller is not in force.
func (v view) stale(s evaluation.Status) bool {
	switch {
	case v.tenants == nil || !s.Stale:
		return s.Stale
	case s.InPart != nil:
		return slices.ContainsFunc(v.tenants, func(tenant string) bool { return s.InPart.Tenants[tenant] != nil })
	}
	return len(s.Faults) == 0 || len(v.faults(s.Faults)) > 0
}

// faultsOf returns the faults of the status of a policy store that the caller may see.
func (v view) faultsOf(s evaluation.Status) (own faults.List) {
	if v.tenants == nil || s.InPart == nil {
		return v.faults(s.Faults)
	}
	for _, tenant := range v.tenants {
		found, _ := errors.AsType[faults.List](s.InPart.Tenants[tenant])
		own = append(own, found...)
	}
	return v.faults(own.Unique())
}

// faults returns the faults that the caller may see.
func (v view) faults(all faults.List) (own faults.List) {
	for _, fault := range all {
		if v.file(fault.File) && !v.namesOthers(fault.Message) && !v.namesOthers(fault.Hint) {
			own = append(own, fault)
		}
	}
	return own
}

// namesOthers reports whether a text names the folder of a tenant that is not the caller's.
func (v view) namesOthers(text string) bool {
	for {
		_, after, found := strings.Cut(text, "tenants/")
		if !found {
			return false
		}
		name := after
		if end := strings.IndexFunc(after, func(r rune) bool { return !strings.ContainsRune(tenantCharacters, r) }); end >= 0 {
			name = after[:end]
		}
		if name != "" && !v.sees(name) {
			return true
		}
		text = after
	}
}

// tenantCharacters are the characters of tenants' names.
const tenantCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_-"
