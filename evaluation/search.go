package evaluation

import (
	"context"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// SearchSubjects finds the stored subjects of a type that may do an action with
// a resource. Each of them has been decided on like a request of its own; the
// search is one entry of the log.
func (e *Engine) SearchSubjects(ctx context.Context, call Call, req *authzen.SubjectSearchRequest) (*authzen.EntitySearchResponse, error) {
	q := question{open: openSubject, request: authzen.EvaluationRequest{
		Subject: authzen.Subject{Type: req.Subject.Type}, Action: req.Action, Resource: req.Resource, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	return entitiesFound(page, req.Subject.Type, hits), nil
}

// SearchResources finds the stored resources of a type that a subject may do an
// action with. See [Engine.SearchSubjects].
func (e *Engine) SearchResources(ctx context.Context, call Call, req *authzen.ResourceSearchRequest) (*authzen.EntitySearchResponse, error) {
	q := question{open: openResource, request: authzen.EvaluationRequest{
		Subject: req.Subject, Action: req.Action, Resource: authzen.Resource{Type: req.Resource.Type}, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	return entitiesFound(page, req.Resource.Type, hits), nil
}

func entitiesFound(page *authzen.Page, entityType string, hits []hit) *authzen.EntitySearchResponse {
	out := &authzen.EntitySearchResponse{Page: page, Results: make([]authzen.FoundEntity, len(hits))}
	for i, h := range hits {
		out.Results[i] = authzen.FoundEntity{Type: entityType, ID: h.name, Obligations: h.obligations}
	}
	return out
}

// SearchActions finds what a subject may do with a resource, of the actions
// that the schema has or, without one, that policies and entities name. See
// [Engine.SearchSubjects].
func (e *Engine) SearchActions(ctx context.Context, call Call, req *authzen.ActionSearchRequest) (*authzen.ActionSearchResponse, error) {
	q := question{open: openAction, request: authzen.EvaluationRequest{
		Subject: req.Subject, Resource: req.Resource, Context: req.Context,
	}}
	page, hits, err := e.search(ctx, call, &q, req.Page, req)
	if err != nil {
		return nil, err
	}
	out := &authzen.ActionSearchResponse{Page: page, Results: make([]authzen.FoundAction, len(hits))}
	for i, h := range hits {
		out.Results[i] = authzen.FoundAction{Name: h.name, Obligations: h.obligations}
	}
	return out, nil
}

// search answers a question and records that it was asked.
func (e *Engine) search(ctx context.Context, call Call, q *question, asked *authzen.PageRequest, req any) (*authzen.Page, []hit, error) {
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
	candidates, err := s.answers(q, Environment{Time: start})
	if err != nil {
		return nil, nil, err
	}
	part, err := e.results(ctx, call.Tenant, s, candidates, token)
	if err != nil {
		return nil, nil, fmt.Errorf("search: %w", err)
	}
	entry := decisionlog.Entry{Kind: decisionlog.KindSearch, Search: &decisionlog.Search{For: q.open, Results: len(part.hits), More: part.more}}
	if _, err := e.record(ctx, call.identified(), &entry, s.Revision(), start, req); err != nil {
		return nil, nil, err
	}
	return e.page(token, asked, part), part.hits, nil
}

// lightScan are candidates that are decided on as soon as those of a batch.
const lightScan = 1000

// results finds the answers of a page. Many candidates wait for their turn.
func (e *Engine) results(ctx context.Context, tenant string, s *Snapshot, a *answers, token pageToken) (*found, error) {
	if len(a.candidates) > lightScan {
		done, err := e.config.Scan(ctx, tenant)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	return s.find(ctx, a, token.From, most{results: e.pageSize(token.Limit), bytes: e.config.MaxAnswer, candidates: e.config.MaxCandidates})
}

// pageSize is how many results a page may have. What was asked for is a
// maximum, and so is what is configured.
func (e *Engine) pageSize(asked int32) int {
	if asked == noLimit {
		return e.config.MaxResults
	}
	return min(int(asked), e.config.MaxResults)
}

// page describes a part of the results. Results that are whole need none unless
// somebody asked for a page (AuthZEN 1.0, "Paginated Responses").
func (e *Engine) page(token pageToken, asked *authzen.PageRequest, part *found) *authzen.Page {
	if asked.Token == "" && asked.Limit == nil && !part.more {
		return nil
	}
	page := &authzen.Page{Count: len(part.hits)}
	if part.more {
		token.From = part.next
		page.NextToken = token.seal(e.config.PageKey)
	} else if asked.Token == "" {
		page.Total = &page.Count
	}
	return page
}
