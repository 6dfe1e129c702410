package pdp

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Limits of a summary: runes of one name or id, runes of a text, and bytes of arguments. Longer
// arguments are left out.
const (
	maxSummaryName      = 128
	maxSummaryText      = 512
	maxSummaryArguments = 64 << 10
)

// A summarized has the parts of a summary, with values that look like secrets masked as in the log.
type summarized struct {
	Action    string         `json:"action"`
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Arguments jsontext.Value `json:"arguments,omitzero"` // object
	Text      string         `json:"text,omitzero"`      // replaces Arguments
}

// summary returns the action, resource and arguments of the first item in one line, and the number
// of further items.
func (d *approvalsHandler) summary(r *approval.Request) (string, error) {
	about, err := d.summarized(r)
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("%s %s::%s", named(about.Action), named(about.Type), plain.Lines(strconv.Quote(plain.Cut(about.ID, maxSummaryName))))
	if arguments := about.arguments(); arguments != "" {
		out += " (" + arguments + ")"
	}
	if more := len(r.Items) - 1; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out + askedTerms(r), nil
}

// arguments returns the arguments in one line.
func (s *summarized) arguments() string {
	return cmp.Or(plain.Members(s.Arguments), plain.Cut(plain.Text(s.Text), maxSummaryText))
}

// summarized returns the parts of a summary.
func (d *approvalsHandler) summarized(r *approval.Request) (about summarized, err error) {
	about = summarized{Action: r.Items[0].Action.Name, Type: r.Items[0].Resource.Type, ID: r.Items[0].Resource.ID}
	about.Arguments, about.Text = argumentsOf(r)
	text, err := json.Marshal(about)
	if err == nil {
		text, err = d.mask(text)
	}
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		return about, fmt.Errorf("summarize request: %w", err)
	}
	return about, nil
}

// askedTerms returns for how long and how many uses a capability is requested, or "" for other requests.
func askedTerms(r *approval.Request) string {
	var asked struct {
		Duration int64 `json:"duration"` // seconds
		MaxUses  int64 `json:"max_uses"`
	}
	if r.Items[0].Action.Name != authzen.ActionCapabilityRequest || json.Unmarshal(r.Context, &asked) != nil {
		return ""
	}
	out := fmt.Sprintf(" for %s", time.Duration(asked.Duration)*time.Second)
	if asked.MaxUses > 0 {
		out += fmt.Sprintf(", %d uses", asked.MaxUses)
	}
	return out
}

// named returns a name, in quotation marks unless it is one word, cut to the length limit of a summary.
func named(name string) string { return plain.Name(plain.Cut(name, maxSummaryName)) }

// argumentsOf returns the arguments of the first item, or the text that describes them. It uses the
// member arguments or param_summary of the action, the resource or the context. Otherwise it uses
// the properties of the action.
func argumentsOf(r *approval.Request) (arguments jsontext.Value, text string) {
	item := &r.Items[0]
	if item.Edit != nil {
		return short(item.Edit.Arguments)
	}
	for _, place := range []jsontext.Value{item.Action.Properties, item.Resource.Properties, r.Context} {
		var has struct {
			Arguments jsontext.Value `json:"arguments"`
			Summary   any            `json:"param_summary"`
		}
		if place == nil || json.Unmarshal(place, &has) != nil {
			continue
		}
		if has.Arguments.Kind() == '{' {
			return short(has.Arguments)
		}
		if said, ok := has.Summary.(string); ok {
			return nil, said
		}
	}
	return short(item.Action.Properties)
}

// short returns arguments, or a text in their place if they are too long.
func short(arguments jsontext.Value) (jsontext.Value, string) {
	if len(arguments) > maxSummaryArguments {
		return nil, "…"
	}
	return arguments, ""
}
