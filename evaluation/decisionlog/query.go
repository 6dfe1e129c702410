package decisionlog

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// queryNames are the parameters of a query for entries.
var queryNames = []string{"from", "until", "since", "before", "tenant", "subject", "policy", "id", "kind", "decision",
	"resource", "action", "request_id", "trace_id", "task", "shadow", "errors"}

// Query returns the parameters of an HTTP query for the entries that f selects.
// [ParseQuery] is its inverse. Tenants is no parameter: the server sets it.
func (f Filter) Query() url.Values {
	q := make(url.Values)
	set := func(name, value string, present bool) {
		if present {
			q.Set(name, value)
		}
	}
	set("from", strconv.FormatInt(f.From, 10), f.From != 0)
	set("until", strconv.FormatInt(f.Until, 10), f.Until != 0)
	set("since", f.Since.Format(time.RFC3339Nano), !f.Since.IsZero())
	set("before", f.Before.Format(time.RFC3339Nano), !f.Before.IsZero())
	set("tenant", f.Tenant, f.Tenant != "")
	set("subject", f.Subject, f.Subject != "")
	set("policy", f.Policy, f.Policy != "")
	set("id", f.ID, f.ID != "")
	set("kind", string(f.Kind), f.Kind != "")
	set("resource", f.Resource, f.Resource != "")
	set("action", f.Action, f.Action != "")
	set("request_id", f.RequestID, f.RequestID != "")
	set("trace_id", f.TraceID, f.TraceID != "")
	set("task", f.Task, f.Task != "")
	set("shadow", f.Shadow, f.Shadow != "")
	set("errors", "true", f.Errors)
	if f.Decision != nil {
		q.Set("decision", DecisionString(*f.Decision))
	}
	return q
}

// ParseQuery reads the parameters of a query for entries. Besides them, a query
// may have the parameters named others. An error is a phrase that follows "the
// request", as in "has a query with "ofrom", which is not known".
func ParseQuery(q url.Values, others ...string) (f Filter, err error) {
	if err := CheckParameters(q, append(slices.Clone(queryNames), others...)...); err != nil {
		return f, err
	}
	f = Filter{
		Tenant: q.Get("tenant"), Subject: q.Get("subject"), Policy: q.Get("policy"), ID: q.Get("id"),
		Resource: q.Get("resource"), Action: q.Get("action"), RequestID: q.Get("request_id"), TraceID: q.Get("trace_id"), Task: q.Get("task"),
		Shadow: q.Get("shadow"), Errors: q.Get("errors") != "",
	}
	if f.Shadow != "" && f.Shadow != ShadowDiffers {
		return f, fmt.Errorf("has a shadow that is not %s: %q", ShadowDiffers, f.Shadow)
	}
	if word := q.Get("errors"); f.Errors && word != "true" {
		return f, fmt.Errorf("has errors that is not true: %q", word)
	}
	if kind := q.Get("kind"); kind != "" {
		if f.Kind, err = ParseKind(kind); err != nil {
			return f, fmt.Errorf("has a %w", err)
		}
	}
	if f.From, err = ParseIndex(q, "from", 0); err != nil {
		return f, err
	}
	if f.Until, err = ParseIndex(q, "until", 0); err != nil {
		return f, err
	}
	if f.Since, err = timeParameter(q, "since"); err != nil {
		return f, err
	}
	if f.Before, err = timeParameter(q, "before"); err != nil {
		return f, err
	}
	switch word := q.Get("decision"); word {
	case "":
	case DecisionString(true), DecisionString(false):
		allowed := word == DecisionString(true)
		f.Decision = &allowed
	default:
		return f, fmt.Errorf("has a decision that is neither allow nor deny: %q", word)
	}
	return f, nil
}

// CheckParameters refuses a query with an unknown parameter, or with one twice: a
// filter that is misspelled selects more than was meant.
func CheckParameters(q url.Values, known ...string) error {
	for name, values := range q {
		if !slices.Contains(known, name) {
			hint := cmp.Or(yamldoc.DidYouMean(name, known), "there are "+strings.Join(known, ", "))
			if len(known) == 0 {
				hint = "it takes none"
			}
			return fmt.Errorf("has a query with %q, which is not known: %s", name, hint)
		}
		if len(values) > 1 {
			return fmt.Errorf("has a query with %q twice", name)
		}
	}
	return nil
}

// ParseIndex reads a parameter that is an index or a count.
func ParseIndex(q url.Values, name string, standard int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("has a %s that is not an index: %q", name, text)
	}
	return n, nil
}

func timeParameter(q url.Values, name string) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("has a %s that is not a time: %q", name, text)
	}
	return t, nil
}
