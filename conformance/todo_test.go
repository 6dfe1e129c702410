package conformance_test

import (
	"net/http"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// todoAllows says what the scenario allows, of todos with that owner.
func todoAllows(p person, action string, owner person) bool {
	own := p.email == owner.email
	switch action {
	case "can_read_user", "can_read_todos":
		return true
	case "can_create_todo":
		return p.has("admin", "editor")
	case "can_update_todo":
		return p.has("evil_genius") || p.has("editor") && own
	case "can_delete_todo":
		return p.has("admin") || p.has("editor") && own
	}
	return false
}

func todo(owner person) map[string]any {
	return map[string]any{"type": "todo", "id": "todo-of-" + owner.name, "properties": map[string]any{"ownerID": owner.email}}
}

// another is somebody else: rick, or morty for rick himself.
func another(p person) person {
	if p.name == rick.name {
		return morty
	}
	return rick
}

// A todoRequest is a question and who owns what it is about.
type todoRequest struct {
	action   string
	resource map[string]any
	owner    person
}

// todoRequests are what the application asks for one person.
func todoRequests(p person) []todoRequest {
	todos := map[string]any{"type": "todo", "id": "todo-1"}
	requests := []todoRequest{
		{"can_read_user", map[string]any{"type": "user", "id": beth.email}, beth},
		{"can_read_user", map[string]any{"type": "user", "id": p.token}, p},
		{"can_read_todos", todos, p},
		{"can_create_todo", todos, p},
	}
	for _, action := range []string{"can_update_todo", "can_delete_todo"} {
		for _, owner := range []person{p, another(p)} {
			requests = append(requests, todoRequest{action, todo(owner), owner})
		}
	}
	return requests
}

// The forty questions, by the two names that each person has.
func TestTodoEvaluation(t *testing.T) {
	s := serve(t, "todo")
	asked := 0
	for _, p := range people {
		for _, id := range []string{p.token, p.email} {
			for _, r := range todoRequests(p) {
				asked++
				status, got := s.post(t, authzen.PathEvaluation, encode(t, map[string]any{
					"subject":  map[string]any{"type": "user", "id": id, "_note": "not for you"},
					"action":   map[string]any{"name": r.action},
					"resource": r.resource,
				}))
				if want := decision(todoAllows(p, r.action, r.owner)); status != http.StatusOK || got != want {
					t.Errorf("%s %s of %s: %d %s, want %s", p.name, r.action, r.owner.name, status, got, want)
				}
			}
		}
	}
	if asked != 2*40 {
		t.Errorf("asked %d questions", asked)
	}
}

// Which of these todos may a person change? The application asks so when it
// lists them.
func TestTodoEvaluations(t *testing.T) {
	s := serve(t, "todo")
	for _, tt := range []struct {
		person person
		owners []person
	}{
		{rick, []person{rick, jerry}},
		{morty, []person{rick, morty}},
		{jerry, []person{rick, jerry}},
	} {
		var items []any
		want := ""
		for _, owner := range tt.owners {
			items = append(items, map[string]any{"resource": todo(owner)})
			want += "," + decision(todoAllows(tt.person, "can_update_todo", owner))
		}
		want = `{"evaluations":[` + want[1:] + `]}`
		status, got := s.post(t, authzen.PathEvaluations, encode(t, map[string]any{
			"subject":     map[string]any{"type": "user", "id": tt.person.token},
			"action":      map[string]any{"name": "can_update_todo"},
			"evaluations": items,
		}))
		if status != http.StatusOK || got != want {
			t.Errorf("%s: %d %s, want %s", tt.person.name, status, got, want)
		}
	}
}
