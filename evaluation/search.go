package evaluation

import (
	"context"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// SearchSubjects returns the stored subjects of a type that may perform an action on a resource. It
// decides each like a separate request, and records the search as one log entry.
func (e *Engine) SearchSubjects(ctx context.Context, call Call, req *authzen.SubjectSearchRequest) (*authzen.EntitySearchResponse, error) {
	q := snapshot.SearchQuery{For: snapshot.ForSubject, Request: authzen.EvaluationRequest{
		Subject: authzen.Subject{Type: req.Subject.Type}, Action: req.Action, Resource: req.Resource, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	return entitiesFound(page, req.Subject.Type, hits), nil
}

// SearchResources returns the stored resources of a type on which a subject may perform an action. See
// [Engine.SearchSubjects].
func (e *Engine) SearchResources(ctx context.Context, call Call, req *authzen.ResourceSearchRequest) (*authzen.EntitySearchResponse, error) {
	q := snapshot.SearchQuery{For: snapshot.ForResource, Request: authzen.EvaluationRequest{
		Subject: req.Subject, Action: req.Action, Resource: authzen.Resource{Type: req.Resource.Type}, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	return entitiesFound(page, req.Resource.Type, hits), nil
}

func entitiesFound(page *authzen.Page, entityType string, hits []snapshot.SearchResult) *authzen.EntitySearchResponse {
	out := &authzen.EntitySearchResponse{Page: page, Results: make([]authzen.FoundEntity, len(hits))}
	for i, h := range hits {
		out.Results[i] = authzen.FoundEntity{Type: entityType, ID: h.Name, Obligations: h.Obligations}
	}
	return out
}

// SearchActions returns the actions that a subject may perform on a resource. The candidates are the
// schema's actions or, without a schema, those that policies and entities name. See
// [Engine.SearchSubjects].
func (e *Engine) SearchActions(ctx context.Context, call Call, req *authzen.ActionSearchRequest) (*authzen.ActionSearchResponse, error) {
	q := snapshot.SearchQuery{For: snapshot.ForAction, Request: authzen.EvaluationRequest{
		Subject: req.Subject, Resource: req.Resource, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	out := &authzen.ActionSearchResponse{Page: page, Results: make([]authzen.FoundAction, len(hits))}
	for i, h := range hits {
		out.Results[i] = authzen.FoundAction{Name: h.Name, Obligations: h.Obligations}
	}
	return out, nil
}

// search performs a search and records it.
func (e *Engine) search(ctx context.Context, call Call, q *snapshot.SearchQuery, asked *authzen.PageRequest, req any) (*authzen.Page, []snapshot.SearchResult, error) {
	if err := call.checkLabels(q.Request.Context); err != nil {
		return nil, nil, err
	}
	s, start, err := e.begin(call.Tenant)
	if err != nil {
		return nil, nil, err
	}
	if asked == nil {
		asked = &authzen.PageRequest{}
	}
	token, err := newPageToken(q, asked, call.Tenant, s.Revision())
	if err != nil {
		return nil, nil, err
	}
	if err := token.resume(e.config.PageKey, asked); err != nil {
		return nil, nil, err
	}
	candidates, err := s.SearchCandidates(q, snapshot.Environment{Time: start})
	if err != nil {
		return nil, nil, err
	}
	part, err := e.results(ctx, call.Tenant, s, candidates, token)
	if err != nil {
		return nil, nil, fmt.Errorf("search: %w", err)
	}
	entry := decisionlog.Entry{Kind: decisionlog.KindSearch, Search: &decisionlog.Search{For: q.For, Results: len(part.Results), More: part.More}}
	if _, err := e.record(ctx, call.identified(), &entry, s.Revision(), start, req); err != nil {
		return nil, nil, err
	}
	return e.page(token, asked, part), part.Results, nil
}

// lightScan is the largest number of candidates that a search decides without waiting for Config.Scan.
const lightScan = 1000

// results returns one page of results.
func (e *Engine) results(ctx context.Context, tenant string, s *snapshot.Snapshot, a *snapshot.Candidates, token pageToken) (*snapshot.SearchResults, error) {
	return e.scan(ctx, tenant, s, a, token.From, snapshot.SearchLimits{Results: e.pageSize(token.Limit), Bytes: e.config.MaxAnswer, Candidates: e.config.MaxCandidates})
}

// scan decides candidates from a position on. A search over more than lightScan candidates waits for
// Config.Scan.
func (e *Engine) scan(ctx context.Context, tenant string, s *snapshot.Snapshot, a *snapshot.Candidates, from int32, limits snapshot.SearchLimits) (*snapshot.SearchResults, error) {
	if len(a.Positions) > lightScan {
		done, err := e.config.Scan(ctx, tenant)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	return s.Search(ctx, a, from, limits)
}

// pageSize returns the maximum number of results of a page: the smaller of the requested and the
// configured limit.
func (e *Engine) pageSize(asked int32) int {
	if asked == noLimit {
		return e.config.MaxResults
	}
	return min(int(asked), e.config.MaxResults)
}

// page describes one page of the results. A complete result needs no page object unless the request asked
// for a page (AuthZEN 1.0, "Paginated Responses").
func (e *Engine) page(token pageToken, asked *authzen.PageRequest, part *snapshot.SearchResults) *authzen.Page {
	if asked.Token == "" && asked.Limit == nil && !part.More {
		return nil
	}
	page := &authzen.Page{Count: len(part.Results)}
	if part.More {
		token.From = part.Next
		page.NextToken = token.seal(e.config.PageKey)
	} else if asked.Token == "" {
		page.Total = &page.Count
	}
	return page
}
