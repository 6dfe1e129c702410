package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// Floor returns the highest version of a policy store's manifest that the log
// says was in force; 0 for none. A store of a lower version is an older one. It
// is kept beside the log, whose entries are read where that is lost.
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

// loggedFloor reads the entries of the log about reloads, the last first, up to
// one of a version.
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

// raiseFloor keeps the version of a store that is about to come into force. It
// is kept before the entry about it: a crash between the two leaves the higher
// one.
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

// A reloadRequest is the request of an entry about an attempt to load policies.
type reloadRequest struct {
	Cause    string `json:"cause"`
	Store    string `json:"store,omitzero"`    // shadow; none for the one in force
	Revision string `json:"revision,omitzero"` // of the shadow now
	Version  int64  `json:"version,omitzero"`  // of the manifest that comes into force
}
