package decisionlog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxLine is the maximum length of a line in bytes.
const maxLine = 16 << 20

// A Kind names what an entry records.
type Kind string

// Kinds of entries.
const (
	KindEvaluation  Kind = "evaluation"
	KindEvaluations Kind = "evaluations"
	KindSearch      Kind = "search"
	KindReload      Kind = "reload"
	KindRequest     Kind = "request"
	KindApproval    Kind = "approval"
	KindCapability  Kind = "capability"
	KindAdmin       Kind = "admin"
	KindPruned      Kind = "pruned" // the entries {"from", "until"} were removed; their hashes remain

	// The kinds of the trail of an MCP gateway, which is a log of its own.
	KindGatewayCall    Kind = "gateway.call"    // a call will be forwarded
	KindGatewayOutcome Kind = "gateway.outcome" // how a forwarded call ended
	KindGatewayRefused Kind = "gateway.refused" // a call was not forwarded
	KindGatewayPending Kind = "gateway.pending" // ids of all forwarded calls without an outcome
)

// Kinds lists all kinds of entries.
var Kinds = []Kind{
	KindEvaluation, KindEvaluations, KindSearch, KindReload, KindRequest, KindApproval, KindCapability, KindAdmin, KindPruned,
	KindGatewayCall, KindGatewayOutcome, KindGatewayRefused, KindGatewayPending,
}

// ParseKind parses the name of a kind.
func ParseKind(text string) (Kind, error) {
	if k := Kind(text); slices.Contains(Kinds, k) {
		return k, nil
	}
	return "", fmt.Errorf("kind %q that there is not: want one of %s", text, strings.Join(KindNames(), ", "))
}

// KindNames returns the names of all kinds.
func KindNames() []string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return names
}

// An Entry is one line of the log: a request, its answer, and everything the answer depended on.
// The log adds the index as first member. The other members have the order of the fields.
type Entry struct {
	ID            string         `json:"id"`   // Decision-ID
	Time          time.Time      `json:"time"` // of the environment, in UTC
	Tenant        string         `json:"tenant,omitzero"`
	Kind          Kind           `json:"kind"`
	Request       jsontext.Value `json:"request,omitzero"` // as received, without insignificant white space
	*Result                      // of a single evaluation
	Evaluations   []Result       `json:"evaluations,omitempty"` // one for each item of a batch; the id of item n is ID.n
	Search        *Search        `json:"search,omitempty"`
	Revision      string         `json:"revision,omitzero"` // stored by KeepArchive before an entry names it
	Caller        string         `json:"caller,omitzero"`
	RequestID     string         `json:"request_id,omitzero"`
	TraceID       string         `json:"trace_id,omitzero"`
	LatencyMicros int64          `json:"latency_us"`
	Masked        []string       `json:"masked,omitempty"` // JSON Pointers into the line
}

// A Result is one decision and how it came about.
type Result struct {
	Decision    bool                 `json:"decision"`
	Policies    []string             `json:"policies,omitempty"` // determining policies, sorted
	Errors      []PolicyError        `json:"errors,omitempty"`
	Obligations []authzen.Obligation `json:"obligations,omitempty"`
	// Approval is the approval that allowed the request. It is part of the environment.
	Approval *authzen.VerifiedApproval `json:"approval,omitzero"`
	// Capability is the capability that covered the request, and CapabilityDenied is why the one that the
	// request presented did not. Both are part of the environment.
	Capability       *authzen.VerifiedCapability `json:"capability,omitzero"`
	CapabilityDenied authzen.CapabilityReason    `json:"capability_denied,omitzero"`
	// Shadow is the decision of the shadow policies, or nil without shadow policies.
	Shadow *Shadow `json:"shadow,omitzero"`
}

// takesUse reports whether a decision of the entry spent a use of a capability, or took a proof.
func (e *Entry) takesUse() bool {
	return e.Result != nil && e.Result.takesUse() || slices.ContainsFunc(e.Evaluations, Result.takesUse)
}

func (r Result) takesUse() bool {
	return r.Capability != nil && (r.Capability.Used || r.Capability.Proof != "")
}

// DecisionString returns "allow" or "deny".
func DecisionString(decision bool) string {
	if decision {
		return "allow"
	}
	return "deny"
}

// A Shadow is the decision of the shadow policies for the same request in the same environment. It
// is recorded and never sent.
type Shadow struct {
	Revision string `json:"revision"` // stored by KeepArchive
	Result
}

// A Search is the outcome of a search. The results themselves are not recorded: they follow from
// the request and the revision.
type Search struct {
	For     string `json:"for"`     // subject, resource or action
	Results int    `json:"results"` // number of results in the answer
	More    bool   `json:"more"`    // a further page may have more results
}

// A PolicyError is the error of a policy that could not be evaluated.
type PolicyError struct {
	Policy  string `json:"policy,omitzero"`
	Message string `json:"message"`
}

// encode returns the line of e without the index. [appendIndex] adds the index when it is known.
func encode(e *Entry) ([]byte, error) {
	l := line{b: make([]byte, 0, len(e.Request)+512)}
	l.text(`"id":`, e.ID)
	l.b = e.Time.UTC().AppendFormat(append(l.b, `,"time":"`...), time.RFC3339Nano)
	l.b = append(l.b, '"')
	l.optional(`,"tenant":`, e.Tenant)
	l.text(`,"kind":`, string(e.Kind))
	l.request(e.Request)
	if e.Result != nil {
		l.b = append(l.b, ',')
		l.result(e.Result)
	}
	if len(e.Evaluations) > 0 {
		l.results(e.Evaluations)
	}
	if e.Search != nil {
		l.value(`,"search":`, e.Search)
	}
	l.optional(`,"revision":`, e.Revision)
	l.optional(`,"caller":`, e.Caller)
	l.optional(`,"request_id":`, e.RequestID)
	l.optional(`,"trace_id":`, e.TraceID)
	l.b = strconv.AppendInt(append(l.b, `,"latency_us":`...), e.LatencyMicros, 10)
	if len(e.Masked) > 0 {
		l.value(`,"masked":`, e.Masked)
	}
	l.b = append(l.b, '}')
	if l.err == nil && len(l.b) >= maxLine {
		l.err = fmt.Errorf("it has %d bytes, the log takes %d", len(l.b)+1, maxLine)
	}
	return l.b, l.err
}

// A line is written member by member. The result is that of encoding by reflection, in a fraction
// of the time.
type line struct {
	b   []byte
	err error
}

// text appends before and a string.
func (l *line) text(before, s string) {
	quoted, err := jsontext.AppendQuote(append(l.b, before...), s)
	l.b, l.err = quoted, cmp.Or(l.err, err)
}

// optional appends before and a string, unless the string is empty.
func (l *line) optional(before, s string) {
	if s != "" {
		l.text(before, s)
	}
}

// value appends before and any value.
func (l *line) value(before string, v any) {
	text, err := json.Marshal(v, jsontext.PreserveRawStrings(true))
	l.b, l.err = append(append(l.b, before...), text...), cmp.Or(l.err, err)
}

// request appends a request without insignificant white space. It appends nothing for a text that
// is not unambiguous JSON.
func (l *line) request(r jsontext.Value) {
	if r == nil {
		return
	}
	text, err := jsontext.AppendFormat(append(l.b, `,"request":`...), r, jsontext.PreserveRawStrings(true))
	l.b, l.err = text, cmp.Or(l.err, err)
}

// result appends the members of a result.
func (l *line) result(r *Result) {
	if r.Errors != nil || r.Obligations != nil || r.Approval != nil || r.Capability != nil || r.CapabilityDenied != "" || r.Shadow != nil {
		text, err := json.Marshal(r, jsontext.PreserveRawStrings(true))
		if err != nil {
			l.err = cmp.Or(l.err, err)
			return
		}
		l.b = append(l.b, text[1:len(text)-1]...)
		return
	}
	l.b = strconv.AppendBool(append(l.b, `"decision":`...), r.Decision)
	for i, policy := range r.Policies {
		before := ","
		if i == 0 {
			before = `,"policies":[`
		}
		l.text(before, policy)
	}
	if len(r.Policies) > 0 {
		l.b = append(l.b, ']')
	}
}

// results appends the results of a batch.
func (l *line) results(all []Result) {
	before := `,"evaluations":[{`
	for i := range all {
		l.b = append(l.b, before...)
		l.result(&all[i])
		before = "},{"
	}
	l.b = append(l.b, "}]"...)
}

// appendIndex appends the beginning of line n to b.
func appendIndex(b []byte, n int64) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, ',')
}
