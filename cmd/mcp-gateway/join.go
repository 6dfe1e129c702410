package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
)

// A gateway is what serve and stdio have in common. It is joined here and
// nowhere else.
type gateway struct {
	cfg       *config
	gate      *enforce.Gate
	approvals *approval.Service
	seal      *seal.Key
	log       *slog.Logger
	// execute carries out a call at a server, by its name.
	execute map[string]func(context.Context, *wire.Message) (*wire.Message, error)
}

func join(cfg *config, log *slog.Logger) (*gateway, error) {
	key, err := readSecret(cfg.PDP.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("pdp: %w", err)
	}
	if err := os.MkdirAll(cfg.State, 0o700); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	g := &gateway{cfg: cfg, log: log, execute: make(map[string]func(context.Context, *wire.Message) (*wire.Message, error))}
	if g.seal, err = openKey(filepath.Join(cfg.State, "seal.key")); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	mapper, err := newMapper(cfg)
	if err != nil {
		return nil, err
	}
	decides := enforce.NewPDP(enforce.PDPConfig{
		URL: cfg.PDP.URL, Client: client.Config{Timeout: time.Duration(cfg.PDP.Timeout), Bearer: key},
		Failures: cfg.PDP.Failures, Pause: time.Duration(cfg.PDP.Pause),
		OnBreak: func(state string) { log.Warn("circuit breaker of the PDP", "state", state) },
	})
	g.gate = enforce.New(enforce.Config{
		PDP: decides, Map: mapper, Record: g.record, Log: log,
		Suspend: func(ctx context.Context, d *enforce.Denied) (*enforce.Verdict, error) {
			return g.approvals.Suspend(ctx, d)
		},
		Own:    func(ctx context.Context, c *enforce.Call) (*enforce.Verdict, error) { return g.approvals.Own(ctx, c) },
		Denial: enforce.Denial{Code: cfg.Denial.Code, OlderCode: cfg.Denial.OlderCode, Status: cfg.Denial.HTTPStatus},
	})
	g.approvals, err = approval.Open(approval.Config{
		File: filepath.Join(cfg.State, "approvals.db"), PDP: decides, Seal: g.seal, Permitted: g.gate.Permitted, Record: g.record, Log: log,
		Execute: func(ctx context.Context, server string, m *wire.Message) (*wire.Message, error) {
			return g.execute[server](ctx, m)
		},
		Page: cfg.Approval.Page, Hold: time.Duration(cfg.Approval.Hold), Wait: time.Duration(cfg.Approval.Wait), Refused: time.Duration(cfg.Approval.Refused),
		PerCaller: cfg.Approval.PerCaller, Limit: cfg.Approval.Pending,
	})
	return g, err
}

// newMapper joins what maps the calls to all servers.
func newMapper(cfg *config) (func(*enforce.Call) (*enforce.Question, error), error) {
	upstreams := make(map[string]coaz.Upstream)
	for _, s := range cfg.Servers {
		s.Resource = cmp.Or(s.Resource, s.Name)
		upstreams[s.Name] = s.Upstream
	}
	mapper, err := coaz.New(upstreams)
	if err != nil {
		return nil, err
	}
	return func(c *enforce.Call) (*enforce.Question, error) {
		q, err := mapper.Map(coaz.Call{
			Method: c.Message.Method, Params: c.Message.Params, Notification: !c.Message.IsRequest(),
			Claims: c.Caller.Claims, Server: c.Server,
		})
		var unmapped *coaz.MappingError
		switch {
		case errors.Is(err, coaz.ErrUnknownMethod):
			return nil, enforce.ErrUnknownMethod
		case errors.As(err, &unmapped):
			return nil, fmt.Errorf("%w: %s", enforce.ErrMapping, unmapped.Reason)
		case err != nil:
			return nil, enforce.ErrMapping
		}
		return &enforce.Question{Pass: q.PassThrough, Evaluation: q.Evaluation, Evaluations: q.Evaluations, Older: q.Dialect.Older()}, nil
	}, nil
}

// record writes what became of a call to the program's log.
func (g *gateway) record(ctx context.Context, o *enforce.Outcome) {
	g.log.InfoContext(ctx, o.Event, "server", o.Call.Server, "method", o.Call.Message.Method, "caller", o.Call.Caller.Subject.ID,
		"request_id", o.Call.RequestID, "evaluation_id", o.EvaluationID, "reason", o.Reason, "call_digest", o.Digest, "task", o.Task)
}

// openKey reads the key that seals what clients are given, and makes it at the
// first start.
func openKey(file string) (*seal.Key, error) {
	secret, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, seal.KeySize)
		_, _ = rand.Read(secret) // it does not fail
		err = os.WriteFile(file, secret, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return seal.New(secret)
}
