package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/policies"
)

type serveCmd struct {
	Policies    string                 `help:"Directory of the policy store. Without it the embedded example agent-tools is served." placeholder:"DIR"`
	State       string                 `help:"Directory of the decision log; ${default} without it." default:"policy-service-state" placeholder:"DIR"`
	Listen      string                 `help:"Address PEPs connect to; ${default} without it; port 0 picks a free one." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	AdminListen string                 `help:"Address of health checks and administration; ${default} without it." default:"127.0.0.1:8081" placeholder:"HOST:PORT"`
	PublicURL   string                 `help:"URL by which PEPs know the service, for its metadata." placeholder:"URL"`
	TLSCert     string                 `help:"PEM certificate chain of the main listener." placeholder:"FILE"`
	TLSKey      string                 `help:"PEM key of the main listener." placeholder:"FILE"`
	Insecure    bool                   `help:"Listen beyond this host although callers are not authenticated."`
	Durability  decisionlog.Durability `help:"When an answer is given: strict (as without it), once it is on disk; batched, up to 100 ms before." default:"strict" placeholder:"MODE"`
	MaxBody     int64                  `help:"Largest request body, in bytes; ${default} without it." default:"1048576" placeholder:"BYTES"`
	LogFormat   string                 `help:"Format of the program's own log: ${enum}." enum:"text,json" default:"text"`
	Config      kong.ConfigFlag        `help:"YAML file of these settings, a key being a flag's name with underscores." placeholder:"FILE"`
}

func (c *serveCmd) Run(ctx context.Context) error {
	store, err := policyStore(c.Policies)
	if err != nil {
		return err
	}
	return pdp.Run(ctx, pdp.Config{
		Policies:    store,
		State:       c.State,
		Listen:      c.Listen,
		AdminListen: c.AdminListen,
		PublicURL:   c.PublicURL,
		TLSCert:     c.TLSCert,
		TLSKey:      c.TLSKey,
		Insecure:    c.Insecure,
		MaxBody:     c.MaxBody,
		Durability:  c.Durability,
		Log:         newLogger(c.LogFormat),
		Ready: func(main, admin string) {
			fmt.Fprintf(os.Stderr, "listening on %s (admin %s)\n", main, admin)
		},
	})
}

// policyStore opens a policy store; without a directory, the embedded example.
func policyStore(dir string) (fs.FS, error) {
	if dir == "" {
		return policies.Set("agent-tools")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open policy store: %w", err)
	}
	return root.FS(), nil
}

func newLogger(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}
