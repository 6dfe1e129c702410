package pdp

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// openCapabilities opens the store of capabilities, whose uses and proofs are in the decision log.
func (s *server) openCapabilities() (*capability.Service, error) {
	last, err := lastTime(context.Background(), s.log)
	if err != nil {
		return nil, err
	}
	return capability.Open(s.config.State, capability.Config{
		Record:   func(ctx context.Context, r capability.Record) error { return s.log.Append(ctx, entryOf(r)) },
		Recorded: func(ctx context.Context, id string) (bool, error) { return s.engine.Recorded(ctx, id) },
		UsesSince: func(ctx context.Context, from uint64, yield func(capability.Use) error) error {
			return usesSince(ctx, s.log, from, yield)
		},
		LogSize:   func() uint64 { return uint64(s.log.Head().Size) },
		NotBefore: last,
		SignToken: s.approvals.SignToken, VerifyToken: s.approvals.VerifyToken, BaseURL: s.tenantURL,
		OnError: func(err error) { s.config.Log.Error("capabilities", "error", err) },
	})
}

// usesSince yields the uses and proofs of capabilities in the log, from an index on.
func usesSince(ctx context.Context, log *decisionlog.Log, from uint64, yield func(capability.Use) error) error {
	for line, err := range log.Select(ctx, decisionlog.Filter{From: int64(from)}) {
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(`"used":true`)) && !bytes.Contains(line, []byte(`"proof":"`)) {
			continue
		}
		entry, err := replay.ReadEntry(line)
		if err != nil {
			return err
		}
		index, _ := decisionlog.Index(line)
		if entry.Kind == decisionlog.KindCapability {
			if err := yieldHandover(entry, uint64(index), yield); err != nil {
				return err
			}
		}
		results := entry.Evaluations
		if entry.Result != nil {
			results = append(results, *entry.Result)
		}
		for _, r := range results {
			used := r.Capability
			if used == nil || !used.Used && used.Proof == "" {
				continue
			}
			err := yield(capability.Use{
				Index: uint64(index), Tenant: entry.Tenant, ID: used.ID, Call: used.Call, Proof: used.Proof, Unused: !used.Used, Time: entry.Time,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// yieldHandover yields the proof of a capability that was handed on or refreshed.
func yieldHandover(entry *decisionlog.Entry, index uint64, yield func(capability.Use) error) error {
	var change struct {
		Parent    string `json:"parent"`
		Refreshes string `json:"refreshes"`
		Proof     string `json:"proof"`
	}
	if err := json.Unmarshal(entry.Request, &change); err != nil || change.Proof == "" {
		return err
	}
	return yield(capability.Use{Index: index, Tenant: entry.Tenant, ID: cmp.Or(change.Refreshes, change.Parent), Proof: change.Proof, Unused: true, Time: entry.Time})
}

// lastTime returns the time of the last entry of the log, or zero.
func lastTime(ctx context.Context, log *decisionlog.Log) (last time.Time, err error) {
	for line, err := range log.Select(ctx, decisionlog.Filter{From: max(0, log.Head().Size-1)}) {
		if err != nil {
			return last, err
		}
		entry, err := replay.ReadEntry(line)
		if err != nil {
			return last, err
		}
		last = entry.Time
	}
	return last, nil
}

// capabilityEndpoint returns the URL at which PEPs of a tenant ask for capabilities.
func (s *server) capabilityEndpoint(tenant string) string {
	return s.tenantURL(tenant) + authzen.PathCapabilities
}

// tenantURL returns the base URL of a tenant, or of the service for "".
func (s *server) tenantURL(tenant string) string {
	if tenant == "" {
		return s.publicURL
	}
	return s.publicURL + "/tenants/" + tenant
}
