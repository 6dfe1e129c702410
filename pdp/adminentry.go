package pdp

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// adminEntry returns a new entry of the kind admin. The act says what was done, and who did it; it is
// the request of the entry.
func adminEntry(act any) (*decisionlog.Entry, error) {
	request, err := json.Marshal(act, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return &decisionlog.Entry{ID: evaluation.NewDecisionID(), Time: time.Now().UTC(), Kind: decisionlog.KindAdmin, Request: request}, nil
}
