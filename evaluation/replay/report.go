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
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Effect is what a candidate changes about a decision.
type Effect string

// The effects, the gravest first. A decision has the first that is true of it.
const (
	EffectAllows  Effect = "deny_to_allow"
	EffectLoses   Effect = "obligation_lost" // it still allows, and asks less
	EffectDenies  Effect = "allow_to_deny"
	EffectErrors  Effect = "new_error"
	EffectObliges Effect = "obligations_changed"
)

var effects = []Effect{EffectAllows, EffectLoses, EffectDenies, EffectErrors, EffectObliges}

// widens reports whether a PEP may do what it could not.
func (e Effect) widens() bool { return e == EffectAllows || e == EffectLoses }

// A flip is an effect, what decides now, and who asked.
type change struct {
	Effect  Effect `json:"effect"`
	Policy  string `json:"policy"` // that now decides or errs; "without " and those that no longer do, where none does
	Subject string `json:"subject"`
}

// Changes are the decisions that a candidate changes in the same way.
type Changes struct {
	change
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // Decision-IDs of the first
}

// mostExamples is how many examples there are of the same.
const mostExamples = 3

// A ReplayReport says what a candidate would have changed.
type Report struct {
	Candidate     string           `json:"candidate"`                // its revision
	Decisions     int              `json:"decisions"`                // that were compared
	Masked        int              `json:"masked"`                   // entries that cannot be decided again, because what they hide counts
	DecidedMasked int              `json:"decided_masked"`           // entries that are masked, where that does not count
	NotReplayable []*NotReplayable `json:"not_replayable,omitempty"` // the former, the most frequent first
	Unfaithful    []Unfaithful     `json:"unfaithful,omitempty"`     // entries that the policies they name do not give
	Flips         []*Changes       `json:"flips,omitempty"`          // by effect, and the most frequent first
}

// NotReplayable are entries that cannot be decided again for the same reason.
type NotReplayable struct {
	Hidden
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // Decision-IDs of the first
}

// An Unfaithful is an entry that the policies it names do not give.
type Unfaithful struct {
	Index  int64  `json:"index"`
	ID     string `json:"id"`
	Reason string `json:"reason,omitzero"` // why they give nothing; else they give another result
}

// Report returns what was found. More may be added after it.
func (r *Replay) Report() *Report {
	r.report.Flips = slices.SortedFunc(maps.Values(r.flips), func(a, b *Changes) int {
		return cmp.Or(
			cmp.Compare(slices.Index(effects, a.Effect), slices.Index(effects, b.Effect)),
			-cmp.Compare(a.Count, b.Count),
			cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Subject, b.Subject),
		)
	})
	r.report.NotReplayable = slices.SortedFunc(maps.Values(r.hidden), func(a, b *NotReplayable) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Policy, b.Policy))
	})
	return &r.report
}

// Widens reports whether the candidate allows what was denied, or asks less
// where it allows.
func (r *Report) Widens() bool {
	return slices.ContainsFunc(r.Flips, func(f *Changes) bool { return f.Effect.widens() })
}

func (r *Report) unfaithful(logged *decisionlog.Record, why error) {
	u := Unfaithful{Index: logged.Index, ID: logged.ID}
	if why != nil {
		u.Reason = why.Error()
	}
	r.Unfaithful = append(r.Unfaithful, u)
}

// compare notes how the results of an entry differ. An error means that the
// candidate cannot read the request. Of a batch that stops at another item
// only the items both have count: what stopped it is one of them.
func (r *Replay) compare(line []byte, before, after []decisionlog.Result, refused error) (err error) {
	var decisions []decisionlog.DecisionRow // read when there is something to tell of one
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
		r.add(change{effect, explain.Cause(&before[i], &after[i]), decisions[i].Subject.String()}, decisions[i].ID)
	}
	return nil
}

func (r *Replay) add(f change, id string) {
	known := r.flips[f]
	if known == nil {
		known = &Changes{change: f}
		r.flips[f] = known
	}
	known.Count++
	if len(known.Examples) < mostExamples {
		known.Examples = append(known.Examples, id)
	}
}

// EffectOf returns the gravest difference between two results, or "".
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

// contains reports whether all obligations of a are in b, whatever their ids.
func contains(a, b []authzen.Obligation) bool {
	return !slices.ContainsFunc(a, func(o authzen.Obligation) bool {
		return !slices.ContainsFunc(b, func(other authzen.Obligation) bool {
			return o.Type == other.Type && (bytes.Equal(o.Properties, other.Properties) || sameNotification(&o, &other))
		})
	})
}

// sameNotification reports whether two notifications are one in two forms of
// the profile: what one draft has as a string another has as a list, and one of
// them has no decision_subject.
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

// effectWords say what an effect is.
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
	fmt.Fprintf(out, "replayed %d decisions with %s\n", r.Decisions, r.Candidate)
	if r.DecidedMasked > 0 {
		fmt.Fprintf(out, "%d of the entries are masked where no policy reads\n", r.DecidedMasked)
	}
	if r.Masked > 0 {
		fmt.Fprintf(out, "%d entries are masked where it counts, and were left out\n", r.Masked)
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
