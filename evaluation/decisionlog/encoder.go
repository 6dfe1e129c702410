package decisionlog

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/policy-service/policy-service/obligations/plain"
)

// Export formats.
const (
	FormatJSONL = "jsonl" // lines as recorded; the source of the other formats
	FormatCSV   = "csv"   // table with a row for each decision
	FormatOCSF  = "ocsf"  // events of the Open Cybersecurity Schema Framework, one on each line

	// FormatBundle is the format of [Reader.WriteBundle].
	FormatBundle = "bundle"
)

// An Encoder writes entries in one of the export formats.
type Encoder struct {
	encode func(line []byte) error
	flush  func() error
}

// NewEncoder returns an encoder that writes to w.
func NewEncoder(w io.Writer, format string) (*Encoder, error) {
	out := bufio.NewWriterSize(w, 1<<16)
	switch format {
	case FormatJSONL:
		return &Encoder{func(line []byte) error { return writeLine(out, line) }, out.Flush}, nil
	case FormatCSV:
		return newCSV(w)
	case FormatOCSF:
		return &Encoder{func(line []byte) error { return writeEvents(out, line) }, out.Flush}, nil
	}
	return nil, fmt.Errorf("format %q: want %s, %s or %s", format, FormatJSONL, FormatCSV, FormatOCSF)
}

// Encode writes the entry of a line of the log.
func (e *Encoder) Encode(line []byte) error { return e.encode(line) }

// Flush writes buffered output.
func (e *Encoder) Flush() error { return e.flush() }

// Index returns the index at the beginning of a line of the log.
func Index(line []byte) (n int64, ok bool) { return lineIndex(line) }

// columns of the table. A cell with a list separates its values by spaces.
var columns = []string{
	"index", "id", "time", "tenant", "kind", "subject_type", "subject_id", "action", "resource_type", "resource_id",
	"decision", "policies", "errors", "obligations", "revision", "caller", "request_id", "trace_id", "latency_us",
	"shadow_decision", "shadow_policies", "shadow_errors", "shadow_revision",
	"event", "task", "task_status", "approval", "template", "approvers", "channel", "comment", "reason", "approved_until", "used_by",
	"capability",
}

func newCSV(w io.Writer) (*Encoder, error) {
	table := csv.NewWriter(w)
	encode := func(line []byte) error {
		rows, err := ReadDecisions(line)
		for _, row := range rows {
			if err == nil {
				err = table.Write(row.cells())
			}
		}
		return err
	}
	flush := func() error { table.Flush(); return table.Error() }
	return &Encoder{encode, flush}, table.Write(columns)
}

// TimeLayout is the format of times in tables. All times have the same width, so the order of the
// text is the order of time.
const TimeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// cells returns the cells of a decision in the order of columns.
func (d DecisionRow) cells() []string {
	var decision, shadowDecision string
	var result Result
	if d.Result != nil {
		result = *d.Result
		decision = strconv.FormatBool(result.Decision)
	}
	var shadow Shadow
	if result.Shadow != nil {
		shadow = *result.Shadow
		shadowDecision = strconv.FormatBool(shadow.Decision)
	}
	cells := []string{
		strconv.FormatInt(d.Index, 10), d.ID, d.Time.Format(TimeLayout), d.Tenant, string(d.Kind),
		d.Subject.Type, d.Subject.ID, d.Action, d.Resource.Type, d.Resource.ID,
		decision, strings.Join(result.Policies, " "), strings.Join(result.errors(), "; "), strings.Join(result.obligations(), " "),
		d.Revision, d.Caller, d.RequestID, d.TraceID, strconv.FormatInt(d.LatencyMicros, 10),
		shadowDecision, strings.Join(shadow.Policies, " "), strings.Join(shadow.errors(), "; "), shadow.Revision,
	}
	cells = append(append(cells, d.Approval.cells()...), d.Capability)
	for i, cell := range cells {
		cells[i] = inert(cell)
	}
	return cells
}

// cells returns the cells for the columns about an approval.
func (a Approval) cells() []string {
	var until string
	if a.Until != nil {
		until = a.Until.Format(TimeLayout)
	}
	return []string{
		a.Event, a.Task, a.Status, a.ID, a.Template, strings.Join(a.Approvers, " "), a.Channel, a.Comment, a.Reason, until, a.UsedBy,
	}
}

// errors returns the errors of a result as text.
func (r Result) errors() (all []string) {
	for _, e := range r.Errors {
		all = append(all, strings.TrimPrefix(e.Policy+": "+e.Message, ": "))
	}
	return all
}

// obligations returns the types of a result's obligations.
func (r Result) obligations() (all []string) {
	for _, o := range r.Obligations {
		all = append(all, string(o.Type))
	}
	return all
}

// inert escapes text from callers. Otherwise a spreadsheet could run it as a formula, also if the first
// character is full-width, or control characters could change what a reader sees.
func inert(cell string) string {
	cell = plain.Lines(cell)
	if first, _ := utf8.DecodeRuneInString(cell); strings.ContainsRune("=+-@\t\r\uFF1D\uFF0B\uFF0D\uFF20", first) {
		return "'" + cell
	}
	return cell
}
