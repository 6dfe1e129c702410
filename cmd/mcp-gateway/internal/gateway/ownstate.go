package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
)

// An ownState is the part of the state directory that one process has for itself:
// the audit trail and the owners of tasks. For serve it is the state directory.
// A process of stdio takes the first free directory of stdio/SERVER/1, 2, and so
// on, where the lock of the trail says which are free.
type ownState struct {
	state  string // directory
	server string // of stdio, or "" for serve
	name   string // of the directory below state, set by open
}

// maxSlots bounds the processes of stdio that guard the same server.
const maxSlots = 1000

func (o *ownState) dir() string { return filepath.Join(o.state, o.name) }

func (o *ownState) slot(number string) string { return filepath.Join("stdio", o.server, number) }

// open takes a directory, and opens the trail in it.
func (o *ownState) open() (*audit.Trail, error) {
	if o.server == "" {
		return openTrail(o.state)
	}
	for number := range maxSlots {
		o.name = o.slot(strconv.Itoa(number + 1))
		if err := os.MkdirAll(o.dir(), 0o700); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		trail, err := openTrail(o.dir())
		if !errors.Is(err, audit.ErrLocked) {
			return trail, err
		}
	}
	return nil, fmt.Errorf("%s: %d gateways guard the server already", filepath.Join(o.state, o.slot("")), maxSlots)
}

func openTrail(dir string) (*audit.Trail, error) {
	return audit.Open(filepath.Join(dir, trailDir), audit.Config{})
}

// closeAbandoned ends the calls of the processes of stdio for the same server that
// have ended without doing so.
func (g *gateway) closeAbandoned() error {
	slots, err := os.ReadDir(filepath.Join(g.own.state, g.own.slot("")))
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	for _, entry := range slots {
		name := g.own.slot(entry.Name())
		trail, err := openTrail(filepath.Join(g.own.state, name))
		if errors.Is(err, audit.ErrLocked) {
			continue // of a running process, such as this one
		}
		if err != nil { // it does not keep this process from starting
			g.log.Error("audit trail of a former process", "error", err)
			continue
		}
		g.warnUnknown(trail)
		if err := errors.Join(g.approvals.GiveUp(name), trail.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (g *gateway) warnUnknown(trail *audit.Trail) {
	for _, r := range trail.Unknown() {
		g.log.Warn("the outcome of a forwarded call is unknown, because the gateway ended before it", "call", r.ID, "server", r.Server, "method", r.Method, "tool", r.Tool, "subject", r.Subject.String(), "decisions", r.Decisions)
	}
}
