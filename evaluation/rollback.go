package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// Floor returns the highest manifest version of a policy store that was active; 0 for none. A store with
// a lower version is a rollback. The version is stored with the log. If it is lost, Floor reads the
// log's entries.
func (e *Engine) Floor(ctx context.Context) (int64, error) {
	version, err := e.log.Floor()
	if !errors.Is(err, fs.ErrNotExist) {
		return version, err
	}
	if version, err = e.loggedFloor(ctx); err != nil {
		return 0, fmt.Errorf("read the version of the policies last in force: %w", err)
	}
	return version, e.log.KeepFloor(version)
}

// loggedFloor reads the log's reload entries, newest first, up to one with a version.
func (e *Engine) loggedFloor(ctx context.Context) (int64, error) {
	yes := true
	for until := e.log.Head().Size; until > 0; {
		line, err := e.log.Newest(ctx, decisionlog.Filter{Kind: decisionlog.KindReload, Decision: &yes, Until: until})
		if err != nil || line == nil {
			return 0, err
		}
		var record decisionlog.Record
		var request reloadRequest
		if err := json.Unmarshal(line, &record); err != nil {
			return 0, err
		}
		if err := json.Unmarshal(record.Request, &request); err != nil {
			return 0, err
		}
		if request.Store == "" && request.Version > 0 {
			return request.Version, nil
		}
		until = record.Index
	}
	return 0, nil
}

// raiseFloor stores the version of a store before it becomes active and before its log entry. A crash
// between the two leaves the higher version.
func (e *Engine) raiseFloor(ctx context.Context, version int64) error {
	if version == 0 {
		return nil
	}
	kept, err := e.Floor(ctx)
	if err != nil || version <= kept {
		return err
	}
	return e.log.KeepFloor(version)
}

// A reloadRequest is the request of a log entry about an attempt to load policies.
type reloadRequest struct {
	Cause    string `json:"cause"`
	Store    string `json:"store,omitzero"`    // "shadow"; empty for the active store
	Revision string `json:"revision,omitzero"` // of the current shadow
	Version  int64  `json:"version,omitzero"`  // of the manifest to activate
}
