package evaluation

import (
	"context"
	"errors"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// What a question may leave open.
const (
	openSubject  = "subject"
	openAction   = "action"
	openResource = "resource"
)

// A question is a request that leaves one of its entities open; of that it has
// at most the type.
type question struct {
	open    string
	request authzen.EvaluationRequest
}

// Answers are among the candidates for what a question leaves open: all that can
// be one, and perhaps others. Each candidate is an ordinal, which is the same in every question that
// leaves the same open to the same snapshot.
type answers struct {
	candidates []int32 // ascending
	name       func(candidate int32) string
	query      func(candidate int32) (*query, error)
}

// answers returns those of a question. A type or an action that nobody knows
// has none. The error is an *[authzen.ValidationError] as for [Snapshot.Decide].
func (s *Snapshot) answers(q *question, env Environment) (*answers, error) {
	for _, sent := range []string{q.request.Subject.Type, q.request.Resource.Type} {
		if _, err := s.settings.entityType(sent); err != nil {
			return &answers{}, nil
		}
	}
	if q.open == openAction {
		return s.actionAnswers(q.request, env)
	}
	return s.entities(q, env)
}

// actionAnswers asks for each action. That one cannot be read together with the rest
// of the request, which is typed by the action, only means that it is no
// answer; that none can be means that the request is invalid.
func (s *Snapshot) actionAnswers(r authzen.EvaluationRequest, env Environment) (*answers, error) {
	var queries []*query
	var all answers
	var invalid error
	for i, name := range s.actions.names {
		about := r
		about.Action.Name = name
		q, err := s.query(&about, env)
		if err != nil && invalid == nil {
			invalid = err
		}
		if err == nil && q.refused == "" {
			all.candidates = append(all.candidates, int32(i))
		}
		queries = append(queries, q)
	}
	if len(all.candidates) == 0 && invalid != nil {
		return nil, invalid
	}
	all.name = func(i int32) string { return s.actions.names[i] }
	all.query = func(i int32) (*query, error) { return queries[i], nil }
	return &all, nil
}

// entities asks for the stored entities of the type that is searched. What is
// stored of them is what they are asked about; of one that the request itself
// describes, as its subject or its resource, that counts, too.
func (s *Snapshot) entities(q *question, env Environment) (*answers, error) {
	open, err := s.openQuery(q, env)
	if err != nil || open == nil {
		return &answers{}, err
	}
	searched, other := &open.request.Resource, open.request.Principal
	if q.open == openSubject {
		searched, other = &open.request.Principal, open.request.Resource
	}
	population := s.populations[searched.Type]
	if population == nil || s.refuseEntity(other) != "" {
		return &answers{}, nil
	}
	return &answers{
		candidates: s.candidates(q, open, population, other),
		name:       func(i int32) string { return string(population.uids[i].ID) },
		query: func(i int32) (*query, error) {
			uid := population.uids[i]
			about := q.about(string(uid.ID))
			if uid == other {
				return s.query(about, env)
			}
			*searched, open.evaluation = uid, about
			return open, nil
		},
	}, nil
}

// about returns the request that asks for one entity.
func (q *question) about(id string) *authzen.EvaluationRequest {
	r := q.request
	if q.open == openSubject {
		r.Subject.ID = id
	} else {
		r.Resource.ID = id
	}
	return &r
}

// candidates bounds the entities that can be found. The one that is the other
// entity of the request is always among them.
func (s *Snapshot) candidates(q *question, open *query, all *population, other cedar.EntityUID) []int32 {
	b := bounder{population: all, open: "resource", query: open}
	if q.open == openSubject {
		b.open = "principal"
	}
	permitted := either(b.permitted(&s.policies), b.itself(other))
	if permitted.everyone {
		return all.ordinals()
	}
	return permitted.ordinals
}

// openQuery turns a question into Cedar, all but the entity that is open. There
// is none where no entity of its type can be part of such a request.
func (s *Snapshot) openQuery(q *question, env Environment) (*query, error) {
	principal, err := s.uid("/subject", q.request.Subject)
	if err != nil {
		return nil, err
	}
	resource, err := s.uid("/resource", q.request.Resource)
	if err != nil {
		return nil, err
	}
	action, err := s.action(q.request.Action.Name)
	if err != nil {
		return nil, err
	}
	out := &query{store: s.store, request: cedar.Request{Principal: principal, Action: action, Resource: resource}}
	if s.refuse(out.request) != "" {
		return nil, nil
	}
	if q.open == openSubject {
		err = s.overlay(out, "/resource/properties", resource, q.request.Resource.Properties, nil)
	} else {
		err = s.overlay(out, "/subject/properties", principal, q.request.Subject.Properties, s.settings.Parents)
	}
	if err != nil {
		return nil, err
	}
	return out, s.context(out, &q.request, env)
}

// A hit has a name and what the PEP must do before it uses it.
type hit struct {
	name        string
	obligations []authzen.Obligation
}

// found is a part of the answers. If there may be more, they begin at next.
type found struct {
	hits []hit
	more bool
	next int32
}

// most bounds a part of the answers.
type most struct{ results, bytes, candidates int }

// find decides on candidates from one on, until it has as many answers as it
// may or has looked at as many candidates.
func (s *Snapshot) find(ctx context.Context, a *answers, from int32, m most) (*found, error) {
	out := &found{}
	first, _ := slices.BinarySearch(a.candidates, from)
	todo := a.candidates[first:]
	until := newForesight(ctx, min(len(todo), m.candidates), m.results)
	bytes := 0
	for i, candidate := range todo {
		if i%looks == 0 {
			if err := until.look(ctx, i, len(out.hits)); err != nil {
				return nil, err
			}
		}
		if i == m.candidates {
			out.more, out.next = true, candidate
			break
		}
		obligations, granted, err := s.grants(a, candidate)
		switch {
		case err != nil:
			return nil, err
		case !granted:
			continue
		case len(out.hits) == m.results || len(out.hits) > 0 && bytes > m.bytes:
			out.more, out.next = true, candidate
			return out, nil
		}
		prefix(obligations, itemPrefix(len(out.hits)))
		h := hit{a.name(candidate), obligations}
		out.hits = append(out.hits, h)
		bytes += h.size()
	}
	return out, nil
}

// size is about how many bytes of an answer a hit takes.
func (h *hit) size() int {
	return authzen.FoundEntity{ID: h.name, Obligations: h.obligations}.Size()
}

// grants reports whether a candidate is an answer, for a PEP that can meet the
// obligations.
func (s *Snapshot) grants(a *answers, candidate int32) (obligations []authzen.Obligation, granted bool, err error) {
	q, err := a.query(candidate)
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) { // what the request says of it contradicts what is known
		return nil, false, nil
	}
	if err != nil || q.refused != "" {
		return nil, false, err
	}
	out := s.decide(q)
	unmet := slices.ContainsFunc(out.Obligations, func(o authzen.Obligation) bool { return !q.support.Has(o.Type) })
	return out.Obligations, out.Decision && !unmet, nil
}
