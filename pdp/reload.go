package pdp

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/policy-service/policy-service/evaluation"
)

// Settings are those that a running service can follow, as they are now.
type Settings struct {
	Auth    Auth
	Restart []string // the keys of the others that have changed
}

// A SettingsReport tells how it went to read the settings again.
type SettingsReport struct {
	Problem string   `json:"problem,omitzero"`  // why the last ones go on
	Restart []string `json:"restart,omitempty"` // keys that have changed and need one
}

// A reloader reads again, when it is told to, what can change while the service
// runs. Certificates it need not: see [certificate].
type reloader struct {
	engine           *evaluation.Engine
	policies, shadow *policyLoader
	who              authenticator
	listeners        *listeners
	settings         func() (*Settings, error) // nil where there are none
	log              *slog.Logger

	mu sync.Mutex // serializes renew

	jobs reloadJobs
}

// followSignals reloads whenever a signal comes.
func (r *reloader) followSignals(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			_, _ = r.reload(ctx) // it is in the log
		case <-ctx.Done():
			return nil
		}
	}
}

// reload reads policies and settings. Its error is that of the policies in
// force; how it went with those of the shadow their status says.
func (r *reloader) reload(ctx context.Context) (SettingsReport, error) {
	return r.reloadTelling(ctx, func(string) {})
}

// reloadTelling is reload, and tells what it reads. It runs in goroutines that no
// request waits for, where a panic would end the service: a panic is its error.
func (r *reloader) reloadTelling(ctx context.Context, reading func(what string)) (_ SettingsReport, err error) {
	defer survive(r.log, &err)
	reading("policies")
	err = r.policies.reload(ctx)
	reading("shadow policies")
	_ = r.shadow.reload(ctx)
	reading("settings")
	return r.reloadSettings(), err
}

// reloadSettings follows the settings, or stays with those that there are.
func (r *reloader) reloadSettings() (report SettingsReport) {
	if r.settings == nil {
		return report
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.applySettings()
	if err != nil {
		r.log.Error("settings not read again, callers are known by the last ones", "error", err)
		report.Problem = err.Error()
		return report
	}
	warn(r.log, r.who.verifier)
	warnTenants(r.log, now.Auth, r.engine)
	r.log.Info("settings read again", "api_keys", len(now.Auth.APIKeys), "issuers", len(now.Auth.JWT), "mtls", now.Auth.MTLS != nil)
	if len(now.Restart) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", now.Restart)
	}
	report.Restart = now.Restart
	return report
}

// applySettings puts the settings into force, all or none of them.
func (r *reloader) applySettings() (*Settings, error) {
	now, err := r.settings()
	if err != nil {
		return nil, err
	}
	use, err := r.listeners.renewed(now.Auth)
	if err != nil {
		return nil, err
	}
	if err := r.who.verifier.Renew(now.Auth); err != nil {
		return nil, err
	}
	use()
	return now, nil
}
