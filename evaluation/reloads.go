package evaluation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A Reload is an attempt to load policies, as the log has it.
type Reload struct {
	ID       string    `json:"id"` // Decision-ID of the entry
	Time     time.Time `json:"time"`
	Store    string    `json:"store"`             // active or shadow
	Cause    string    `json:"cause"`             // start, change or request
	Loaded   bool      `json:"loaded"`            // the store is in force, or a part of it
	Revision string    `json:"revision,omitzero"` // in force after the attempt
	Version  int64     `json:"version,omitzero"`  // of the manifest
	Faults   []string  `json:"faults,omitempty"`  // why it was refused, or a part of it

	size int64 // a length of the log before the entry
}

// ActiveStore is the name of the store that decides, in a Reload. ShadowStore is that of the other.
const (
	ActiveStore = "active"
	ShadowStore = shadowStore
)

// newReload returns the attempt that an entry records.
func newReload(e *decisionlog.Entry, what reloadRequest, size int64) Reload {
	out := Reload{ID: e.ID, Time: e.Time, Store: ActiveStore, Cause: what.Cause, Revision: e.Revision, Version: what.Version, size: size}
	if what.Store != "" {
		out.Store, out.Revision = what.Store, what.Revision
	}
	if e.Result != nil {
		out.Loaded = e.Result.Decision
		for _, fault := range e.Result.Errors {
			out.Faults = append(out.Faults, fault.Message)
		}
	}
	return out
}

// reloadHistory has the last attempts of this process, so that a page about them need not search the
// log.
type reloadHistory struct {
	mu   sync.Mutex
	last []Reload // the oldest first
}

const maxReloads = 256

func (h *reloadHistory) add(r Reload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = append(h.last[max(0, len(h.last)-maxReloads+1):], r)
}

// Reloads returns the last attempts of this process, the newest first, at most limit of them, and the
// index before which the log may have earlier ones.
func (e *Engine) Reloads(limit int) (last []Reload, before int64) {
	h := &e.reloads
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.last) == 0 {
		return nil, e.log.Head().Size
	}
	last = slices.Clone(h.last[max(0, len(h.last)-limit):])
	slices.Reverse(last)
	return last, last[len(last)-1].size
}

// LoggedReloads returns attempts among the entries before an index, the newest first, at most limit of
// them. It returns the index before which there may be more, or 0.
func (e *Engine) LoggedReloads(ctx context.Context, before int64, limit int, look decisionlog.Look) (found []Reload, next int64, err error) {
	if before <= 0 {
		return nil, 0, nil
	}
	last, err := e.log.Latest(ctx, decisionlog.Filter{Kind: decisionlog.KindReload, Until: before}, limit, look)
	if err != nil {
		return nil, 0, err
	}
	for line, err := range e.log.Select(ctx, last.Filter) {
		if err != nil {
			return nil, 0, err
		}
		var record decisionlog.Record
		var request reloadRequest
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, 0, fmt.Errorf("read reload: %w", err)
		}
		if err := json.Unmarshal(record.Request, &request); err != nil {
			return nil, 0, fmt.Errorf("read reload: %w", err)
		}
		found = append(found, newReload(&record.Entry, request, record.Index))
	}
	slices.Reverse(found)
	if last.More {
		next = last.LookedFrom
	}
	return found, next, nil
}
