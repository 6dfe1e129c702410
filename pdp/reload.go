package pdp

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp/console"
)

// Settings are the current values of settings that a running service can change.
type Settings struct {
	Auth    Auth
	OIDC    *console.OIDC // how people sign in to the console
	Restart []string      // changed keys of other settings, which need a restart
}

// A SettingsReport is the result of reading the settings again.
type SettingsReport struct {
	Problem string   `json:"problem,omitzero"`  // why the previous settings remain active
	Restart []string `json:"restart,omitempty"` // changed keys that need a restart
}

// A reloader reads policies and settings on request. Certificates need no request: see
// [certificate].
type reloader struct {
	engine           *evaluation.Engine
	policies, shadow *policyLoader
	who              authenticator
	listeners        *listeners
	pages            *console.Console          // nil without a console
	settings         func() (*Settings, error) // nil without settings
	credentials      *atomic.Pointer[Auth]     // follows the settings
	log              *slog.Logger

	mu sync.Mutex // serializes renew

	jobs reloadJobs
}

// links reports whether people sign in to the console by a link.
func (r *reloader) links() bool { return r.pages != nil && r.pages.Links() }

// followSignals reloads after each signal.
func (r *reloader) followSignals(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			_, _ = r.reload(ctx) // the log has the error
		case <-ctx.Done():
			return nil
		}
	}
}

// reload reads policies and settings. Its error is that of the active policies. The status of the
// shadow policies has theirs.
func (r *reloader) reload(ctx context.Context) (SettingsReport, error) {
	return r.reloadTelling(ctx, func(string) {})
}

// reloadTelling is reload with a callback for progress. It runs in goroutines without a request,
// where a panic would end the service. It returns a panic as an error.
func (r *reloader) reloadTelling(ctx context.Context, reading func(what string)) (_ SettingsReport, err error) {
	defer survive(r.log, &err)
	reading("policies")
	err = r.policies.reload(ctx)
	reading("shadow policies")
	_ = r.shadow.reload(ctx)
	reading("settings")
	return r.reloadSettings(), err
}

// reloadSettings applies the current settings. After an error it keeps the previous ones.
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
	r.credentials.Store(&now.Auth)
	warn(r.log, r.who.verifier)
	warnTenants(r.log, now.Auth, r.engine)
	r.log.Info("settings read again", "api_keys", len(now.Auth.APIKeys), "issuers", len(now.Auth.JWT), "mtls", now.Auth.MTLS != nil)
	if len(now.Restart) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", now.Restart)
	}
	report.Restart = now.Restart
	return report
}

// applySettings applies the settings, all or none.
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
	if r.pages != nil {
		if err := r.pages.Renew(now.OIDC); err != nil {
			return nil, err
		}
	}
	use()
	return now, nil
}
