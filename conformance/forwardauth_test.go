package conformance_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// forwardAuth answers a gateway that asks by headers, as Traefik's ForwardAuth
// does, whether a subject may use a route. The subject is in X-User, which the
// gateway sets and a caller cannot. The routes are the patterns of a mux.
func forwardAuth(pdp *client.Client, routes *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked, err := http.NewRequestWithContext(r.Context(), r.Header.Get("X-Forwarded-Method"), r.Header.Get("X-Forwarded-Uri"), nil)
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, pattern := routes.Handler(asked)
		method, route, _ := strings.Cut(pattern, " ")
		decision, err := pdp.Evaluate(r.Context(), &authzen.EvaluationRequest{
			Subject:  authzen.Subject{Type: "identity", ID: r.Header.Get("X-User")},
			Action:   authzen.Action{Name: method},
			Resource: authzen.Resource{Type: "route", ID: route},
		})
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if granted, err := (client.Obligations{}).Discharge(r.Context(), decision); err != nil || !granted {
			w.WriteHeader(http.StatusForbidden)
		}
	}
}

// A gateway that knows no AuthZEN gets the same answers through an adapter, and
// no access where there is no answer.
func TestForwardAuth(t *testing.T) {
	s := serve(t, "gateways")
	patterns := http.NewServeMux()
	for _, r := range routes {
		patterns.Handle(r.method+" "+r.route, http.NotFoundHandler())
	}
	adapter := forwardAuth(client.New(s.URL, client.Config{}), patterns)
	nobody := forwardAuth(client.New("http://127.0.0.1:1", client.Config{}), patterns)
	for name, tt := range map[string]struct {
		adapter          http.HandlerFunc
		user, method, at string
		want             int
	}{
		"may":             {adapter, morty.token, "PUT", "/todos/7?x=y", http.StatusOK},
		"may not":         {adapter, beth.token, "PUT", "/todos/7", http.StatusForbidden},
		"no such route":   {adapter, rick.token, "PUT", "/todos/7/../..", http.StatusForbidden},
		"not a method":    {adapter, rick.token, "PUT /", "/todos/7", http.StatusForbidden},
		"nobody":          {adapter, "", "GET", "/todos", http.StatusForbidden},
		"nobody is there": {nobody, morty.token, "PUT", "/todos/7", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Header.Set("X-User", tt.user)
			request.Header.Set("X-Forwarded-Method", tt.method)
			request.Header.Set("X-Forwarded-Uri", tt.at)
			answer := httptest.NewRecorder()
			tt.adapter(answer, request)
			if answer.Code != tt.want {
				t.Errorf("got %d, want %d", answer.Code, tt.want)
			}
		})
	}
}
