package enforce

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// expected are the reasons of refusals that policies, people and clients make
// every day. The others are for the operator to look into.
var expected = []string{
	ReasonDenied, ReasonUnknownTool, ReasonArguments, ReasonPending, ReasonNotApproved, ReasonWithdrawn, ReasonSettled, ReasonUnknownMethod, ReasonTooOften,
}

// logRefusal writes one line about a refusal to the program's log.
func (g *Gate) logRefusal(ctx context.Context, call *Call, r *Refusal) {
	level := slog.LevelWarn
	if slices.Contains(expected, r.Data.Reason) {
		level = slog.LevelInfo
	}
	about := append(About(call), slog.String("reason_code", r.Data.Reason), slog.String("reason", plain.Text(cmp.Or(r.Why, r.Message))))
	if r.Data.EvaluationID != "" {
		about = append(about, slog.String("decision_id", r.Data.EvaluationID))
	}
	if task := r.Data.tasks(); task != "" {
		about = append(about, slog.String("task", task))
	}
	g.cfg.Log.LogAttrs(ctx, level, "call refused", about...)
}

// maxShown is how much of a name that a client wrote stands in a line of the log.
const maxShown = 128 // bytes

// About says in a line of the program's log which call it is about.
func About(call *Call) []slog.Attr {
	all := []slog.Attr{slog.String("server", call.Server), slog.String("method", shownName(call.Message.Method))}
	if call.Params != nil {
		if target, _ := call.Params.Target(call.Message.Method); target != "" {
			all = append(all, slog.String(kindOf(call.Message.Method), shownName(target)))
		}
	}
	if call.Caller != nil {
		all = append(all, slog.String("subject", shownName(call.Caller.Subject.Type+"::"+call.Caller.Subject.ID)))
	}
	return append(all, slog.String("request_id", call.RequestID))
}

// kindOf is what the target of a method is.
func kindOf(method string) string {
	switch method {
	case "tools/call":
		return "tool"
	case "prompts/get":
		return "prompt"
	}
	return "resource"
}

func shownName(name string) string {
	if len(name) > maxShown {
		name = name[:maxShown] + "…"
	}
	return plain.Text(name)
}

// operatorReason is what the policies say of a denial to the operator, or what the
// PDP does not take.
func operatorReason(d *authzen.Decision) string {
	if d.Context == nil {
		return ""
	}
	failed := ""
	if d.Context.Error != nil {
		failed = d.Context.Error.Message
	}
	return cmp.Or(d.Context.ReasonAdmin["en"], d.Context.ReasonUser["en"], failed)
}

// maxReasons is how many of the reasons for what a list does not show are told.
const maxReasons = 3

// logHidden logs how many items of a list the decisions hide from its caller,
// with the first reasons.
func (g *Gate) logHidden(ctx context.Context, call *Call, a *Answer) {
	hidden := 0
	var reasons []string
	for i := range a.Decisions {
		if d := &a.Decisions[i]; !d.Decision && !isRequestable(d) {
			hidden++
			if reason := cmp.Or(operatorReason(d), AccessDenied); len(reasons) < maxReasons && !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	if hidden > 0 {
		about := append(About(call), slog.Int("hidden", hidden), slog.Int("of", len(a.Decisions)),
			slog.String("reason", plain.Text(strings.Join(reasons, " "))), slog.String("decision_id", a.EvaluationID))
		if g.cfg.Observes(call.Server) {
			g.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "list would be filtered", about...)
			return
		}
		g.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "list filtered", about...)
	}
}
