package pdp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Paths of the admin listener that the command line uses.
const (
	PathLogExport     = "/admin/v1/log/export"
	PathLogQuery      = "/admin/v1/log/query"
	PathLogCheckpoint = "/admin/v1/log/checkpoint"
	PathLogProof      = "/admin/v1/log/proof"
	PathLogEntries    = "/admin/v1/log/entries"
	PathLogStream     = "/admin/v1/log/stream"
	PathLogKeys       = "/admin/v1/log/keys"
	PathLogRotateKey  = "/admin/v1/log/rotate-key"
	PathReload        = "/admin/v1/reload"
	PathStatus        = "/admin/v1/status"
	PathPolicies      = "/admin/v1/policies"
	PathRevisions     = "/admin/v1/revisions"
	PathTests         = "/admin/v1/tests"
	PathTry           = "/admin/v1/try"
	PathReplays       = "/admin/v1/replays"
	PathRequests      = "/admin/v1/requests"
	PathApprovals     = "/admin/v1/approvals"
	PathCapabilities  = "/admin/v1/capabilities"
)

// adminRoutes registers the routes of the admin listener. A caller for some tenants has access to
// log entries, requests and approvals of these tenants. Routes about all tenants require a caller
// for every tenant.
func (s *server) adminRoutes(e *echo.Echo, reloads *reloader) {
	engine, auth, log, metrics := s.engine, s.auth, s.log, s.config.Telemetry
	approvals := &approvalsHandler{s.approvals, s.capabilities, s.approverType(), s.engine.Asking, s.engine.IDs, log.Mask, log.Append}
	audit, approve := auth.with(ScopeAudit), auth.with(ScopeApprove, ScopeAdmin)
	e.GET("/livez", serveBlob(echo.MIMETextPlain, []byte("ok\n")))
	e.GET("/readyz", serveReady(engine, reloads, log, auth))
	if metrics.Page != nil {
		e.GET(pathMetrics, serveMetrics(metrics, auth))
	}
	e.GET(PathLogExport, serveExport(s.limits, log, s.recordAct), audit)
	e.GET(PathLogQuery, serveQuery(s.limits, log), audit)
	e.GET(PathLogCheckpoint, serveCheckpoint(log), auth.all(ScopeAudit))
	e.GET(PathLogProof, serveProof(log), audit)
	entries := &entriesHandler{limits: s.limits, log: log, engine: engine}
	e.GET(PathLogEntries+"/:"+paramID, entries.show, audit)
	e.GET(PathLogEntries+"/:"+paramID+"/explanation", entries.explain, audit)
	e.GET(PathLogEntries+"/:"+paramID+"/evidence", entries.evidence, audit)
	e.GET(PathLogEntries+"/:"+paramID+"/test", entries.test, audit)
	e.GET(PathLogStream, s.feed.serve, audit)
	e.GET(PathLogKeys, serveKeys(log), audit)
	e.POST(PathLogRotateKey, serveRotateKey(log), auth.all(ScopeAdmin))
	e.POST(PathReload, serveReload(engine, reloads), auth.all(ScopeAdmin))
	e.GET(PathReload, serveReloaded(engine, reloads), auth.all(ScopeAdmin))
	s.operatorRoutes(e)
	e.GET(PathRequests, approvals.list, approve)
	e.GET(PathRequests+"/:"+paramID, approvals.showRequest, approve)
	e.GET(PathRequests+"/:"+paramID+"/sheet", approvals.showSheet, approve)
	e.POST(PathRequests+"/:"+paramID+"/reveal", approvals.reveal, approve)
	e.POST(PathRequests+"/:"+paramID+"/decision", approvals.decide, approve)
	e.GET(PathApprovals, approvals.standing, approve)
	e.POST(PathApprovals+"/:"+paramID+"/revoke", approvals.revoke, approve)
	capabilities := &capabilityAdmin{s.capabilities, approvals}
	e.GET(PathCapabilities, capabilities.list, approve)
	e.POST(PathCapabilities, capabilities.issue, approve)
	e.POST(PathCapabilities+"/revoke", capabilities.revokeHolder, approve)
	e.GET(PathCapabilities+"/:"+paramID, capabilities.show, approve)
	e.POST(PathCapabilities+"/:"+paramID+"/revoke", capabilities.revoke, approve)
}

const pathMetrics = "/metrics"

// serveMetrics serves metrics. Series by tenant require the permission to see all tenants.
func serveMetrics(from Telemetry, auth authenticator) echo.HandlerFunc {
	return func(c echo.Context) error {
		page := from.Page
		if !auth.sees(c.Request()) {
			page = from.PublicPage
		}
		if page == nil {
			return callers.ErrForbidden
		}
		page.ServeHTTP(c.Response(), c.Request())
		return nil
	}
}

// serveReady reports whether the service can decide and record. If the last change of the policy
// store was refused, the service is ready and stale: it uses the last valid policies. A change of a
// tenant's folder concerns callers of this tenant and of all tenants. Callers who may not see every
// tenant get only the state, and its age where no tenant has a folder.
func serveReady(engine *evaluation.Engine, reloads *reloader, log *decisionlog.Log, auth authenticator) echo.HandlerFunc {
	return func(c echo.Context) error {
		verbose := c.QueryParams().Has("verbose")
		code, word := http.StatusOK, "ok"
		v, status := auth.view(c.Request()), engine.Status()
		pending := reloads.policies.pending(engine, v)
		status.Stale = v.stale(status)
		switch {
		case engine.Snapshots() == nil:
			code, word = http.StatusServiceUnavailable, snapshot.ErrNoSnapshot.Error()
		case log.Err() != nil:
			code, word = http.StatusServiceUnavailable, "the decision log has failed"
		case verbose && (status.Stale || pending > 0):
			word = "stale"
		}
		switch {
		case verbose && v.tenants != nil:
			word += describeAge(v.store(engine.Snapshots(), status).Status) + strings.TrimSuffix("\n"+describePending(pending), "\n")
		case verbose:
			word += "\n" + describeStatus(status) + describePending(pending) + describeShadow(engine.ShadowStatus()) + describeConsole(reloads) + fmt.Sprintf("log entries %d", log.Head().Size)
		}
		return c.String(code, word+"\n")
	}
}

// describeAge returns since when the policies are in force, and whether their last change was refused. Without
// the times, which those who see some tenants do not get, it says the latter alone.
func describeAge(s evaluation.Status) (text string) {
	if !s.Since.IsZero() {
		text = "\nsince " + s.Since.Format(time.RFC3339)
	}
	switch {
	case s.Stale && s.Attempt.IsZero():
		text += "\nrefused the last change"
	case s.Stale:
		text += "\nrefused " + s.Attempt.Format(time.RFC3339)
	}
	return text
}

// describeStatus returns a status as lines of name and value.
func describeStatus(s evaluation.Status) string {
	text := "revision none\n"
	if s.Revision != "" {
		text = fmt.Sprintf("revision %s\nsince %s\npolicies %d\nentities %d\n",
			s.Revision, s.Since.Format(time.RFC3339), s.Policies, s.Entities)
	}
	if len(s.Tenants) > 0 {
		text += fmt.Sprintf("tenants %s\n", strings.Join(s.Tenants, " "))
	}
	if s.Stale {
		text += "refused " + describeProblem(s)
	}
	return text
}

// describePending returns how long a change has been pending, or "".
func describePending(age time.Duration) string {
	if age == 0 {
		return ""
	}
	return fmt.Sprintf("pending %s: a change of the policy store is neither in force nor refused\n", age.Round(time.Second))
}

// describeShadow returns the status of the shadow policies, or "" without any.
func describeShadow(s evaluation.Status) (text string) {
	if s.Revision != "" {
		text = fmt.Sprintf("shadow %s\n", s.Revision)
	}
	if s.Stale {
		text += "shadow refused " + describeProblem(s)
	}
	return text
}

// describeConsole returns whether people sign in to the console by a link, or "" without a console.
func describeConsole(r *reloader) string {
	switch {
	case r.pages == nil:
		return ""
	case r.links():
		return "console links on\n"
	}
	return "console links off\n"
}

// describeProblem returns when and why a store was refused.
func describeProblem(s evaluation.Status) string {
	return fmt.Sprintf("%s\n  %s\n", s.Attempt.Format(time.RFC3339), strings.ReplaceAll(s.Problem, "\n", "\n  "))
}

// knownQuery refuses a query with an unknown or repeated parameter. A misspelled filter would
// otherwise select more than intended.
func knownQuery(c echo.Context, known ...string) error {
	if err := decisionlog.CheckParameters(c.QueryParams(), known...); err != nil {
		return authzen.Invalid("", "%v", err)
	}
	return nil
}

func indexParam(c echo.Context, name string, standard int64) (int64, error) {
	n, err := decisionlog.ParseIndex(c.QueryParams(), name, standard)
	if err != nil {
		return 0, authzen.Invalid("", "%v", err)
	}
	return n, nil
}
