package decisionlog

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// An adminAction is the request of an entry about the log itself.
type adminAction struct {
	Action     string `json:"action"`
	Key        string `json:"key,omitzero"`        // of rotate_key: the new public key
	Reason     string `json:"reason,omitzero"`     // of accept_rollback: the operator's
	Fault      string `json:"fault,omitzero"`      // of accept_rollback: what was found
	Checkpoint string `json:"checkpoint,omitzero"` // of accept_rollback: what the log was held to
}

// recordInternal records something about the log itself, and returns when it is on
// disk however the log is configured.
func (l *Log) recordInternal(ctx context.Context, kind Kind, what any) error {
	request, err := json.Marshal(what)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	return l.append(ctx, &Entry{ID: id.String(), Time: l.committer.config.Now(), Kind: kind, Request: request}, true)
}
