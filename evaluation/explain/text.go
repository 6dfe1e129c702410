package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// Limits on the text of an explanation, to fit on a screen.
const (
	shownPolicies = 5
	shownSteps    = 4
	shownNames    = 5
	shownText     = 110 // characters of one value
)

// Text writes the explanation for people, in at most a screenful. The fields hold what it omits.
func (e *Explanation) Text(w io.Writer) error {
	_, err := io.WriteString(w, e.String())
	return err
}

// String returns the text that [Explanation.Text] writes.
func (e *Explanation) String() string {
	var p page
	p.line(0, "%s (%s, %s, %s)", decisionlog.DecisionString(e.Decision), e.Principal, e.Action, e.Resource)
	p.line(1, "%s", e.Because)
	p.determining(e)
	p.overruled(e)
	p.errors(e)
	p.nearest(e)
	p.unknown(e)
	p.ignored(e)
	p.withheld(e)
	p.suggestions(e)
	p.shadow(e)
	return p.String()
}

// A page builds the text of an explanation.
type page struct{ strings.Builder }

func (p *page) line(indent int, format string, args ...any) {
	p.WriteString(strings.Repeat("    ", indent))
	fmt.Fprintf(p, format+"\n", args...)
}

// section begins a section of n items and returns how many to write.
func (p *page) section(title string, n, most int) int {
	if n > 0 {
		p.line(0, "")
		p.line(0, "%s", title)
	}
	return min(n, most)
}

// rest writes how many items were omitted.
func (p *page) rest(n int) {
	if n > 0 {
		p.line(1, "… and %d more", n)
	}
}

func (p *page) policy(c Citation) { p.line(1, "%s:%d: %s %s", c.File, c.Line, c.Effect, c.Policy) }

// conditions writes the steps of a policy that applied. It omits steps that a later one implies.
func (p *page) conditions(t Trace) {
	var steps []*Step
	for i := range t.Conditions {
		if step := &t.Conditions[i]; !slices.ContainsFunc(t.Conditions[i+1:], step.presenceReadBy) {
			steps = append(steps, step)
		}
	}
	for _, step := range steps[:min(len(steps), shownSteps)] {
		p.step(t.File, step, "")
	}
	if left := len(steps) - shownSteps; left > 0 {
		p.line(2, "… and %d more conditions", left)
	}
}

func (p *page) step(file string, s *Step, what string) {
	p.line(2, "%s:%d: %s%s", file, s.Line, shortened(s.Text), what)
	for _, value := range s.values() {
		p.line(3, "%s", shortened(value))
	}
}

func (p *page) determining(e *Explanation) {
	n := p.section("determining policies", len(e.Determining), shownPolicies)
	for _, d := range e.Determining[:n] {
		p.policy(d.Citation)
		p.conditions(d.Trace)
		for _, reason := range []string{d.ReasonUser, d.ReasonAdmin} {
			if reason != "" {
				p.line(2, "reason: %s", reason)
			}
		}
	}
	p.rest(len(e.Determining) - n)
}

func (p *page) overruled(e *Explanation) {
	n := p.section("applied as well, and overruled", len(e.Overruled), shownPolicies)
	for _, t := range e.Overruled[:n] {
		p.policy(t.Citation)
	}
	p.rest(len(e.Overruled) - n)
}

func (p *page) errors(e *Explanation) {
	n := p.section("policies that could not be evaluated", len(e.Errors), shownPolicies)
	for _, t := range e.Errors[:n] {
		step := t.stop()
		p.policy(t.Citation)
		p.step(t.File, step, "")
		p.line(3, "%s", shortened(step.Error))
	}
	p.rest(len(e.Errors) - n)
}

func (p *page) nearest(e *Explanation) {
	n := p.section("nearest permits", len(e.Nearest), shownPolicies)
	for _, near := range e.Nearest[:n] {
		p.policy(near.Citation)
		if step := near.stop(); step != nil {
			p.step(near.File, step, " does not hold")
		} else {
			p.line(2, "%s", shortened(near.Because))
		}
	}
	p.rest(len(e.Nearest) - n + e.NearestLeft)
}

func (p *page) unknown(e *Explanation) {
	n := p.section("unknown names", len(e.Unknown), shownNames)
	for _, u := range e.Unknown[:n] {
		p.line(1, "%s: %s%s", u.Name, u.What, snapshot.Parenthesized(u.Hint))
	}
	p.rest(len(e.Unknown) - n)
}

func (p *page) ignored(e *Explanation) {
	n := p.section("sent, and not believed", len(e.Ignored), shownNames)
	for _, i := range e.Ignored[:n] {
		counts := shortened(i.Counts) + " counts"
		if i.Counts == absent {
			counts = "which does not count"
		}
		p.line(1, "%s: %s was sent, %s", i.Path, shortened(i.Sent), counts)
	}
	p.rest(len(e.Ignored) - n)
}

func (p *page) withheld(e *Explanation) {
	n := p.section("withheld for want of obligations", len(e.Withheld), shownNames)
	for _, w := range e.Withheld[:n] {
		what := w.Type
		if w.Template != "" {
			what = approvalBy(w.Template)
		}
		p.line(1, "%s asks for %s: %s", w.Policy, what, w.Because)
	}
	p.rest(len(e.Withheld) - n)
}

func (p *page) suggestions(e *Explanation) {
	n := p.section("what would change the answer", len(e.Suggestions), shownNames)
	for _, s := range e.Suggestions[:n] {
		p.line(1, "%s", s)
	}
	p.rest(len(e.Suggestions) - n)
}

// String returns the suggestion as one sentence.
func (s Suggestion) String() string {
	if len(s.Needs) == 0 {
		return fmt.Sprintf("%s %s", s.Policy, s.Then)
	}
	return fmt.Sprintf("%s %s, given %s", s.Policy, s.Then, strings.Join(s.Needs, " and "))
}

// shortened truncates text that would not fit on its line.
func shortened(text string) string {
	if utf8.RuneCountInString(text) <= shownText {
		return text
	}
	return string([]rune(text)[:shownText-1]) + "…"
}

// shadow writes the shadow store's decision, which has no effect.
func (p *page) shadow(e *Explanation) {
	if e.Shadow == nil {
		return
	}
	p.section("shadow "+e.Shadow.Revision, 1, 1)
	p.line(1, "%s, which nobody was told: %s", decisionlog.DecisionString(e.Shadow.Decision), Cause(&decisionlog.Result{}, &e.Shadow.Result))
}

// Cause names the policies that cause a difference.
func Cause(before, after *decisionlog.Result) string {
	switch {
	case len(after.Policies) > 0:
		return strings.Join(after.Policies, " ")
	case len(after.Errors) > 0:
		return cmp.Or(after.Errors[0].Policy, after.Errors[0].Message)
	case len(before.Policies) > 0:
		return "without " + strings.Join(before.Policies, " ")
	}
	return "no policy"
}
