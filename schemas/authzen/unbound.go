package authzen

// UnboundContext lists the members of a context that no approval is bound to: what
// is the protocol's, what only the service can say, and the time.
var UnboundContext = []string{
	"access_request", "evaluation_id", "evaluated_at", "reason",
	"approval", "capability", "justification", "supported_obligations", "time",
}
