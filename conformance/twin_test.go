package conformance_test

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
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
	mux.HandleFunc("GET "+authzen.PathMetadata, func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, authzen.Metadata{
			PolicyDecisionPoint:       identifier,
			AccessEvaluationEndpoint:  identifier + authzen.PathEvaluation,
			AccessEvaluationsEndpoint: identifier + authzen.PathEvaluations,
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
