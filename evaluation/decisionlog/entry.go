package decisionlog

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxLine is the longest line the log keeps, in bytes.
const maxLine = 16 << 20

// A Kind says what an entry records.
type Kind string

// The kinds of entries.
const (
	KindEvaluation  Kind = "evaluation"
	KindEvaluations Kind = "evaluations"
	KindSearch      Kind = "search"
	KindReload      Kind = "reload"
	KindRequest     Kind = "request"
	KindApproval    Kind = "approval"
	KindAdmin       Kind = "admin"
	KindPruned      Kind = "pruned" // entries {"from", "until"} are gone, all but their hashes
)

// An Entry is one line of the log: what was asked, what was answered, and all
// that the answer depended on. The members of the line are in the order of the
// fields, after the index that the log gives it.
type Entry struct {
	ID            string         `json:"id"`   // the Decision-ID
	Time          time.Time      `json:"time"` // of the environment; recorded in UTC
	Tenant        string         `json:"tenant,omitzero"`
	Kind          Kind           `json:"kind"`
	Request       jsontext.Value `json:"request,omitzero"` // as it was sent, but for white space
	*Result                      // of a single evaluation
	Evaluations   []Result       `json:"evaluations,omitempty"` // one for each item of a batch; item n is addressed as ID.n
	Search        *Search        `json:"search,omitempty"`
	Revision      string         `json:"revision,omitzero"` // kept by KeepArchive before it is named here
	Caller        string         `json:"caller,omitzero"`
	RequestID     string         `json:"request_id,omitzero"`
	TraceID       string         `json:"trace_id,omitzero"`
	LatencyMicros int64          `json:"latency_us"`
	Masked        []string       `json:"masked,omitempty"` // JSON Pointers into the line
}

// A Result is one decision and how it came about.
type Result struct {
	Decision    bool                 `json:"decision"`
	Policies    []string             `json:"policies,omitempty"` // the determining policies, sorted
	Errors      []PolicyError        `json:"errors,omitempty"`
	Obligations []authzen.Obligation `json:"obligations,omitempty"`
	// Approval is that which stood for the request, a part of the environment.
	Approval *authzen.VerifiedApproval `json:"approval,omitzero"`
	// Shadow is what a second policy store would have decided; nil without one.
	Shadow *Shadow `json:"shadow,omitzero"`
}

// A Shadow is what was decided by policies that are not in force, of the same
// request in the same environment. Nobody was told.
type Shadow struct {
	Revision string `json:"revision"` // kept by KeepArchive
	Result
}

// A Search is what came of one. What was found follows from the request and the
// revision.
type Search struct {
	For     string `json:"for"`     // what was searched: subject, resource or action
	Results int    `json:"results"` // in the answer
	More    bool   `json:"more"`    // there may be more results on a further page
}

// A PolicyError is a policy that could not be evaluated.
type PolicyError struct {
	Policy  string `json:"policy,omitzero"`
	Message string `json:"message"`
}

// encode returns the line of e without its beginning, which [appendIndex]
// makes once the index is known.
func encode(e *Entry) ([]byte, error) {
	utc := *e
	utc.Time = e.Time.UTC()
	object, err := json.Marshal(&utc, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, err
	}
	if len(object) > maxLine {
		return nil, fmt.Errorf("it has %d bytes, the log takes %d", len(object), maxLine)
	}
	return object[1:], nil
}

// appendIndex appends to b the beginning of line n.
func appendIndex(b []byte, n int64) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, ',')
}
