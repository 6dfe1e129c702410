package pdp

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp/admission"
)

// operatorHandlers serve authors and operators of policies. What they keep between requests is the
// same for programs and for people at the console.
type operatorHandlers struct {
	policies *policiesHandler
	tests    *testsHandler
	tries    *triesHandler
	replays  *replays
}

func (s *server) newOperatorHandlers() *operatorHandlers {
	turn := make(chan struct{}, 1)
	return &operatorHandlers{
		policies: &policiesHandler{engine: s.engine, log: s.log},
		tests:    &testsHandler{engine: s.engine, open: s.openStore, wait: testWait},
		tries:    &triesHandler{engine: s.engine, log: s.log, rates: admission.NewRateLimits(triesPerSecond)},
		replays: newReplays(s.engine, s.log, s.config.Log, func() *pacer {
			return &pacer{answers: s.metrics.lastHour.Answers, now: time.Now, sleep: sleepFor, turn: turn}
		}),
	}
}

// operatorRoutes registers the routes for authors and operators of policies.
func (s *server) operatorRoutes(e *echo.Echo) {
	if s.operator == nil {
		s.operator = s.newOperatorHandlers()
	}
	h, admin := s.operator, s.auth.with(ScopeAdmin)
	e.GET(PathStatus, s.serveStatus, admin)
	e.GET(PathPolicies+"/:"+paramRevision, h.policies.show, admin)
	e.GET(PathPolicies+"/:"+paramRevision+"/diff/:"+paramOther, h.policies.compare, admin)
	e.GET(PathRevisions, h.policies.list, s.auth.all(ScopeAdmin))
	e.GET(PathTests, h.tests.run, admin)
	e.GET(PathTry, h.tries.start, admin)
	e.POST(PathTry, h.tries.try, admin)
	e.GET(PathReplays, h.replays.list, admin)
	e.POST(PathReplays, h.replays.post, admin)
	e.GET(PathReplays+"/:"+paramID, h.replays.get, admin)
	e.DELETE(PathReplays+"/:"+paramID, h.replays.delete, admin)
}
