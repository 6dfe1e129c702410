package pdp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/filereload"
)

// listenConsole opens the console's listener, if it has one.
func (l *listeners) listenConsole(c Config) (err error) {
	s := c.Console
	if s.Listen == "" {
		return nil
	}
	if s.TLSCert != "" {
		own, err := filereload.NewCertificate(s.TLSCert, s.TLSKey, filereload.Config{Log: c.Log})
		if err != nil {
			return fmt.Errorf("console: %w", err)
		}
		l.consoleTLS = serverTLS(own)
	}
	at, err := s.ListenTCP()
	if err != nil {
		return err
	}
	l.console, l.consoleURL = newConnections(smallBufferListener{at}, c.Limits, true), s.BaseURL(at.Addr())
	return nil
}

// consoleHandler returns the handler of the console's listener. It has an admin API of its own, which
// no network reaches: requests to it carry the identity of a person who is signed in.
func (s *server) consoleHandler(reloads *reloader) (handler http.Handler, unpublish func(), err error) {
	if s.listeners.console == nil {
		return http.NotFoundHandler(), func() {}, nil
	}
	admin := newEcho(s.config.Log)
	s.adminRoutes(admin, reloads)
	pages, err := console.New(console.Config{
		Settings:     s.config.Console,
		BaseURL:      s.listeners.consoleURL,
		Admin:        admin,
		ApproverType: s.approverType(),
		Local:        isLoopback(s.listeners.console.Addr()) && !s.config.Console.BehindProxy,
		Notifies:     !s.config.Notify.Off(),
		Record:       s.recordAct,
		Log:          s.config.Log,
		Answers:      s.metrics.lastHour.Answers,
		Transport:    s.metrics.outgoing("sign in", http.DefaultTransport),
	})
	if err != nil {
		return nil, nil, err
	}
	reloads.pages = pages
	base, err := url.Parse(s.listeners.consoleURL)
	if err != nil {
		return nil, nil, fmt.Errorf("console: %w", err)
	}
	e := newEcho(s.config.Log)
	e.Pre(refuseNames("console.url", hostNames{plainHost(base.Hostname())}))
	e.Any("/*", echo.WrapHandler(pages))
	unpublish, err = pages.Publish(s.config.State)
	return e, unpublish, err
}

// recordAct appends an entry about what a person did at the console.
func (s *server) recordAct(ctx context.Context, by console.Identity, act console.Act) error {
	entry, err := adminEntry(act)
	if err != nil {
		return err
	}
	entry.Caller = by.ID
	return s.log.Append(ctx, entry)
}
