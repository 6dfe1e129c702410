package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/jwks"
)

// Run serves MCP over HTTP until ctx ends.
func Run(ctx context.Context, cfg *Config) error {
	g, err := join(cfg)
	if err != nil {
		return err
	}
	return errors.Join(g.serve(ctx), g.close())
}

// serve answers clients until ctx ends.
func (g *gateway) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	routes, err := g.routes(listener.Addr().String())
	if err != nil {
		return err
	}
	server := g.server(routes)
	admin, closeAdmin, err := g.listenAdmin()
	if err != nil {
		return err
	}
	defer closeAdmin()
	go g.approvals.Run(ctx)
	g.checkPDPKey(ctx)
	ended := make(chan error, 1)
	scheme := "http"
	if server.TLSConfig, err = g.cfg.tls(); err != nil {
		return err
	}
	if g.cfg.TLSCert != "" {
		scheme = "https"
		go func() { ended <- server.ServeTLS(listener, g.cfg.TLSCert, g.cfg.TLSKey) }()
	} else {
		go func() { ended <- server.Serve(listener) }()
	}
	fmt.Fprintf(os.Stderr, "listening on %s://%s%s\n", scheme, listener.Addr(), admin)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(patience); errors.Is(err, context.DeadlineExceeded) {
		return server.Close() // streams that nobody ends
	} else if err != nil {
		return err
	}
	return nil
}

// listenAdmin serves the admin listener, where there is one, until it is closed.
// It returns what is said of it.
func (g *gateway) listenAdmin() (said string, closes func() error, err error) {
	if g.cfg.Admin == "" {
		return "", func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", g.cfg.Admin)
	if err != nil {
		return "", nil, fmt.Errorf("admin_listen: %w", err)
	}
	server := g.server(g.admin(listener.Addr().String()))
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			g.log.Error("admin listener", "error", err)
		}
	}()
	return fmt.Sprintf(" (admin http://%s)", listener.Addr()), server.Close, nil
}

func (g *gateway) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
}

func livez(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// routes are the endpoints of the servers.
func (g *gateway) routes(address string) (http.Handler, error) {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /livez", livez)
	for _, s := range g.cfg.Servers {
		if s.URL == "" {
			continue // it is run by stdio
		}
		header, err := s.header()
		if err != nil {
			return nil, err
		}
		endpoint := proxy.New(proxy.Config{
			Server: s.Name, URL: s.URL, Header: header, Gate: g.gate, Seal: g.seal, Log: g.log,
			Identify: g.callers.identify, Refuse: g.callers.refuse, OnNotification: g.onNotification, AllowRequest: g.policies[s.Name].allowsMethod,
			Hosts: hosts(g.cfg.Hosts, address), Origins: g.cfg.Origins,
			MaxBody: g.cfg.MaxBody, MaxReply: g.cfg.MaxReply,
		})
		routes.Handle(s.Endpoint(), endpoint)
		g.execute[s.Name] = func(ctx context.Context, m *wire.Message) (*wire.Message, error) {
			return endpoint.Execute(ctx, m, g.tools.called(s.Name, m))
		}
	}
	if g.callers.Verifier != nil && g.callers.MetadataPath() != "" {
		routes.HandleFunc(g.callers.MetadataPath(), g.callers.ServeMetadata)
	}
	return routes, nil
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
