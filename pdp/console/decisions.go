package console

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// Paths of the admin API that these pages ask.
const (
	apiLogQuery   = "/admin/v1/log/query"
	apiLogEntries = "/admin/v1/log/entries/"
	apiLogExport  = "/admin/v1/log/export"
)

const (
	decisionRows = 50
	decisionLook = 100_000
)

// A decisionsPage is a page of the search.
type decisionsPage struct {
	Query    searchForm
	Rows     []logRow // the newest first
	From     int64    // every selected entry from here
	Until    int64    // up to, not including, this one is in Rows
	Older    string   // address of the page that goes on; "" at the beginning of the log
	Exports  string   // query of exports
	Filtered bool
	Partial  bool // the person sees some tenants: the range would only say how long the log of all is
	Kinds    []decisionlog.Kind
}

// A searchForm has the fields of the search, as they are in the URL.
type searchForm struct {
	Subject, Resource, Action, Policy, Decision, Kind, Tenant, Since, Before string
	ID, RequestID, TraceID, Task, Shadow, Errors, Until                      string
}

// fields are the parameters of the search: those of the admin API.
func (f *searchForm) fields() map[string]*string {
	return map[string]*string{
		"subject": &f.Subject, "resource": &f.Resource, "action": &f.Action, "policy": &f.Policy, "decision": &f.Decision, "kind": &f.Kind, "tenant": &f.Tenant,
		"since": &f.Since, "before": &f.Before, "id": &f.ID, "request_id": &f.RequestID, "trace_id": &f.TraceID, "task": &f.Task, "shadow": &f.Shadow,
		"errors": &f.Errors, "until": &f.Until,
	}
}

// More reports whether a field is set that the page does not show at first.
func (f searchForm) More() bool {
	return f.Resource+f.Policy+f.Kind+f.Action+f.Tenant+f.Since+f.Before+f.RequestID+f.TraceID+f.Task+f.Shadow+f.Errors != ""
}

// searched reads the fields of a query, and returns it without those that are empty. Times are RFC 3339, or as
// browsers have them, in UTC.
func searched(q url.Values) (f searchForm, query url.Values) {
	query = make(url.Values)
	for name, field := range f.fields() {
		if *field = strings.TrimSpace(q.Get(name)); *field == "" {
			continue
		}
		query.Set(name, *field)
		if name == "since" || name == "before" {
			if t, err := time.Parse("2006-01-02T15:04", *field); err == nil {
				query.Set(name, t.Format(time.RFC3339))
			}
		}
	}
	return f, query
}

// decisions searches the log. The query is that of the admin API, so the URL can be shared.
func (v *visit) decisions() error {
	form, query := searched(v.r.URL.Query())
	if to := exactly(form); to != "" {
		v.redirect(to)
		return nil
	}
	page := decisionsPage{Query: form, Kinds: decisionlog.Kinds, Partial: v.session.identity.Tenants != nil}
	filter := cloneWithout(query, "until")
	page.Exports, page.Filtered = filter.Encode(), len(filter) > 0
	query.Set("limit", strconv.Itoa(decisionRows))
	query.Set("look", strconv.Itoa(decisionLook))
	answer, err := v.read(apiLogQuery + "?" + query.Encode())
	if err != nil {
		return err
	}
	if page.Rows, err = logRows(answer.body.Bytes()); err != nil {
		return err
	}
	if _, err := fmt.Sscanf(answer.header.Get("Log-Looked-At"), "%d-%d", &page.From, &page.Until); err != nil {
		return fmt.Errorf("read how far the search looked: %w", err)
	}
	if answer.header.Get("Log-More") != "" {
		filter.Set("until", strconv.FormatInt(page.From, 10))
		page.Older = "/decisions?" + filter.Encode()
	}
	return v.show(http.StatusOK, "decisions", "Decisions", page)
}

// exactly returns the page of the one thing that a search names, or "".
func exactly(f searchForm) string {
	switch {
	case f.ID != "":
		return "/decisions/" + url.PathEscape(f.ID)
	case strings.HasPrefix(f.Subject, "arq_"):
		return "/tasks/" + url.PathEscape(f.Subject)
	case len(f.Subject) >= 36 && strings.Count(f.Subject[:36], "-") == 4 && !strings.Contains(f.Subject, ":"):
		if _, ok := decisionlog.IDTime(f.Subject[:36]); ok {
			return "/decisions/" + url.PathEscape(f.Subject)
		}
	}
	return ""
}

func cloneWithout(q url.Values, name string) url.Values {
	out := make(url.Values)
	for key, values := range q {
		if key != name {
			out[key] = values
		}
	}
	return out
}

// tasks shows the history of an Access Request: who asked, who decided, and what used the approval.
func (v *visit) task() error {
	id := v.r.PathValue("id")
	query := url.Values{"task": {id}, "limit": {"200"}, "look": {strconv.Itoa(decisionLook)}}
	answer, err := v.read(apiLogQuery + "?" + query.Encode())
	if err != nil {
		return err
	}
	rows, err := logRows(answer.body.Bytes())
	if err != nil {
		return err
	}
	denials, err := v.denials(rows)
	if err != nil {
		return err
	}
	page := taskPage{ID: id, Rows: append(rows, denials...), More: answer.header.Get("Log-More") != ""}
	return v.show(http.StatusOK, "task", "History of a request", page)
}

// denials returns the entries of the denials that an Access Request began with, the newest first. Those that the
// log does not have any more are left out.
func (v *visit) denials(rows []logRow) (all []logRow, err error) {
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Approval.Event != "submit" {
			continue
		}
		var submitted struct {
			Items []struct {
				EvaluationID string `json:"evaluation_id"`
			} `json:"items"`
		}
		if err := json.Unmarshal(row.Entry.Request, &submitted); err != nil {
			return nil, fmt.Errorf("read entry %s: %w", row.Entry.ID, err)
		}
		for _, item := range submitted.Items {
			id, _, _ := strings.Cut(item.EvaluationID, ".")
			if id == "" || seen[id] || len(seen) == mostDenials {
				continue
			}
			seen[id] = true
			answer, err := v.read(apiLogEntries + url.PathEscape(id))
			if isRefusal(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			denial, err := rowOf(answer.body.Bytes())
			if err != nil {
				return nil, err
			}
			all = append(all, denial)
		}
	}
	slices.SortFunc(all, func(a, b logRow) int { return cmp.Compare(b.Record.Index, a.Record.Index) })
	return all, nil
}

// mostDenials is the maximum number of denials in the history of an Access Request.
const mostDenials = 20

type taskPage struct {
	ID   string
	Rows []logRow // the newest first
	More bool     // older entries were not looked at
}

// A logRow is an entry in one line of a list.
type logRow struct {
	decisionlog.DecisionRow
	Items  int // decisions of a batch, Denied of which are denials
	Denied int
	Shadow string // what the shadow policies decide, if it is something else
	Action string // of the request, or of an entry of the kind admin
}

// Voter returns the id of the person who decided on an Access Request, or "".
func (r logRow) Voter() string {
	if r.Kind != decisionlog.KindApproval || len(r.Approval.Approvers) == 0 {
		return ""
	}
	_, id, _ := strings.Cut(r.Approval.Approvers[0], "::")
	return id
}

// ByService reports whether the service did what the entry is about, and nobody asked for it.
func (r logRow) ByService() bool {
	event := r.Approval.Event
	return r.Kind == decisionlog.KindRequest && event != "submit" && event != "cancel"
}

// logRows reads lines of the log, the newest first.
func logRows(lines []byte) (all []logRow, err error) {
	for line := range bytes.Lines(lines) {
		row, err := rowOf(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return nil, err
		}
		all = append([]logRow{row}, all...)
	}
	return all, nil
}

func rowOf(line []byte) (logRow, error) {
	decisions, err := decisionlog.ReadDecisions(line)
	if err != nil {
		return logRow{}, err
	}
	row := logRow{DecisionRow: decisions[0], Action: decisions[0].Action}
	if row.Kind == decisionlog.KindEvaluations {
		row.Items = len(decisions)
	}
	if row.Kind == decisionlog.KindAdmin {
		row.Action = adminAction(row.Request)
	}
	for _, d := range decisions {
		if d.Result == nil {
			continue
		}
		if !d.Result.Decision {
			row.Denied++
		}
		if shadow := d.Result.Shadow; shadow != nil && shadow.Decision != d.Result.Decision {
			row.Shadow = decisionlog.DecisionString(shadow.Decision)
		}
	}
	return row, nil
}
