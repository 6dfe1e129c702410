package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/obligations/plain"
)

// A serviceStatus is the state of the service as the admin API has it.
type serviceStatus struct {
	State    string        `json:"state"`
	Advice   string        `json:"advice"`
	Policies storeStatus   `json:"policies"`
	Shadow   *storeStatus  `json:"shadow"`
	Changes  *storeChanges `json:"changes"`
	Waiting  int           `json:"waiting"`
	Log      *logStatus    `json:"log"`
	InFlight *int          `json:"in_flight"`
	Rates    []ratePoint   `json:"rates"`
}

// A storeStatus is the state of a policy store.
type storeStatus struct {
	Revision  string    `json:"revision"`
	Since     time.Time `json:"since"`
	Tenants   []string  `json:"tenants"`
	Policies  int       `json:"policies"`
	Entities  int       `json:"entities"`
	Stale     bool      `json:"stale"`
	Problem   string    `json:"problem"`
	Attempted time.Time `json:"attempted"`
	Faults    []fault   `json:"faults"`
}

// A fault is something wrong in a policy store.
type fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// Place returns the position of a fault as FILE:LINE:COLUMN.
func (f fault) Place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

// storeChanges are the decisions that the shadow policies would have changed.
type storeChanges struct {
	Since    time.Time        `json:"since"`
	Compared int64            `json:"compared"`
	Changes  []decisionChange `json:"changes"`
}

// A decisionChange are decisions that other policies change in the same way.
type decisionChange struct {
	Effect   string   `json:"effect"`
	Policy   string   `json:"policy"`
	Subject  string   `json:"subject"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"`

	Opens bool `json:"-"` // the person may open the examples
}

// Widens reports whether a PEP could do something that it could not do before.
func (c decisionChange) Widens() bool {
	return c.Effect == "deny_to_allow" || c.Effect == "obligation_lost"
}

type logStatus struct {
	Size    int64        `json:"size"`
	Signed  time.Time    `json:"signed"`
	Under   int64        `json:"signed_size"`
	Queued  int          `json:"queued"`
	Sinks   []sinkStatus `json:"sinks"`
	Failing time.Time    `json:"failing"`
	Problem string       `json:"problem"`
}

type sinkStatus struct {
	Kind    string `json:"kind"`
	Problem string `json:"problem"`
}

// A ratePoint has the decisions of a minute.
type ratePoint struct {
	Time         time.Time `json:"time"`
	Allowed      int64     `json:"allowed"`
	Denied       int64     `json:"denied"`
	Errors       int64     `json:"errors"`
	PolicyErrors int64     `json:"policy_errors"`
	P99          int64     `json:"p99_us"`
}

func (p ratePoint) all() int64 { return p.Allowed + p.Denied }

// shortRevision returns the first 8 hex digits of a revision.
func shortRevision(revision string) string {
	digits := strings.TrimPrefix(revision, "sha256:")
	return digits[:min(len(digits), 8)]
}

// milliseconds returns a duration in microseconds as people read it.
func milliseconds(us int64) string {
	switch ms := float64(us) / 1000; {
	case ms < 10:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}

// status asks for the state of the service.
func (v *visit) status() (s serviceStatus, err error) {
	err = v.ask(http.MethodGet, "/admin/v1/status", nil, &s)
	if s.Changes != nil {
		v.openExamples(s.Changes.Changes)
	}
	return s, err
}

// openExamples sets which examples are links: those whose pages the person may see.
func (v *visit) openExamples(changes []decisionChange) {
	for i := range changes {
		changes[i].Opens = v.may(scopeAudit)
	}
}

// An overviewPage is the state of the service on one page.
type overviewPage struct {
	serviceStatus
	Chart    *chart // nil for people of some tenants
	Tests    *testSummary
	Approves bool     // the person may open requests
	Tenants  []string // of the person; nil for all
	Audits   bool     // the person may read the log
	Newest   []logRow // entries of the log, the newest first
}

// Sum has the counts of the whole hour, and the largest 99th percentile.
func (p overviewPage) Sum() (sum ratePoint) {
	for _, point := range p.Rates {
		sum.Allowed, sum.Denied, sum.Errors = sum.Allowed+point.Allowed, sum.Denied+point.Denied, sum.Errors+point.Errors
		sum.PolicyErrors += point.PolicyErrors
		sum.P99 = max(sum.P99, point.P99)
	}
	return sum
}

// Share returns the share of denied decisions in percent, such as "6.2", or "" without decisions.
func (p overviewPage) Share() string {
	sum := p.Sum()
	if sum.all() == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", 100*float64(sum.Denied)/float64(sum.all()))
}

// LastP99 returns the percentile of the last minute with decisions, in milliseconds.
func (p overviewPage) LastP99() string {
	for i := len(p.Rates) - 1; i >= 0; i-- {
		if p.Rates[i].all() > 0 {
			return milliseconds(p.Rates[i].P99)
		}
	}
	return ""
}

// mostTopChanges is the number of changes of the shadow on the overview.
const mostTopChanges = 5

// TopChanges returns the most severe changes of the shadow policies.
func (p overviewPage) TopChanges() []decisionChange {
	if p.Changes == nil {
		return nil
	}
	return p.Changes.Changes[:min(len(p.Changes.Changes), mostTopChanges)]
}

// overview shows the state of the service.
func (v *visit) overview() error {
	page := overviewPage{Approves: v.may(scopeApprove), Tenants: v.session.identity.Tenants}
	var err error
	if page.serviceStatus, err = v.status(); err != nil {
		return err
	}
	urgent, err := page.urgent()
	if err != nil {
		return err
	}
	if seen := v.seen(); seen.shows(urgent, v.config.Now()) {
		return v.unchanged()
	}
	if page.Rates != nil {
		page.Chart = newChart(page.Rates)
	}
	if page.Tests, err = v.lastTests(); err != nil {
		return err
	}
	if page.Audits = v.may(scopeAudit); page.Audits {
		if page.Newest, err = v.newest(); err != nil {
			return err
		}
	}
	shown, err := json.Marshal(page)
	if err != nil {
		return fmt.Errorf("overview: %w", err)
	}
	if seen := v.seen(); seen.urgent == digest(urgent) && seen.whole == digest(string(shown)) {
		return v.unchanged()
	}
	v.keepUp("/", seenTag(urgent, string(shown), v.config.Now()))
	return v.show(http.StatusOK, "overview", "Overview", page)
}

// urgent returns what an open overview says at once when it changes: all but what every decision changes.
func (s serviceStatus) urgent() (string, error) {
	s.Rates, s.InFlight, s.Changes = nil, nil, nil
	if s.Log != nil {
		log := *s.Log
		log.Size, log.Under, log.Queued, log.Signed = 0, 0, 0, time.Time{}
		s.Log = &log
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("overview: %w", err)
	}
	return string(text), nil
}

// Bounds of the newest entries on the overview: how many it shows, and among how many it looks for them.
const (
	newestRows = 6
	newestLook = 100
)

// newest returns the newest entries of the log that the person may read.
func (v *visit) newest() ([]logRow, error) {
	query := url.Values{"limit": {strconv.Itoa(newestRows)}, "look": {strconv.Itoa(newestLook)}}
	answer, err := v.read(apiLogQuery + "?" + query.Encode())
	if isRefusal(err) {
		return nil, nil // the overview is useful without them
	}
	if err != nil {
		return nil, err
	}
	return logRows(answer.body.Bytes())
}

// A shadowPage compares the shadow policies with those in force.
type shadowPage struct {
	serviceStatus
}

// shadow shows what the shadow policies would change.
func (v *visit) shadow() error {
	status, err := v.status()
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "shadow", "Shadow policies", shadowPage{status})
}

// effects are the changes of a decision in words, by the names of the API.
var effects = map[string]string{
	"deny_to_allow": "Deny to allow", "obligation_lost": "Allow, with an obligation less", "allow_to_deny": "Allow to deny",
	"new_error": "New errors", "obligations_changed": "Other obligations",
}

func effectWords(effect string) string { return cmp.Or(effects[effect], effect) }

// whole returns the sum of numbers with a comma between thousands.
func whole(numbers ...int64) string {
	sum := int64(0)
	for _, n := range numbers {
		sum += n
	}
	text := strconv.FormatInt(sum, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// compact returns a number for a scale: 20k for 20,000.
func compact(n int64) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1_000_000, 'f', -1, 64) + "M"
	case n >= 10_000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1_000, 'f', -1, 64) + "k"
	}
	return whole(n)
}

// textWithTabs is plain.Text for source code, in which tabs stay.
func textWithTabs(text string) string {
	parts := strings.Split(text, "\t")
	for i := range parts {
		parts[i] = plain.Text(parts[i])
	}
	return strings.Join(parts, "\t")
}
