package decisionlog

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// An adminAction is the request of an entry about the log itself.
type adminAction struct {
	Action     string `json:"action"`
	Key        string `json:"key,omitzero"`        // of rotate_key: new public key
	Reason     string `json:"reason,omitzero"`     // of accept_rollback: the operator's reason
	Fault      string `json:"fault,omitzero"`      // of accept_rollback: the detected fault
	Checkpoint string `json:"checkpoint,omitzero"` // of accept_rollback: the checkpoint that the log no longer satisfies
}

// recordInternal records an action on the log itself. The entry is on disk when it returns,
// whatever the durability of the log.
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
