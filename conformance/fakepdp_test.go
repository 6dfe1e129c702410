package conformance_test

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// twin is a PDP in memory that answers the fixture without policies. It is
// what the checks are tested against: it passes them all, and with one thing
// wrong it fails those that are about that thing.
func twin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+authzen.PathEvaluation, answer(func(body []byte) (any, error) {
		var r authzen.EvaluationRequest
		if err := authzen.Unmarshal(body, &r); err != nil {
			return nil, err
		}
		return decide(&r), nil
	}))
	mux.HandleFunc("POST "+authzen.PathEvaluations, answer(evaluations))
	mux.HandleFunc("POST "+authzen.PathSearchSubject, answer(searchSubjects))
	mux.HandleFunc("POST "+authzen.PathSearchResource, answer(searchResources))
	mux.HandleFunc("POST "+authzen.PathSearchAction, answer(searchActions))
	mux.HandleFunc("GET "+authzen.PathMetadata, func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, authzen.Metadata{
			PolicyDecisionPoint:       identifier,
			AccessEvaluationEndpoint:  identifier + authzen.PathEvaluation,
			AccessEvaluationsEndpoint: identifier + authzen.PathEvaluations,
			SearchSubjectEndpoint:     identifier + authzen.PathSearchSubject,
			SearchResourceEndpoint:    identifier + authzen.PathSearchResource,
			SearchActionEndpoint:      identifier + authzen.PathSearchAction,
			Capabilities:              []string{"urn:example:capability"},
		})
	})
	return echo(authenticated(mux))
}

const (
	identifier = "https://pdp.example.com"
	bearer     = "Bearer conformance"
)

func answer(call func(body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			write(w, http.StatusBadRequest, authzen.ErrorResponse{})
			return
		}
		body, _ := io.ReadAll(r.Body)
		out, err := call(body)
		if err != nil {
			write(w, http.StatusBadRequest, authzen.ErrorResponse{})
			return
		}
		write(w, http.StatusOK, out)
	}
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.MarshalWrite(w, body)
}

func echo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Request-ID"); id != "" {
			w.Header().Set("X-Request-ID", id)
		}
		next.ServeHTTP(w, r)
	})
}

func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != authzen.PathMetadata && r.Header.Get("Authorization") != bearer {
			w.Header().Set("WWW-Authenticate", `Bearer realm="twin"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func evaluations(body []byte) (any, error) {
	var r authzen.EvaluationsRequest
	if err := authzen.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if len(r.Evaluations) == 0 {
		single, err := r.Single()
		if err != nil {
			return nil, err
		}
		return decide(single), nil
	}
	var out authzen.EvaluationsResponse
	for _, item := range r.Items() {
		var decision authzen.Decision
		if item.Err == nil {
			decision = decide(item.Request)
		}
		out.Evaluations = append(out.Evaluations, decision)
		if r.Options.Semantic.Stops(decision.Decision) {
			break
		}
	}
	return out, nil
}

func searchSubjects(body []byte) (any, error) {
	var r authzen.SubjectSearchRequest
	if err := authzen.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	return search(r.Subject.Type, []string{"alice", "bob"}, r.Page, func(id string) authzen.EvaluationRequest {
		return authzen.EvaluationRequest{Subject: authzen.Subject{Type: r.Subject.Type, ID: id}, Action: r.Action, Resource: r.Resource}
	})
}

func searchResources(body []byte) (any, error) {
	var r authzen.ResourceSearchRequest
	if err := authzen.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	return search(r.Resource.Type, []string{"record-1", "record-2"}, r.Page, func(id string) authzen.EvaluationRequest {
		return authzen.EvaluationRequest{Subject: r.Subject, Action: r.Action, Resource: authzen.Resource{Type: r.Resource.Type, ID: id}}
	})
}

// search asks for each of the ids. Its tokens are the ids that come next.
func search(entityType string, ids []string, page *authzen.PageRequest, about func(id string) authzen.EvaluationRequest) (any, error) {
	out := authzen.EntitySearchResponse{Results: []authzen.FoundEntity{}}
	limit := len(ids)
	if page != nil && page.Token != "" {
		limit = 1
	}
	if page != nil && page.Limit != nil {
		limit = *page.Limit
	}
	for _, id := range ids {
		if page != nil && id < page.Token {
			continue
		}
		r := about(id)
		if !known(&r) || !decide(&r).Decision {
			continue
		}
		if len(out.Results) == limit {
			out.Page = &authzen.Page{NextToken: id}
			break
		}
		out.Results = append(out.Results, authzen.FoundEntity{Type: entityType, ID: id})
	}
	if page != nil && out.Page == nil {
		out.Page = &authzen.Page{}
	}
	if out.Page != nil {
		out.Page.Count = len(out.Results)
	}
	return out, nil
}

func searchActions(body []byte) (any, error) {
	var r authzen.ActionSearchRequest
	if err := authzen.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	out := authzen.ActionSearchResponse{Results: []authzen.FoundAction{}}
	for _, name := range []string{"delete", "read", "write"} {
		one := authzen.EvaluationRequest{Subject: r.Subject, Action: authzen.Action{Name: name}, Resource: r.Resource}
		if known(&one) && decide(&one).Decision {
			out.Results = append(out.Results, authzen.FoundAction{Name: name})
		}
	}
	return out, nil
}

// known reports whether a request is about what the fixture has. Of record-2 a
// search finds stored what an evaluation is told.
func known(r *authzen.EvaluationRequest) bool {
	if r.Resource.ID == "record-2" && r.Resource.Properties == nil {
		r.Resource.Properties = []byte(`{"status":"archived"}`)
	}
	if r.Subject.ID == "bob" && r.Subject.Properties == nil {
		r.Subject.Properties = []byte(`{"role":"admin"}`)
	}
	return r.Subject.Type == "user" && r.Resource.Type == "record" &&
		slices.Contains([]string{"alice", "bob"}, r.Subject.ID) && slices.Contains([]string{"record-1", "record-2"}, r.Resource.ID)
}

// decide decides as the certification scenario says.
func decide(r *authzen.EvaluationRequest) authzen.Decision {
	status := property(r.Resource.Properties, "status")
	var permit bool
	switch r.Action.Name {
	case "read":
		permit = true
	case "write":
		permit = r.Subject.ID == "alice" && status != "archived" ||
			property(r.Subject.Properties, "role") == "admin" && status == "archived"
	case "delete":
		permit = r.Subject.ID == "alice" && property(r.Action.Properties, "soft") == true
	}
	return authzen.Decision{Decision: permit}
}

func property(object []byte, name string) any {
	var members map[string]any
	if len(object) > 0 {
		json.Unmarshal(object, &members)
	}
	return members[name]
}

// start serves a handler until the test ends. Nothing else can be reached.
func start(t *testing.T, handler http.Handler) conformance.Target {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != server.Listener.Addr().String() {
			return nil, errors.New("no way to " + address)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return conformance.Target{
		BaseURL: server.URL, Identifier: identifier, Authorization: bearer,
		Transport: &http.Transport{DialContext: dial},
	}
}
