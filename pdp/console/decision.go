package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

// A decisionPage is one entry of the log.
type decisionPage struct {
	logRow
	ID        string // of the decision; of a batch item with .n
	Index     string // in URLs
	Batch     []decisionlog.DecisionRow
	Request   string // of the entry, indented
	Raw       string // the line, if it was asked for
	Masked    []string
	Why       *explanation // nil for a decision that cannot be explained
	Unclear   *unexplained // why it cannot
	Try       string       // address of the page that tries the request again; "" for who may not
	SameWho   string       // address of the decisions of the same subject
	SameTrace string       // and of the same trace
	Related   relatedEntries
}

// An explanation is that of the admin API, as far as the page shows it.
type explanation struct {
	Decision    bool              `json:"decision"`
	Revision    string            `json:"revision"`
	Principal   string            `json:"principal"`
	Action      string            `json:"action"`
	Resource    string            `json:"resource"`
	Because     string            `json:"because"`
	Determining []explainedPolicy `json:"determining"`
	Overruled   []explainedPolicy `json:"overruled"`
	Errors      []explainedPolicy `json:"errors"`
	Nearest     []explainedPolicy `json:"nearest"`
	NearestLeft int               `json:"nearest_left"`
	Unknown     []struct {
		Name string `json:"name"`
		What string `json:"what"`
		Hint string `json:"hint"`
	} `json:"unknown"`
	Ignored []struct {
		Path   string `json:"path"`
		Sent   string `json:"sent"`
		Counts string `json:"counts"`
	} `json:"ignored"`
	Withheld []struct {
		Policy   string `json:"policy"`
		Template string `json:"template"` // of an approval
		Because  string `json:"because"`
	} `json:"withheld"`
	Suggestions []struct {
		Policy string   `json:"policy"`
		Then   string   `json:"then"`
		Needs  []string `json:"needs"`
	} `json:"suggestions"`
	Shadow *struct {
		Revision string   `json:"revision"`
		Decision bool     `json:"decision"`
		Policies []string `json:"policies"`
	} `json:"shadow"`
}

// Asks reports whether the decision asks for the approval of a person.
func (e *explanation) Asks() bool {
	for _, withheld := range e.Withheld {
		if withheld.Template != "" {
			return true
		}
	}
	return false
}

// An explainedPolicy is a policy with what became of its conditions.
type explainedPolicy struct {
	Policy     string               `json:"policy"`
	Effect     string               `json:"effect"`
	File       string               `json:"file"`
	Line       int                  `json:"line"`
	Verdict    string               `json:"verdict"`
	Conditions []explainedCondition `json:"conditions"`
	Text       string               `json:"text"`
	Reason     string               `json:"reason_admin"`
	Part       string               `json:"part"`
	Because    string               `json:"because"`
}

type explainedCondition struct {
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Verdict string `json:"verdict"`
	Error   string `json:"error"`
	Read    []struct {
		Path  string `json:"path"`
		Value string `json:"value"`
	} `json:"read"`
}

// An unexplained says why a decision cannot be explained, as the admin API does.
type unexplained struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Masked  *struct {
		Path   string `json:"path"`
		Policy string `json:"policy"`
	} `json:"masked"`
	Different *struct {
		Was conclusion `json:"was"`
		Is  conclusion `json:"is"`
	} `json:"different"`
}

type conclusion struct {
	Decision bool     `json:"decision"`
	Policies []string `json:"policies"`
}

// decision shows one entry.
func (v *visit) decision() error {
	id := v.r.PathValue("id")
	answer, err := v.read(apiLogEntries + url.PathEscape(id))
	var problem *apiError
	if errors.As(err, &problem) && problem.Status == http.StatusGone {
		return v.show(http.StatusGone, "pruned", "Entry "+id, id)
	}
	if err != nil {
		return err
	}
	line := answer.body.Bytes()
	page := decisionPage{ID: id}
	if page.logRow, err = rowOf(line); err != nil {
		return err
	}
	if err := page.describe(line, id); err != nil {
		return err
	}
	if v.r.URL.Query().Has("raw") {
		page.Raw = plain.Lines(string(line))
	} else if page.Related, err = v.related(page.logRow); err != nil {
		return err
	}
	if page.Result != nil && len(page.Batch) == 0 {
		if err := v.explainInto(&page); err != nil {
			return err
		}
		if v.may(scopeAdmin) && page.Kind != decisionlog.KindReload {
			page.Try = "/try?" + url.Values{"from": {page.ID}}.Encode()
		}
	}
	return v.show(http.StatusOK, "decision", "Entry "+page.Index, page)
}

// describe sets what follows from the line alone.
func (p *decisionPage) describe(line []byte, id string) error {
	rows, err := decisionlog.ReadDecisions(line)
	if err != nil {
		return err
	}
	p.Index = strconv.FormatInt(p.Record.Index, 10)
	_, number, isItem := strings.Cut(id, ".")
	n, err := strconv.Atoi(number)
	switch {
	case isItem && err == nil && n < len(rows):
		p.DecisionRow, p.ID, p.Items = rows[n], id, 0
		p.logRow.Action = rows[n].Action
	case p.Items > 0:
		p.Batch, p.ID = rows, p.Entry.ID
	default:
		p.ID = p.Entry.ID
	}
	indented := jsontext.Value(p.Entry.Request).Clone()
	if len(indented) > 0 {
		if err := indented.Indent(jsontext.WithIndent("  ")); err != nil {
			return err
		}
	}
	p.Request, p.Masked = plain.Lines(string(indented)), p.Entry.Masked
	if p.Subject.ID != "" {
		p.SameWho = "/decisions?" + url.Values{"subject": {p.Subject.String()}}.Encode()
	}
	if p.TraceID != "" {
		p.SameTrace = "/decisions?" + url.Values{"trace_id": {p.TraceID}}.Encode()
	}
	return nil
}

// explainInto asks why the decision was made.
func (v *visit) explainInto(page *decisionPage) error {
	answer, err := v.read(apiLogEntries + url.PathEscape(page.ID) + "/explanation")
	var problem *apiError
	if errors.As(err, &problem) && problem.Status == http.StatusUnprocessableEntity {
		page.Unclear = new(unexplained)
		return json.Unmarshal(answer.body.Bytes(), page.Unclear)
	}
	if err != nil {
		return err
	}
	page.Why = new(explanation)
	return json.Unmarshal(answer.body.Bytes(), page.Why)
}

// A sourceLine is a line of a policy, with the verdict of what is in it.
type sourceLine struct {
	Number  int
	Text    string
	Verdict string // true, false, error or "": a line that decides nothing
	Note    string // the values that a condition read
}

// Source returns the lines of the policy with what became of them.
func (p explainedPolicy) Source() (lines []sourceLine) {
	scope := true
	for i, text := range strings.Split(strings.TrimRight(p.Text, "\n"), "\n") {
		line := sourceLine{Number: p.Line + i, Text: plain.Text(text)}
		if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "when") || strings.HasPrefix(trimmed, "unless") {
			scope = false
		}
		if scope {
			line.Verdict = p.scopeVerdict(text)
		}
		for _, c := range p.Conditions {
			if line.Number >= c.Line && line.Number <= c.Line+strings.Count(c.Text, "\n") {
				line.add(c, line.Number == c.Line)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// add adds the verdict of a condition. The worst one colours the line.
func (l *sourceLine) add(c explainedCondition, first bool) {
	if c.Verdict == "true" && l.Verdict == "" || c.Verdict == "false" || c.Verdict == "error" {
		l.Verdict = c.Verdict
	}
	if !first || c.Verdict != "false" && c.Verdict != "error" {
		return
	}
	var notes []string
	for _, r := range c.Read {
		notes = append(notes, r.Path+" is "+r.Value)
	}
	if c.Error != "" {
		notes = append(notes, c.Error)
	}
	l.Note = plain.Text(strings.Join(notes, ", "))
}

// scopeVerdict returns the verdict of a line of the scope.
func (p explainedPolicy) scopeVerdict(text string) string {
	for _, part := range []string{"principal", "action", "resource"} {
		if strings.Contains(text, part) && !strings.HasPrefix(strings.TrimSpace(text), "@") {
			if part == p.Part {
				return "false"
			}
			if p.Part == "" || !strings.Contains(text, p.Part) {
				return "true"
			}
		}
	}
	return ""
}

// testOfDecision relays a test file that expects the decision.
func (v *visit) testOfDecision() error {
	return v.relay(apiLogEntries + url.PathEscape(v.r.PathValue("id")) + "/test")
}

// evidence relays the evidence pack of an entry.
func (v *visit) evidence() error {
	return v.relay(apiLogEntries + url.PathEscape(v.r.PathValue("id")) + "/evidence")
}

// export takes the query of a search from a form: an export is an entry, which a GET request must not make.
func (v *visit) export() error {
	query, err := url.ParseQuery(v.r.PostFormValue("query"))
	if err != nil {
		query = url.Values{"query": {"unreadable"}} // which the admin API refuses
	}
	query.Set("format", v.r.PostFormValue("format"))
	return v.relay(apiLogExport + "?" + query.Encode())
}

// proof and keys relay what the browser needs to verify an entry.
func (v *visit) proof() error {
	return v.relay("/admin/v1/log/proof?" + url.Values{"index": {v.r.PathValue("index")}}.Encode())
}

func (v *visit) keys() error { return v.relay("/admin/v1/log/keys") }
