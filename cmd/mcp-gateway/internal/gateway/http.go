package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/pdp/jwks"
)

// Run serves MCP over HTTP until ctx ends.
func Run(ctx context.Context, cfg *Config) error {
	g, err := join(cfg, &ownState{state: cfg.State})
	if err != nil {
		return err
	}
	return errors.Join(g.serve(ctx), g.close())
}

// serve answers clients until ctx ends. Every goroutine that it starts has
// returned when it does.
func (g *gateway) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	defer g.closePools()
	initial, err := g.newRouting(g.cfg, listener.Addr().String(), nil)
	if err != nil {
		return err
	}
	g.route(initial)
	server := g.server(g)
	if server.TLSConfig, err = g.cfg.tls(g.log); err != nil {
		return err
	}
	var group errgroup.Group
	admin, closeAdmin, err := g.listenAdmin(&group)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after the last response
	g.start(work, &group, g.execute)
	if g.cfg.Reload != nil {
		group.Go(func() error {
			g.followConfig(work, &group)
			return nil
		})
	}
	g.checkPDPKey(ctx)
	ended := make(chan error, 1)
	group.Go(func() error {
		ended <- g.accept(server, listener)
		return nil
	})
	scheme := "http"
	if g.cfg.TLSCert != "" {
		scheme = "https"
	}
	fmt.Fprintf(os.Stderr, "listening on %s://%s%s%s\n", scheme, listener.Addr(), admin, g.warnObserved(g.cfg.ServerNames()))
	select {
	case err = <-ended:
	case <-g.trail.Failed():
		err = errors.Join(g.trail.Err(), shutdown(ctx, server))
	case <-ctx.Done():
		err = shutdown(ctx, server)
	}
	stop()
	return errors.Join(err, closeAdmin(), group.Wait())
}

// closePools ends the processes of servers, all at once.
func (g *gateway) closePools() {
	var closing sync.WaitGroup
	for pool := range g.pools {
		closing.Go(pool.Close)
	}
	closing.Wait()
}

// start starts the work that no request waits for.
func (g *gateway) start(ctx context.Context, group *errgroup.Group, execute approval.Execute) {
	group.Go(func() error {
		g.approvals.Run(ctx, execute)
		return nil
	})
	group.Go(func() error {
		g.tools.run(ctx)
		return nil
	})
	g.summarize(ctx, group)
	group.Go(func() error {
		g.trail.Prune(ctx, audit.Retention{
			Age: g.cfg.Trail.RetentionAge, Bytes: g.cfg.Trail.RetentionBytes, Keep: func() time.Duration { return g.rules.Load().limits.Longest() },
		}, g.log)
		return nil
	})
}

// accept serves clients until the server is shut down.
func (g *gateway) accept(server *http.Server, listener net.Listener) error {
	if g.cfg.TLSCert != "" {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}

// shutdownTimeout is how long responses may take once the gateway is stopped.
const shutdownTimeout = 5 * time.Second

// shutdown waits for responses that have begun. It closes streams, which would
// not end by themselves.
func shutdown(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// listenAdmin serves the admin listener, if one is configured, until it is
// closed. Text describes it for the start line.
func (g *gateway) listenAdmin(group *errgroup.Group) (text string, closes func() error, err error) {
	if g.cfg.Admin == "" {
		return "", func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", g.cfg.Admin)
	if err != nil {
		return "", nil, fmt.Errorf("admin_listen: %w", err)
	}
	server := g.server(g.admin(listener.Addr().String()))
	published := filepath.Join(g.cfg.State, trailDir, audit.AdminURLFile)
	if err := os.WriteFile(published, []byte("http://"+listener.Addr().String()+"\n"), 0o600); err != nil {
		return "", nil, errors.Join(fmt.Errorf("publish admin address: %w", err), listener.Close())
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			g.log.Error("admin listener", "error", err)
		}
		return nil
	})
	closes = func() error { return errors.Join(server.Close(), os.Remove(published)) }
	return fmt.Sprintf(" (admin http://%s)", listener.Addr()), closes, nil
}

func (g *gateway) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
}

func livez(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// connect makes the endpoint of a server.
func (g *gateway) connect(at *served, s *serverConfig, r *routing) error {
	credential, err := g.credentials(s)
	if err != nil {
		return err
	}
	secrets, err := s.secrets(g.log)
	if err != nil {
		return err
	}
	configs, err := s.TLS.configs(g.log)
	if err != nil {
		return err
	}
	url, transport := s.URL, (func(*enforce.Caller) http.RoundTripper)(nil)
	if len(s.Run.Command) > 0 {
		if at.pool, err = s.pool(cmp.Or(g.cfg.MaxReply, endpoint.MaxReply), g.log); err != nil {
			return err
		}
		g.pools[at.pool] = true
		url, transport = "http://"+s.Name+".invalid/", processTransport(at.pool)
	}
	at.server = proxy.New(proxy.Config{
		Server: s.Name, URL: url, Transport: transport, Header: s.Header, Credential: credential, TLS: configs, Narrows: s.Credential != nil, Hold: r.cfg.Approval.Hold, Secrets: secrets, Gate: g.gate, Seal: g.seal, Log: g.log,
		Callers: at.callers, FromServer: &serverMessages{g, s.Name},
		Hosts: hosts(g.cfg.Hosts, r.address), Origins: g.cfg.Origins,
		MaxBody: g.cfg.MaxBody, MaxReply: g.cfg.MaxReply,
	})
	at.handler = at.server
	return nil
}

// hosts are the names that requests may be addressed to: those of the
// configuration, and those of this host where it alone is listened on.
func hosts(configured []string, address string) []string {
	var all []string
	for _, name := range configured {
		all = append(all, strings.ToLower(name))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || !jwks.IsThisHost(host) {
		return all
	}
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		all = append(all, name+":"+port)
	}
	return all
}
