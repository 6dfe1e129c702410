package decisionlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// An Activity summarizes consecutive entries for people who watch the log.
type Activity struct {
	From    int64          `json:"from"`    // first index
	Until   int64          `json:"until"`   // index after the last
	Allowed int64          `json:"allowed"` // decisions, also of batch items
	Denied  int64          `json:"denied"`
	Omitted int64          `json:"omitted,omitzero"` // entries that Entries does not have
	Entries []ActivityItem `json:"entries"`          // the last ones, oldest first
}

// An ActivityItem is an entry in one line of a list.
type ActivityItem struct {
	Index    int64     `json:"index"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Tenant   string    `json:"tenant,omitzero"`
	Kind     Kind      `json:"kind"`
	Decision *bool     `json:"decision,omitempty"` // of a single decision
	Items    int       `json:"items,omitzero"`     // decisions of a batch, Denied of which are denials
	Denied   int       `json:"denied,omitzero"`
	Who      string    `json:"who,omitzero"`
	What     string    `json:"what,omitzero"`
	On       string    `json:"on,omitzero"`
	Event    string    `json:"event,omitzero"` // of an entry about an Access Request, or the action of one of the kind admin
	Policies []string  `json:"policies,omitempty"`
	Shadow   bool      `json:"shadow_differs,omitzero"`
}

// Readable returns the number of entries that can be read without a flush. It is at most a quarter of a second
// behind, and cheap.
func (r *Reader) Readable() int64 { return r.committed().Size }

// ReadActivity summarizes the readable entries in [from, until) that belong to one of the tenants; nil means
// all. It describes the last most of them, and counts the decisions of the others. For some tenants, Until is the
// index after their last entry: the summary says nothing about entries of others, nor that there are any.
func (r *Reader) ReadActivity(ctx context.Context, from, until int64, tenants []string, most int) (*Activity, error) {
	a := &Activity{From: from, Until: min(until, r.Readable()), Entries: []ActivityItem{}}
	own := []int64{} // nil would select every entry
	var failed error
	err := r.inPlace(ctx, from, a.Until, func(n int64, line, _ []byte) bool {
		head := headOf(line)
		if tenants != nil && !slices.Contains(tenants, string(head.tenant)) {
			return true
		}
		own = append(own, n)
		failed = a.count(head.kind, line)
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if tenants != nil {
		a.Until = from
		if len(own) > 0 {
			a.Until = own[len(own)-1] + 1
		}
	}
	shown := own[max(0, len(own)-most):]
	a.Omitted = int64(len(own) - len(shown))
	for line, err := range r.Select(ctx, Filter{Indexes: shown}) {
		if err != nil {
			return nil, err
		}
		item, err := activityItem(line)
		if err != nil {
			return nil, err
		}
		a.Entries = append(a.Entries, item)
	}
	return a, nil
}

// A lineHead has the members of a line before its request, as they are written.
type lineHead struct{ tenant, kind []byte }

// headOf finds the members in place: the line has them in a fixed order, and no text before the kind contains
// an unescaped quotation mark. A tenant's name needs no escapes.
func headOf(line []byte) (h lineHead) {
	head, rest, _ := bytes.Cut(line, []byte(`,"kind":"`))
	h.kind, _, _ = bytes.Cut(rest, []byte{'"'})
	if _, tenant, found := bytes.Cut(head, []byte(`,"tenant":"`)); found {
		h.tenant, _, _ = bytes.Cut(tenant, []byte{'"'})
	}
	return h
}

// count counts the decisions of a line. The member of the only decision in a line needs no decoding.
func (a *Activity) count(kind, line []byte) error {
	const member = `"decision":`
	switch Kind(kind) {
	case KindEvaluation:
		if bytes.Count(line, []byte(member)) == 1 {
			a.add(line[bytes.Index(line, []byte(member))+len(member)] == 't')
			return nil
		}
	case KindEvaluations:
	default:
		return nil
	}
	var s summary
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	for _, result := range s.results() {
		a.add(*result.Decision)
	}
	return nil
}

func (a *Activity) add(decision bool) {
	if decision {
		a.Allowed++
	} else {
		a.Denied++
	}
}

// activityItem describes the entry of a line.
func activityItem(line []byte) (ActivityItem, error) {
	rows, err := ReadDecisions(line)
	if err != nil {
		return ActivityItem{}, err
	}
	first := rows[0]
	item := ActivityItem{
		Index: first.Index, ID: first.Entry.ID, Time: first.Time, Tenant: first.Tenant, Kind: first.Kind,
		Who: cmp.Or(first.Subject.ID, first.Caller), What: first.Action, On: first.Resource.ID, Event: first.Approval.Event,
	}
	if len(first.Approval.Approvers) > 0 && first.Kind == KindApproval {
		item.Who = first.Approval.Approvers[0]
	}
	if first.Kind == KindAdmin {
		var act adminAction
		_ = json.Unmarshal(first.Request, &act) // an entry of another form has no event
		item.Event = act.Action
	}
	if first.Kind == KindEvaluations {
		item.Items = len(rows)
	}
	for _, row := range rows {
		if row.Result == nil {
			continue
		}
		if item.Items == 0 {
			item.Decision, item.Policies = &row.Result.Decision, row.Result.Policies
		} else if !row.Result.Decision {
			item.Denied++
		}
		item.Shadow = item.Shadow || row.Result.Shadow != nil && row.Result.Shadow.Decision != row.Result.Decision
	}
	return item, nil
}
