package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A Pending is a forwarded call without an outcome. Only its ID is known if its
// entry was pruned.
type Pending struct {
	ID                   string // of its gateway.call
	Server, Method, Tool string
	Subject              Entity
	Decisions            []string
}

func newPending(id string, e Entry) Pending {
	p := Pending{ID: id, Server: e.Server, Tool: e.Tool, Decisions: e.Decisions}
	if e.Action != nil {
		p.Method = e.Action.Name
	}
	if e.Subject != nil {
		p.Subject = *e.Subject
	}
	return p
}

// pendingIDs is the request of an entry of kind gateway.pending.
type pendingIDs struct {
	Calls []string `json:"calls"`
}

// writePending writes the ids of the pending calls, while no other entry is being
// written.
func (t *Trail) writePending() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	request, err := json.Marshal(pendingIDs{t.sortedIDs()})
	if err != nil {
		return err
	}
	err = t.log.Append(context.Background(), &decisionlog.Entry{ID: newID(), Time: t.cfg.Now(), Kind: decisionlog.KindGatewayPending, Request: request})
	if err != nil {
		return fmt.Errorf("write %s: %w", decisionlog.KindGatewayPending, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = 0
	return nil
}

// restart gives all pending calls of the last process the outcome unknown.
func (t *Trail) restart() error {
	ctx := context.Background()
	pending, err := t.readPending(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(pending)) {
		p, err := t.lookup(ctx, id)
		if err != nil {
			return err
		}
		t.pending[id] = p
		t.unknown = append(t.unknown, newPending(id, p.entry))
		if err := t.Done(id, Unknown, "restart"); err != nil {
			return err
		}
		t.lost[id] = p
	}
	return t.writePending()
}

// readPending reads which calls are pending: those of the last gateway.pending,
// and those behind it, without those that have an outcome.
func (t *Trail) readPending(ctx context.Context) (map[string]bool, error) {
	var from int64
	pending := make(map[string]bool)
	last, err := t.log.Newest(ctx, decisionlog.Filter{Kind: decisionlog.KindGatewayPending})
	if err != nil {
		return nil, err
	}
	if last != nil {
		from, _ = decisionlog.Index(last)
	}
	for line, err := range t.log.Select(ctx, decisionlog.Filter{From: from}) {
		if err == nil {
			err = readLine(line, pending)
		}
		if err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// readLine applies an entry to the calls that are pending before it.
func readLine(line []byte, pending map[string]bool) error {
	var record struct {
		ID      string           `json:"id"`
		Kind    decisionlog.Kind `json:"kind"`
		Request struct {
			pendingIDs
			Call string `json:"call"`
		} `json:"request"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		return fmt.Errorf("read entry: %w", err)
	}
	switch record.Kind {
	case decisionlog.KindGatewayPending:
		for _, id := range record.Request.Calls {
			pending[id] = true
		}
	case decisionlog.KindGatewayCall:
		pending[record.ID] = true
	case decisionlog.KindGatewayOutcome:
		delete(pending, record.Request.Call)
	}
	return nil
}

// lookup reads a pending call. Of one that was pruned, the id alone is left.
func (t *Trail) lookup(ctx context.Context, id string) (p pendingCall, err error) {
	record, _, err := t.log.Lookup(ctx, id)
	if errors.Is(err, decisionlog.ErrNoEntry) {
		return pendingCall{}, nil
	}
	if err != nil {
		return pendingCall{}, err
	}
	p = pendingCall{tenant: record.Tenant, requestID: record.RequestID, traceID: record.TraceID}
	if err := json.Unmarshal(record.Request, &p.entry); err != nil {
		return pendingCall{}, fmt.Errorf("read call %s: %w", id, err)
	}
	return p, nil
}
