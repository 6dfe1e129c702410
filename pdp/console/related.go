package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
)

const (
	relatedReach = 10_000 // entries before and behind an entry among which those of the same request are searched
	relatedRows  = 20     // of each search
)

// A relatedEntries are further entries of the same request as an entry: by its request id, its trace, or its
// access request.
type relatedEntries struct {
	Rows  []logRow // the newest first
	Reach int64    // see relatedReach
}

// related returns the entries of the same request near an entry.
func (v *visit) related(of logRow) (out relatedEntries, err error) {
	at := of.Record.Index
	out.Reach = relatedReach
	for name, value := range map[string]string{"request_id": of.RequestID, "trace_id": of.TraceID, "task": of.Approval.Task} {
		if value == "" {
			continue
		}
		query := url.Values{
			name: {value}, "limit": {strconv.Itoa(relatedRows)}, "look": {strconv.Itoa(2 * relatedReach)},
			"from": {strconv.FormatInt(max(0, at-relatedReach), 10)}, "until": {strconv.FormatInt(at+relatedReach, 10)},
		}
		answer, err := v.read(apiLogQuery + "?" + query.Encode())
		if err != nil {
			return out, err
		}
		rows, err := logRows(answer.body.Bytes())
		if err != nil {
			return out, err
		}
		out.Rows = append(out.Rows, rows...)
	}
	newestFirst := func(a, b logRow) int { return cmp.Compare(b.Record.Index, a.Record.Index) }
	slices.SortFunc(out.Rows, newestFirst)
	out.Rows = slices.CompactFunc(out.Rows, func(a, b logRow) bool { return newestFirst(a, b) == 0 })
	out.Rows = slices.DeleteFunc(out.Rows, func(row logRow) bool { return row.Record.Index == at })
	return out, nil
}
