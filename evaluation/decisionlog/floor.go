package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/durable"
)

const floorFile = "floor"

// A floor is the content of DIR/floor.
type floor struct {
	Key     string `json:"key"`     // first public key of the log
	Version int64  `json:"version"` // version of a policy store; 0 for none
}

// Floor returns the version that [Log.KeepFloor] stored last. The error is [fs.ErrNotExist] if
// there is none or if it belongs to another log.
func (r *Reader) Floor() (version int64, err error) {
	path := filepath.Join(r.dir, floorFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read floor: %w", err)
	}
	var f floor
	if err := json.Unmarshal(text, &f, json.RejectUnknownMembers(true)); err != nil || f.Version < 0 {
		return 0, fmt.Errorf("read floor: %s is damaged: %w; without it the entries of the log count", path, errors.Join(err, fs.ErrInvalid))
	}
	keys, err := r.Keys()
	if err != nil {
		return 0, err
	}
	if !slices.Contains(keys, f.Key) {
		return 0, fmt.Errorf("read floor: that of another log: %w", fs.ErrNotExist)
	}
	return f.Version, nil
}

// KeepFloor stores the lowest policy store version that may still be loaded. It is stored apart
// from the entries, because these may be pruned.
func (l *Log) KeepFloor(version int64) error {
	keys, err := l.Keys()
	if err != nil {
		return err
	}
	text, err := json.Marshal(floor{keys[0], version})
	if err == nil {
		err = durable.ReplaceFile(filepath.Join(l.dir, floorFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep floor: %w", err)
	}
	return nil
}
