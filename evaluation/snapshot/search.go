package snapshot

import (
	"context"
	"errors"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// The variables that a search can leave unknown.
const (
	ForSubject  = "subject"
	ForAction   = "action"
	ForResource = "resource"
)

// A SearchQuery is a request in which one entity is unknown, or known only by type.
type SearchQuery struct {
	For     string
	Request authzen.EvaluationRequest
}

// Candidates is a superset of the results of a search. A candidate is identified by its position, which
// is the same for every search for the same kind and type in the same snapshot.
type Candidates struct {
	Positions []int32 // ascending
	name      func(candidate int32) string
	query     func(candidate int32) (*Query, error)
}

// SearchCandidates returns the candidates of a search. An unknown type or action has none. The error is
// an *[authzen.ValidationError] as for [Snapshot.Decide].
func (s *Snapshot) SearchCandidates(q *SearchQuery, env Environment) (*Candidates, error) {
	for _, sent := range []string{q.Request.Subject.Type, q.Request.Resource.Type} {
		if _, err := s.Settings.entityType(sent); err != nil {
			return &Candidates{}, nil
		}
	}
	if q.For == ForAction {
		return s.actionCandidates(q.Request, env)
	}
	return s.entityCandidates(q, env)
}

// actionCandidates returns the actions as candidates. The action determines the types of the request.
// An action for which the request is invalid is not a candidate. If there is no other action, the
// request is invalid.
func (s *Snapshot) actionCandidates(r authzen.EvaluationRequest, env Environment) (*Candidates, error) {
	var queries []*Query
	var all Candidates
	var invalid error
	for i, name := range s.Actions.Names {
		about := r
		about.Action.Name = name
		q, err := s.NewQuery(&about, env)
		if err != nil && invalid == nil {
			invalid = err
		}
		if err == nil && q.Denied == "" {
			all.Positions = append(all.Positions, int32(i))
		}
		queries = append(queries, q)
	}
	if len(all.Positions) == 0 && invalid != nil {
		return nil, invalid
	}
	all.name = func(i int32) string { return s.Actions.Names[i] }
	all.query = func(i int32) (*Query, error) { return queries[i], nil }
	return &all, nil
}

// entityCandidates returns the stored entities of the searched type as candidates. Decisions use their
// stored data. For an entity that is also the request's subject or resource, the properties in the
// request apply as well.
func (s *Snapshot) entityCandidates(q *SearchQuery, env Environment) (*Candidates, error) {
	open, err := s.openQuery(q, env)
	if err != nil || open == nil {
		return &Candidates{}, err
	}
	searched, other := &open.Request.Resource, open.Request.Principal
	if q.For == ForSubject {
		searched, other = &open.Request.Principal, open.Request.Resource
	}
	population := s.entityIndexes[searched.Type]
	if population == nil || s.refuseEntity(other) != "" {
		return &Candidates{}, nil
	}
	perTool := s.contextDependsOn(q)
	positions := population.all()
	if !perTool {
		positions = s.prefiltered(q, open, population, other)
	}
	return &Candidates{
		Positions: positions,
		name:      func(i int32) string { return string(population.uids[i].ID) },
		query: func(i int32) (*Query, error) {
			uid := population.uids[i]
			about := q.about(string(uid.ID))
			if perTool {
				return s.NewQuery(about, env)
			}
			if uid == other {
				return s.NewQuery(about, env)
			}
			*searched, open.evaluation = uid, about
			return open, nil
		},
	}, nil
}

// about returns the request with the unknown entity set to id.
func (q *SearchQuery) about(id string) *authzen.EvaluationRequest {
	r := q.Request
	if q.For == ForSubject {
		r.Subject.ID = id
	} else {
		r.Resource.ID = id
	}
	return &r
}

// prefiltered returns the positions of the candidates that a permit can match. It always includes the
// other entity of the request.
func (s *Snapshot) prefiltered(q *SearchQuery, open *Query, all *entityIndex, other cedar.EntityUID) []int32 {
	b := prefilter{entityIndex: all, unknown: "resource", query: open}
	if q.For == ForSubject {
		b.unknown = "principal"
	}
	permitted := union(b.permitted(&s.Policies), b.single(other))
	if permitted.all {
		return all.all()
	}
	return permitted.positions
}

// openQuery converts a search to Cedar, except for the unknown entity. It returns nil if no entity of
// that type can be part of such a request.
func (s *Snapshot) openQuery(q *SearchQuery, env Environment) (*Query, error) {
	request, err := s.cedarRequest(&q.Request)
	if err != nil || s.refuse(request) != "" {
		return nil, err
	}
	out := &Query{Store: s.Entities, Request: request}
	if q.For == ForSubject {
		err = s.overlay(out, "/resource/properties", request.Resource, q.Request.Resource.Properties, nil)
	} else {
		err = s.overlay(out, "/subject/properties", request.Principal, q.Request.Subject.Properties, s.Settings.Parents)
	}
	if err != nil {
		return nil, err
	}
	return out, s.context(out, &q.Request, env)
}

// A SearchResult is a name and the obligations that the PEP must meet before it uses it.
type SearchResult struct {
	Name        string
	Obligations []authzen.Obligation
}

// SearchResults is one page of results. If there may be more, they begin at Next.
type SearchResults struct {
	Results []SearchResult
	More    bool
	Next    int32
}

// SearchLimits limits one page of results.
type SearchLimits struct{ Results, Bytes, Candidates int }

// Search decides candidates in order, from position from on. It stops at a limit on results, bytes or
// candidates.
func (s *Snapshot) Search(ctx context.Context, a *Candidates, from int32, m SearchLimits) (*SearchResults, error) {
	out := &SearchResults{}
	first, _ := slices.BinarySearch(a.Positions, from)
	todo := a.Positions[first:]
	until := NewTimeBudget(ctx, min(len(todo), m.Candidates), m.Results)
	bytes := 0
	for i, candidate := range todo {
		if i%checkEvery == 0 {
			if err := until.Check(ctx, i, len(out.Results)); err != nil {
				return nil, err
			}
		}
		if i == m.Candidates {
			out.More, out.Next = true, candidate
			break
		}
		obligations, granted, err := s.permitsCandidate(a, candidate)
		switch {
		case err != nil:
			return nil, err
		case !granted:
			continue
		case len(out.Results) == m.Results || len(out.Results) > 0 && bytes > m.Bytes:
			out.More, out.Next = true, candidate
			return out, nil
		}
		PrefixObligations(obligations, ItemPrefix(len(out.Results)))
		h := SearchResult{a.name(candidate), obligations}
		out.Results = append(out.Results, h)
		bytes += h.size()
	}
	return out, nil
}

// size returns the approximate size of a result in bytes.
func (h *SearchResult) size() int {
	return authzen.FoundEntity{ID: h.Name, Obligations: h.Obligations}.Size()
}

// permitsCandidate reports whether a candidate is a result, for a PEP that can meet the obligations.
func (s *Snapshot) permitsCandidate(a *Candidates, candidate int32) (obligations []authzen.Obligation, granted bool, err error) {
	q, err := a.query(candidate)
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) { // the properties in the request contradict stored data
		return nil, false, nil
	}
	if err != nil || q.Denied != "" {
		return nil, false, err
	}
	out := s.DecideQuery(q)
	unmet := slices.ContainsFunc(out.Obligations, func(o authzen.Obligation) bool { return !q.Support.Has(o.Type) })
	return out.Obligations, out.Decision && !unmet, nil
}
