package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Effect is the kind of change that a candidate makes to a decision.
type Effect string

// The effects, the most severe first. A decision has the first that applies.
const (
	EffectAllows  Effect = "deny_to_allow"
	EffectLoses   Effect = "obligation_lost" // it still permits, with fewer obligations
	EffectDenies  Effect = "allow_to_deny"
	EffectErrors  Effect = "new_error"
	EffectObliges Effect = "obligations_changed"
)

var effects = []Effect{EffectAllows, EffectLoses, EffectDenies, EffectErrors, EffectObliges}

// widens reports whether a PEP may do something that it could not do before.
func (e Effect) widens() bool { return e == EffectAllows || e == EffectLoses }

// A change is an effect, its cause in the candidate, and the requester.
type change struct {
	Effect  Effect `json:"effect"`
	Policy  string `json:"policy"` // the one that now decides or errs; if none does, "without " and the former ones
	Subject string `json:"subject"`
}

// Changes counts the decisions that a candidate changes in the same way.
type Changes struct {
	change
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // Decision-IDs of the first ones
}

// mostExamples is the number of examples for each kind of change.
const mostExamples = 3

// A Report describes the changes that a candidate would have made.
type Report struct {
	Candidate     string           `json:"candidate"`                // its revision
	Decisions     int              `json:"decisions"`                // number of decisions compared
	Masked        int              `json:"masked"`                   // number of entries that cannot be replayed because a masked value matters
	DecidedMasked int              `json:"decided_masked"`           // number of masked entries in which the masks do not matter
	NotReplayable []*NotReplayable `json:"not_replayable,omitempty"` // the entries of Masked, the most frequent first
	Unfaithful    []Unfaithful     `json:"unfaithful,omitempty"`     // entries whose policies do not reproduce them
	// UnfaithfulLeft is the number of such entries that Unfaithful leaves out.
	UnfaithfulLeft int        `json:"unfaithful_left,omitzero"`
	Flips          []*Changes `json:"flips,omitempty"` // by effect, the most frequent first
}

// maxUnfaithful limits the entries that a report lists.
const maxUnfaithful = 1000

// A NotReplayable counts the entries that cannot be replayed for the same reason.
type NotReplayable struct {
	Hidden
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // Decision-IDs of the first ones
}

// An Unfaithful is an entry whose policies do not reproduce it.
type Unfaithful struct {
	Index  int64  `json:"index"`
	ID     string `json:"id"`
	Reason string `json:"reason,omitzero"` // why they give no result; empty if the result differs
}

// Report returns the report so far. Add may be called after it.
func (r *Replay) Report() *Report {
	r.report.Flips = r.flips.Changes()
	r.report.NotReplayable = slices.SortedFunc(maps.Values(r.hidden), func(a, b *NotReplayable) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Policy, b.Policy))
	})
	return &r.report
}

// Widens reports whether the candidate permits what was denied, or permits with fewer obligations.
func (r *Report) Widens() bool {
	return slices.ContainsFunc(r.Flips, func(f *Changes) bool { return f.Effect.widens() })
}

func (r *Report) unfaithful(logged *decisionlog.Record, why error) {
	u := Unfaithful{Index: logged.Index, ID: logged.ID}
	if why != nil {
		u.Reason = why.Error()
	}
	if len(r.Unfaithful) >= maxUnfaithful {
		r.UnfaithfulLeft++
		return
	}
	r.Unfaithful = append(r.Unfaithful, u)
}

// compare adds the differences between the results of an entry. refused means that the candidate cannot
// read the request. If a batch stops at different items, only the items in both results count. These
// include the item at which it stopped.
func (r *Replay) compare(line []byte, before, after []decisionlog.Result, refused error) (err error) {
	var decisions []decisionlog.DecisionRow // read only if there is a difference
	for i := range before {
		switch {
		case refused != nil:
			after = append(after, decisionlog.Result{Errors: []decisionlog.PolicyError{{Message: refused.Error()}}})
		case i >= len(after):
			return nil
		}
		r.report.Decisions++
		effect := EffectOf(&before[i], &after[i])
		if effect == "" {
			continue
		}
		if decisions == nil {
			if decisions, err = decisionlog.ReadDecisions(line); err != nil {
				return err
			}
		}
		r.flips.Add(effect, explain.Cause(&before[i], &after[i]), decisions[i].Subject.String(), decisions[i].ID)
	}
	return nil
}

// EffectOf returns the most severe difference between two results, or "".
func EffectOf(before, after *decisionlog.Result) Effect {
	switch {
	case !before.Decision && after.Decision:
		return EffectAllows
	case after.Decision && !contains(before.Obligations, after.Obligations):
		return EffectLoses
	case before.Decision && !after.Decision:
		return EffectDenies
	case !errorsWithin(after.Errors, before.Errors):
		return EffectErrors
	case !contains(after.Obligations, before.Obligations) || !contains(before.Obligations, after.Obligations):
		return EffectObliges
	}
	return ""
}

// contains reports whether all obligations of a are in b. It ignores their ids.
func contains(a, b []authzen.Obligation) bool {
	return !slices.ContainsFunc(a, func(o authzen.Obligation) bool {
		return !slices.ContainsFunc(b, func(other authzen.Obligation) bool {
			return o.Type == other.Type && (bytes.Equal(o.Properties, other.Properties) || sameNotification(&o, &other))
		})
	})
}

// sameNotification reports whether two notifications are the same in two drafts of the profile. One
// draft has a string where the other has a list, and one has no decision_subject.
func sameNotification(a, b *authzen.Obligation) bool {
	var x, y authzen.NotificationObligation
	if a.Type != authzen.ObligationNotification || json.Unmarshal(a.Properties, &x) != nil || json.Unmarshal(b.Properties, &y) != nil {
		return false
	}
	about := x.DecisionSubject == nil || y.DecisionSubject == nil || bytes.Equal(x.DecisionSubject, y.DecisionSubject)
	return about && slices.Equal(x.To, y.To) && x.Body == y.Body && x.Topic == y.Topic && bytes.Equal(x.More, y.More)
}

func errorsWithin(a, b []decisionlog.PolicyError) bool {
	return !slices.ContainsFunc(a, func(e decisionlog.PolicyError) bool { return !slices.Contains(b, e) })
}

// effectWords describes the effects.
var effectWords = map[Effect]string{
	EffectAllows:  "deny → allow",
	EffectLoses:   "allow, with an obligation less",
	EffectDenies:  "allow → deny",
	EffectErrors:  "new errors",
	EffectObliges: "other obligations",
}

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "replayed %s with %s\n", plain.Count(r.Decisions, "decision", "decisions"), r.Candidate)
	if r.DecidedMasked > 0 {
		fmt.Fprintf(out, "%d of the entries are masked where no policy reads\n", r.DecidedMasked)
	}
	if r.Masked > 0 {
		fmt.Fprintf(out, "%s masked where it counts, left out\n", plain.Count(r.Masked, "entry is", "entries are"))
	}
	for _, n := range r.NotReplayable {
		fmt.Fprintf(out, "  %d\t%s\t%s\t%s\n", n.Count, n.Path, n.Policy, n.Examples[0])
	}
	for _, u := range r.Unfaithful {
		fmt.Fprintf(out, "entry %d (%s) is not what its own policies decide %s\n", u.Index, u.ID, u.Reason)
	}
	last := Effect("")
	for _, f := range r.Flips {
		if f.Effect != last {
			fmt.Fprintf(out, "%s\n", effectWords[f.Effect])
			last = f.Effect
		}
		fmt.Fprintf(out, "  %d\t%s\t%s\t%s\n", f.Count, f.Policy, f.Subject, f.Examples[0])
	}
	if len(r.Flips) == 0 {
		fmt.Fprintln(out, "no difference")
	}
	return out.Flush()
}
