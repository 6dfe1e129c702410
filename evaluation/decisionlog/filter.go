package decisionlog

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Filter selects entries. The zero Filter selects all. A Filter selects a batch as a whole if any
// item satisfies the condition.
type Filter struct {
	From     int64     `json:"from,omitzero"`  // first index
	Until    int64     `json:"until,omitzero"` // index after the last; 0 means the head
	Since    time.Time `json:"since,omitzero"` // earliest time of a decision
	Before   time.Time `json:"before,omitzero"`
	Tenant   string    `json:"tenant,omitzero"`
	Tenants  []string  `json:"tenants,omitempty"` // any of these; nil means all
	Subject  string    `json:"subject,omitzero"`  // an id, or one with its type: type:id, type::id or type::"id"
	Decision *bool     `json:"decision,omitzero"`
	Policy   string    `json:"policy,omitzero"` // a policy that determined the decision
	ID       string    `json:"id,omitzero"`     // Decision-ID; the id of an item selects its batch
	Kind     Kind      `json:"kind,omitzero"`

	Resource  string `json:"resource,omitzero"` // in the forms of Subject; may hold together with Action of one item
	Action    string `json:"action,omitzero"`
	RequestID string `json:"request_id,omitzero"`
	TraceID   string `json:"trace_id,omitzero"`
	Task      string `json:"task,omitzero"`   // entries of an Access Request, and evaluations by its approval
	Shadow    string `json:"shadow,omitzero"` // [ShadowDiffers]: the shadow policies decided otherwise
	Errors    bool   `json:"errors,omitzero"` // a policy could not be evaluated

	Indexes []int64 `json:"indexes,omitempty"` // exactly these, in ascending order; nil means all
}

// ShadowDiffers is the only value of Filter.Shadow.
const ShadowDiffers = "differs"

// SelectsAll reports whether f selects every entry between its indexes.
func (f Filter) SelectsAll() bool {
	return f.Since.IsZero() && f.Before.IsZero() && f.Tenant == "" && f.Tenants == nil && f.Subject == "" &&
		f.Decision == nil && f.Policy == "" && f.ID == "" && f.Kind == "" &&
		f.Resource == "" && f.Action == "" && f.RequestID == "" && f.TraceID == "" && f.Task == "" && f.Shadow == "" && !f.Errors && f.Indexes == nil
}

// A summary has the members of a line that a Filter uses.
type summary struct {
	Index     int64           `json:"index"`
	ID        string          `json:"id"`
	Time      time.Time       `json:"time"`
	Tenant    string          `json:"tenant"`
	Kind      Kind            `json:"kind"`
	Request   jsontext.Value  `json:"request"`
	RequestID string          `json:"request_id"`
	TraceID   string          `json:"trace_id"`
	Items     []resultSummary `json:"evaluations"`
	resultSummary
}

// A resultSummary has the members of a result that a Filter uses.
type resultSummary struct {
	Decision *bool          `json:"decision"`
	Policies []string       `json:"policies"`
	Errors   jsontext.Value `json:"errors"`
	Approval struct {
		Task string `json:"task"`
	} `json:"approval"`
	Shadow *struct {
		Decision bool `json:"decision"`
	} `json:"shadow"`
}

// Match reports whether f selects the entry of a line. It ignores the index.
func (f Filter) Match(line []byte) (bool, error) {
	if f.SelectsAll() {
		return true, nil
	}
	if f.ID != "" && !f.hasID(line) || !f.hasTexts(line) {
		return false, nil
	}
	var s summary
	if err := json.Unmarshal(line, &s); err != nil {
		return false, err
	}
	return f.matches(&s), nil
}

// hasID reports whether the id of a line matches the filter. The id is the first member after the
// index.
func (f Filter) hasID(line []byte) bool {
	id, _, _ := strings.Cut(f.ID, ".")
	_, rest, _ := bytes.Cut(line, []byte{','})
	begin, err := jsontext.AppendQuote([]byte(`"id":`), id)
	return err == nil && bytes.HasPrefix(rest, begin)
}

// hasTexts reports whether a line may match the filters for which an entry must have a certain text. The
// log writes these texts in one form only, so that most entries need not be decoded.
func (f Filter) hasTexts(line []byte) bool {
	for _, text := range []string{f.RequestID, f.TraceID, f.Task} {
		quoted, err := jsontext.AppendQuote(nil, text)
		if err != nil || text != "" && !bytes.Contains(line, quoted) {
			return false
		}
	}
	return (f.Shadow == "" || bytes.Contains(line, []byte(`"shadow":{`))) && (!f.Errors || bytes.Contains(line, []byte(`"errors":[`)))
}

func (f Filter) matches(s *summary) bool {
	id, _, _ := strings.Cut(f.ID, ".")
	return (f.Since.IsZero() || !s.Time.Before(f.Since)) &&
		(f.Before.IsZero() || s.Time.Before(f.Before)) &&
		(f.Tenant == "" || s.Tenant == f.Tenant) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, s.Tenant)) &&
		(f.Kind == "" || s.Kind == f.Kind) &&
		(f.ID == "" || s.ID == id) &&
		(f.RequestID == "" || s.RequestID == f.RequestID) &&
		(f.TraceID == "" || s.TraceID == f.TraceID) &&
		f.matchesRequest(s) && f.matchesResult(s)
}

// matchesRequest reports whether the request has the subject, and an item of it both the action and the
// resource.
func (f Filter) matchesRequest(s *summary) bool {
	if f.Subject == "" && f.Action == "" && f.Resource == "" && f.Task == "" {
		return true
	}
	r := s.parts()
	return (f.Subject == "" || slices.ContainsFunc(r.subjects(), func(s subject) bool { return isEntity(f.Subject, s) })) &&
		(f.Action == "" && f.Resource == "" || slices.ContainsFunc(r.all(), f.matchesPart)) &&
		(f.Task == "" || r.Task == f.Task || slices.ContainsFunc(s.results(), func(r resultSummary) bool { return r.Approval.Task == f.Task }))
}

func (f Filter) matchesPart(r requestParts) bool {
	return (f.Action == "" || r.Action != nil && r.Action.Name == f.Action) &&
		(f.Resource == "" || r.Resource != nil && isEntity(f.Resource, *r.Resource))
}

// matchesResult reports whether a single result satisfies all conditions on results.
func (f Filter) matchesResult(s *summary) bool {
	if f.Decision == nil && f.Policy == "" && f.Shadow == "" && !f.Errors {
		return true
	}
	return slices.ContainsFunc(s.results(), f.matchesOne)
}

func (f Filter) matchesOne(r resultSummary) bool {
	return (f.Decision == nil || *f.Decision == *r.Decision) &&
		(f.Policy == "" || slices.Contains(r.Policies, f.Policy)) &&
		(f.Shadow == "" || r.Shadow != nil && r.Shadow.Decision != *r.Decision) &&
		(!f.Errors || len(r.Errors) > 0)
}

// results returns the results of the entry: that of a decision, or those of a batch.
func (s *summary) results() []resultSummary {
	all := s.Items
	if s.Decision != nil {
		all = append(all, s.resultSummary)
	}
	return slices.DeleteFunc(all, func(r resultSummary) bool { return r.Decision == nil })
}

// isEntity reports whether a text of a filter names an entity.
func isEntity(text string, e subject) bool {
	if text == e.ID {
		return true
	}
	id, typed := strings.CutPrefix(text, e.Type+":")
	if !typed || e == (subject{}) {
		return false
	}
	return id == e.ID || id == ":"+e.ID || id == ":"+strconv.Quote(e.ID)
}

// A requestSummary has the members of a request that a Filter uses. An entry about an Access Request has
// its task, and items of its own.
type requestSummary struct {
	requestParts
	Task  string         `json:"task"`
	Asked []requestParts `json:"items"`
}

// parts reads the request. A request of another form has no parts.
func (s *summary) parts() (r requestSummary) {
	if err := json.Unmarshal(s.Request, &r); err != nil {
		return requestSummary{}
	}
	return r
}

// subjects returns the subjects of the request and of its items.
func (r requestSummary) subjects() (all []subject) {
	for _, a := range append(r.Items, r.requestParts) {
		if a.Subject != nil {
			all = append(all, *a.Subject)
		}
	}
	return all
}

// all returns the request and its items, which have the defaults of the request.
func (r requestSummary) all() []requestParts {
	all := append(r.Asked, r.requestParts)
	for i := range r.Items {
		all = append(all, r.item(i))
	}
	return all
}
