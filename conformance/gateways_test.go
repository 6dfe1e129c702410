package conformance_test

import (
	"net/http"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// routes of the application behind the gateways, and the roles that may use
// them; a route without roles is everybody's.
var routes = []struct {
	method, route string
	roles         []string
}{
	{"GET", "/users/{userId}", nil},
	{"GET", "/todos", nil},
	{"POST", "/todos", []string{"admin", "editor"}},
	{"PUT", "/todos/{todoId}", []string{"editor", "evil_genius"}},
	{"DELETE", "/todos/{todoId}", []string{"editor", "admin"}},
}

// Gateways name a person's type one way, applications another; some say more
// of a request than others. The answer is the same.
func TestGateways(t *testing.T) {
	s := serve(t, "gateways")
	for name, ask := range map[string]func(p person, method, route string) map[string]any{
		"identity": func(p person, method, route string) map[string]any {
			return question("identity", p.token, method, map[string]any{"type": "route", "id": route})
		},
		"user": func(p person, method, route string) map[string]any {
			return question("user", p.email, method, map[string]any{"type": "route", "id": route})
		},
		"talkative": func(p person, method, route string) map[string]any {
			q := question("identity", p.token, method, map[string]any{"type": "route", "id": route, "properties": map[string]any{
				"uri": "https://gateway.example.com" + route, "schema": "https", "hostname": "gateway.example.com",
				"path": route, "params": map[string]any{"todoId": "7"}, "ip": "192.0.2.1",
			}})
			q["context"] = map[string]any{"time": "2026-01-31T12:00:00Z", "attempt": 1}
			return q
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range people {
				for _, r := range routes {
					status, got := s.post(t, authzen.PathEvaluation, encode(t, ask(p, r.method, r.route)))
					want := decision(r.roles == nil || p.has(r.roles...))
					if status != http.StatusOK || got != want {
						t.Errorf("%s %s %s: %d %s, want %s", p.name, r.method, r.route, status, got, want)
					}
				}
			}
		})
	}
}

func question(subjectType, id, action string, resource map[string]any) map[string]any {
	return map[string]any{
		"subject":  map[string]any{"type": subjectType, "id": id},
		"action":   map[string]any{"name": action},
		"resource": resource,
	}
}
