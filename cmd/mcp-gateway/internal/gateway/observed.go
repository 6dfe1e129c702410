package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
	"github.com/policy-service/policy-service/obligations/plain"
)

// A mode says whether the decisions of the PDP are enforced.
type mode string

const (
	// modeEnforce refuses what the PDP does not permit. It is the default.
	modeEnforce mode = "enforce"
	// modeObserve asks the PDP, records the decision, and forwards the call whatever
	// the decision is.
	modeObserve mode = "observe"
)

// check returns what the mode must be, and is not, or "".
func (m mode) check() string {
	if m == "" || m == modeEnforce || m == modeObserve {
		return ""
	}
	return fmt.Sprintf("must be %s or %s, not %q", modeEnforce, modeObserve, m)
}

// modeOf returns the mode of a server.
func (c *Config) modeOf(s *serverConfig) mode { return cmp.Or(s.Mode, c.Mode, modeEnforce) }

// ObservesByDefault reports whether servers that say nothing about it are in observe
// mode.
func (c *Config) ObservesByDefault() bool { return c.Mode == modeObserve }

// Observed lists the names of the servers in observe mode.
func (c *Config) Observed() (names []string) {
	for i := range c.Servers {
		if s := &c.Servers[i]; c.modeOf(s) == modeObserve {
			names = append(names, s.Name)
		}
	}
	return names
}

// observes returns the servers in observe mode, by name.
func (c *Config) observes() map[string]bool {
	all := make(map[string]bool)
	for _, name := range c.Observed() {
		all[name] = true
	}
	return all
}

// warnObserved warns of the servers in observe mode, and returns what the start
// line says of them: "" without any.
func (g *gateway) warnObserved(servers []string) string {
	names := slices.DeleteFunc(g.rules.Load().cfg.Observed(), func(name string) bool { return !slices.Contains(servers, name) })
	if len(names) == 0 {
		return ""
	}
	g.log.Warn("mode observe: calls that the policies deny are forwarded", "servers", names)
	return " (mode observe: " + strings.Join(names, ", ") + ")"
}

// observedFile is the summary of observed calls in the state directory.
const observedFile = "observed.db"

// openSummary opens the summary, if a server is in observe mode and it is not open.
func (g *gateway) openSummary(cfg *Config) error {
	if len(cfg.Observed()) == 0 || g.observed.Load() != nil {
		return nil
	}
	summary, err := observation.Open(filepath.Join(g.cfg.State, observedFile))
	if err == nil {
		g.observed.Store(summary)
	}
	return err
}

// ReadObserved reads the summary of observed calls in the state directory, also
// while gateways write it, and empties it afterwards if clear is set. The policies of
// decisions come from the log of the PDP in the directory decisions, if one is named.
// The error is [fs.ErrNotExist] if no gateway has observed calls.
func (c *Config) ReadObserved(ctx context.Context, decisions string, clear bool) ([]observation.Row, error) {
	path := filepath.Join(c.State, observedFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: no gateway with this state directory has been in observe mode", err)
	}
	summary, err := observation.Open(path)
	if err != nil {
		return nil, err
	}
	read := summary.Rows
	if clear {
		read = summary.Take
	}
	rows, err := read()
	if err == nil && decisions != "" {
		err = addPolicies(ctx, decisions, rows)
	}
	return rows, err
}

// addPolicies adds the policies that determined the decisions of rows.
func addPolicies(ctx context.Context, decisions string, rows []observation.Row) error {
	var ids []string
	for _, row := range rows {
		if row.Decision != "" {
			ids = append(ids, row.Decision)
		}
	}
	policies, err := audit.Policies(ctx, decisions, ids)
	if err != nil {
		return fmt.Errorf("log of the PDP: %w", err)
	}
	for i := range rows {
		rows[i].Policies = policies[rows[i].Decision]
	}
	return nil
}

// summarize starts to write the summary, if it is open.
func (g *gateway) summarize(ctx context.Context, group *errgroup.Group) {
	summary := g.observed.Load()
	if summary == nil {
		return
	}
	group.Go(func() error {
		summary.Run(ctx, g.log)
		return summary.Flush()
	})
}

// maxSummarized is how much of a text stands in the summary, in bytes.
const maxSummarized = 512

// summarize counts a call in the summary.
func (t *trail) summarize(c *audit.Call) {
	short := func(text string) string { return plain.Cut(text, maxSummarized) }
	row := &observation.Row{
		Key: observation.Key{
			Server: c.Server, Method: short(c.Method), Name: short(c.Tool), Caller: short(c.Subject.String()), Tenant: short(c.Tenant),
			Refusal: c.Reason, Why: short(c.Why),
		},
		Calls: 1, NotCarriedOut: c.NotCarriedOut,
	}
	row.First = time.Now()
	row.Last = row.First
	if len(c.Decisions) > 0 {
		row.Decision = c.Decisions[0]
	}
	t.observed.Load().Add(row)
}
