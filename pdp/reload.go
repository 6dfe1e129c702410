package pdp

import (
	"context"
	"errors"
	"log/slog"
	"os"
)

// errRestart is a change of a setting that a running service cannot follow.
var errRestart = errors.New("this needs a restart")

// Settings are those that a running service can follow, as they are now.
type Settings struct {
	Auth    Auth
	Restart []string // the keys of the others that have changed
}

// A reloader reads again, when it is told to, what can change while the service
// runs. Certificates it need not: see [certificate].
type reloader struct {
	policies  []*supply
	who       *callers
	listeners *listeners
	settings  func() (*Settings, error) // nil where there are none
	log       *slog.Logger
}

// on reloads whenever a signal comes.
func (r *reloader) on(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			for _, s := range r.policies {
				_ = s.reload(ctx) // it is in the log
			}
			r.renew()
		case <-ctx.Done():
			return nil
		}
	}
}

// renew follows the settings, or stays with those that there are.
func (r *reloader) renew() {
	if r.settings == nil {
		return
	}
	now, err := r.settings()
	if err == nil {
		err = r.listeners.renew(now.Auth)
	}
	if err == nil {
		err = r.who.renew(now.Auth)
	}
	if err != nil {
		r.log.Error("settings not read again, callers are known by the last ones", "error", err)
		return
	}
	r.log.Info("settings read again", "api_keys", len(now.Auth.APIKeys), "issuers", len(now.Auth.JWT), "mtls", now.Auth.MTLS != nil)
	if len(now.Restart) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", now.Restart)
	}
}
