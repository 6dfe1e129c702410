package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/labels"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A labelsConfig says how long labels of callers stay, and where they count.
type labelsConfig struct {
	TTL   duration   `yaml:"ttl"`
	Scope labelScope `yaml:"scope"`
}

// A labelScope says where the labels of a caller count.
type labelScope string

const (
	scopeCaller  labelScope = "caller"  // in all sessions, at all servers
	scopeSession labelScope = "session" // in the session in which they came
)

// checkLabels reports what is wrong with the labels of callers.
func (c *Config) checkLabels(f *faults) {
	if c.Labels.TTL < time.Minute {
		f.fault("labels.ttl", "must be at least 1m, not %s", c.Labels.TTL)
	}
	if c.Labels.Scope != scopeCaller && c.Labels.Scope != scopeSession {
		f.fault("labels.scope", "must be %s or %s, not %q", scopeCaller, scopeSession, c.Labels.Scope)
	}
}

// callerLabels keeps the labels of the callers of calls. It implements
// [enforce.Labels].
type callerLabels struct{ store *labels.Store }

func newCallerLabels(cfg *Config) (*callerLabels, error) {
	store, err := labels.Open(labels.Config{
		File: filepath.Join(cfg.State, "labels.db"), TTL: cfg.Labels.TTL, Sessions: cfg.Labels.Scope == scopeSession,
	})
	return &callerLabels{store}, err
}

// Of implements [enforce.Labels].
func (l *callerLabels) Of(c *enforce.Call) ([]string, error) { return l.store.Of(labelledCaller(c)) }

// Add implements [enforce.Labels].
func (l *callerLabels) Add(c *enforce.Call, names []string) error {
	return l.store.Add(labelledCaller(c), names)
}

// labelledCaller is the caller of a call, in its session. Ids of sessions are the
// servers', and of any length.
func labelledCaller(c *enforce.Call) labels.Caller {
	of := labels.Caller{Tenant: c.Caller.Tenant, Type: c.Caller.Subject.Type, ID: c.Caller.Subject.ID}
	if c.Session != "" {
		sum := sha256.Sum256([]byte(c.Server + "\x00" + c.Session))
		of.Session = hex.EncodeToString(sum[:16])
	}
	return of
}

// lateResults is the gate, which is joined after what uses it.
type lateResults struct{ *gateway }

// Deliver implements [approval.Results].
func (r lateResults) Deliver(ctx context.Context, c *enforce.Call, response *wire.Message) *wire.Message {
	return r.gate.Deliver(ctx, c, response)
}

// Label implements [approval.Results].
func (r lateResults) Label(c *enforce.Call) error { return r.gate.Label(c) }

// Labelled implements [approval.Results].
func (r lateResults) Labelled(c *enforce.Call, q *enforce.Question) (*enforce.Question, error) {
	return r.gate.Labelled(c, q)
}
