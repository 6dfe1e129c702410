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
}

// SelectsAll reports whether f selects every entry between its indexes.
func (f Filter) SelectsAll() bool {
	return f.Since.IsZero() && f.Before.IsZero() && f.Tenant == "" && f.Tenants == nil && f.Subject == "" &&
		f.Decision == nil && f.Policy == "" && f.ID == "" && f.Kind == ""
}

// A summary has the members of a line that a Filter uses.
type summary struct {
	Index    int64          `json:"index"`
	ID       string         `json:"id"`
	Time     time.Time      `json:"time"`
	Tenant   string         `json:"tenant"`
	Kind     Kind           `json:"kind"`
	Request  jsontext.Value `json:"request"`
	Decision *bool          `json:"decision"`
	Policies []string       `json:"policies"`
	Items    []struct {
		Decision bool     `json:"decision"`
		Policies []string `json:"policies"`
	} `json:"evaluations"`
}

// Match reports whether f selects the entry of a line. It ignores the index.
func (f Filter) Match(line []byte) (bool, error) {
	if f.SelectsAll() {
		return true, nil
	}
	if f.ID != "" && !f.hasID(line) {
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

func (f Filter) matches(s *summary) bool {
	id, _, _ := strings.Cut(f.ID, ".")
	return (f.Since.IsZero() || !s.Time.Before(f.Since)) &&
		(f.Before.IsZero() || s.Time.Before(f.Before)) &&
		(f.Tenant == "" || s.Tenant == f.Tenant) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, s.Tenant)) &&
		(f.Kind == "" || s.Kind == f.Kind) &&
		(f.ID == "" || s.ID == id) &&
		(f.Subject == "" || slices.ContainsFunc(s.subjects(), f.isSubject)) &&
		f.matchesResult(s)
}

// matchesResult reports whether a single result has both the decision and the policy of the filter.
func (f Filter) matchesResult(s *summary) bool {
	if f.Decision == nil && f.Policy == "" {
		return true
	}
	if s.Decision != nil && f.matchesOne(*s.Decision, s.Policies) {
		return true
	}
	for _, item := range s.Items {
		if f.matchesOne(item.Decision, item.Policies) {
			return true
		}
	}
	return false
}

func (f Filter) matchesOne(decision bool, policies []string) bool {
	return (f.Decision == nil || *f.Decision == decision) && (f.Policy == "" || slices.Contains(policies, f.Policy))
}

func (f Filter) isSubject(s subject) bool {
	if f.Subject == s.ID {
		return true
	}
	id, typed := strings.CutPrefix(f.Subject, s.Type+":")
	if !typed || s == (subject{}) {
		return false
	}
	return id == s.ID || id == ":"+s.ID || id == ":"+strconv.Quote(s.ID)
}

// subjects returns the subjects of the request and of its items. A request of another form has
// none.
func (s *summary) subjects() (all []subject) {
	var request requestParts
	if err := json.Unmarshal(s.Request, &request); err != nil {
		return nil
	}
	for _, a := range append(request.Items, request) {
		if a.Subject != nil {
			all = append(all, *a.Subject)
		}
	}
	return all
}
