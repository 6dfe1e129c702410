package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// maxBatch is the number of decisions in one question.
const maxBatch = 50

// A List is a server's answer to a list method, for one caller.
type List struct {
	Server string
	Method string // tools/list, prompts/list, resources/list or resources/templates/list
	Result jsontext.Value
	// Question returns the question about an item by its name or URI; nil shows the
	// item without a question. An error hides the item, unless ShowAll is set.
	Question func(name string, item jsontext.Value) (*authzen.EvaluationRequest, error)
	// Ask asks the PDP; client.Client.Evaluations does. An answer of nil shows the items.
	Ask func(context.Context, *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error)
	// TTL is how long the caller may keep the answer.
	TTL time.Duration
	// ShowAll shows items about which there is no question. Tools that must not be
	// called are left out all the same.
	ShowAll bool
}

// Filter returns the list with the items that the caller may use, perhaps after an
// approval. Only this caller may cache it. Filter stores the listed items first, and
// leaves out those that the operator has to accept.
func (c *Catalog) Filter(ctx context.Context, l List) (jsontext.Value, error) {
	kind, ok := kindOf(l.Method)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not a list", ErrUnreadable, l.Method)
	}
	answer, err := readList(kind.items, l.Result)
	if err != nil {
		return nil, err
	}
	if err := c.observe(l.Server, kind, answer.items); err != nil {
		return nil, err
	}
	candidates, err := c.candidates(l, kind, answer.items)
	if err != nil {
		return nil, err
	}
	if err := decide(ctx, l, candidates); err != nil {
		return nil, err
	}
	seen := []jsontext.Value{}
	for _, candidate := range candidates {
		if !candidate.seen {
			continue
		}
		item := candidate.item
		if candidate.lacks {
			if item, err = needing(item); err != nil {
				return nil, err
			}
		}
		seen = append(seen, item)
	}
	return answer.with(kind.items, seen, l.TTL)
}

// A candidate is an item that the decisions may show.
type candidate struct {
	item     jsontext.Value
	question *authzen.EvaluationRequest
	seen     bool
	lacks    bool // a capability, which the caller can ask for
}

func (c *Catalog) candidates(l List, k itemKind, items []jsontext.Value) (all []*candidate, err error) {
	for _, item := range items {
		name, err := nameOf(item, k.name)
		if err != nil {
			return nil, err
		}
		if _, err := c.standing(l.Server+k.list, name); isWithheld(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		question, err := l.Question(name, item)
		if err != nil && !l.ShowAll {
			continue
		}
		if err != nil {
			question = nil
		}
		all = append(all, &candidate{item: item, question: question, seen: question == nil})
	}
	return all, nil
}

func nameOf(item jsontext.Value, naming string) (string, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(item, &members); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	var name string
	if err := json.Unmarshal(members[naming], &name); err != nil || name == "" {
		return "", fmt.Errorf("%w: an item has no %s", ErrUnreadable, naming)
	}
	return name, nil
}

// decide asks about the candidates, [maxBatch] at a time.
func decide(ctx context.Context, l List, all []*candidate) error {
	var asked []*candidate
	batch := &authzen.EvaluationsRequest{}
	ask := func() error {
		if len(asked) == 0 {
			return nil
		}
		answer, err := l.Ask(ctx, batch)
		if err != nil {
			return err
		}
		if answer != nil && len(answer.Evaluations) != len(asked) {
			return fmt.Errorf("%w: %d decisions for %d items", ErrUnreadable, len(answer.Evaluations), len(asked))
		}
		for i, candidate := range asked {
			candidate.seen = answer == nil || shows(&answer.Evaluations[i])
			candidate.lacks = answer != nil && lacksCapability(&answer.Evaluations[i])
		}
		asked, batch = nil, &authzen.EvaluationsRequest{}
		return nil
	}
	for _, candidate := range all {
		if candidate.question == nil {
			continue
		}
		item, err := json.Marshal(candidate.question)
		if err != nil {
			return fmt.Errorf("write question: %w", err)
		}
		asked, batch.Evaluations = append(asked, candidate), append(batch.Evaluations, item)
		if len(asked) == maxBatch {
			if err := ask(); err != nil {
				return err
			}
		}
	}
	return ask()
}

// shows reports whether the caller may use an item, perhaps after an approval or with a
// capability.
func shows(d *authzen.Decision) bool {
	return d.Decision || d.Context != nil && d.Context.AccessRequest != nil || lacksCapability(d)
}

func lacksCapability(d *authzen.Decision) bool {
	return !d.Decision && d.Context != nil && d.Context.CapabilityRequest != nil
}

// metaCapability is the member of _meta of an item that needs a capability.
const metaCapability = "io.github.policy-service/capability"

// needing returns an item that says that its caller needs a capability, and holds none.
func needing(item jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(item)
	if err != nil {
		return nil, err
	}
	meta := jsonobject.Object{}
	if members["_meta"].Kind() == '{' {
		if meta, err = jsonobject.Parse(members["_meta"]); err != nil {
			return nil, err
		}
	}
	meta[metaCapability] = jsontext.Value(`{"required":true,"held":null}`)
	if err := members.Set("_meta", meta); err != nil {
		return nil, err
	}
	return members.Encode()
}

// A list is a parsed result.
type list struct {
	members jsonobject.Object
	items   []jsontext.Value
	next    string // cursor; "" at the end
}

// readList parses a result with items.
func readList(items string, result jsontext.Value) (*list, error) {
	l := &list{}
	if result.Kind() != '{' {
		return nil, fmt.Errorf("%w: it is not an object", ErrUnreadable)
	}
	var err error
	if l.members, err = jsonobject.Parse(result); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if l.members[items].Kind() != '[' {
		return nil, fmt.Errorf("%w: it has no %s", ErrUnreadable, items)
	}
	if err := json.Unmarshal(l.members[items], &l.items); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if cursor := l.members["nextCursor"]; cursor != nil && cursor.Kind() != 'n' {
		if err := json.Unmarshal(cursor, &l.next); err != nil {
			return nil, fmt.Errorf("%w: nextCursor: %w", ErrUnreadable, err)
		}
	}
	return l, nil
}

// with returns the result with other items. It marks the result as private, because
// a result without a cache scope is public.
func (l *list) with(name string, items []jsontext.Value, ttl time.Duration) (jsontext.Value, error) {
	text, err := json.Marshal(items)
	if err != nil {
		return nil, fmt.Errorf("write list: %w", err)
	}
	l.members[name], l.members["cacheScope"] = text, jsontext.Value(`"private"`)
	if said := l.members["ttlMs"]; said != nil {
		most := ttl.Milliseconds()
		var sent int64
		if err := json.Unmarshal(said, &sent); err == nil && sent >= 0 {
			most = min(most, sent)
		}
		l.members["ttlMs"] = fmt.Appendf(nil, "%d", most)
	}
	return l.members.Encode()
}
