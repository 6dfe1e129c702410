package conformance_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// The staff and the records of the search scenario, in the order of names and
// ids.
var (
	staff = []struct{ name, role, department string }{
		{"alice", "manager", "Sales"}, {"bob", "employee", "Legal"}, {"carol", "contractor", "Legal"},
		{"dan", "manager", "Finance"}, {"erin", "employee", "Finance"}, {"felix", "contractor", "Accounting"},
	}
	filed = []struct{ id, owner, department string }{
		{"101", "alice", "Legal"}, {"102", "bob", "Legal"}, {"103", "carol", "Legal"}, {"104", "dan", "Accounting"}, {"105", "erin", "Legal"},
		{"106", "felix", "Accounting"}, {"107", "alice", "Sales"}, {"108", "bob", "Legal"}, {"109", "carol", "Accounting"}, {"110", "dan", "Sales"},
		{"111", "erin", "Accounting"}, {"112", "felix", "Legal"}, {"113", "alice", "Sales"}, {"114", "bob", "Accounting"}, {"115", "carol", "Finance"},
		{"116", "dan", "Legal"}, {"117", "erin", "Legal"}, {"118", "felix", "Accounting"}, {"119", "alice", "Legal"}, {"120", "bob", "Accounting"},
	}
	filing = []string{"delete", "edit", "view"}
)

// recordAllows says what the scenario allows.
func recordAllows(person, action, record int) bool {
	p, r := staff[person], filed[record]
	own, department := p.name == r.owner, p.department == r.department
	switch filing[action] {
	case "view":
		return own || department || p.role == "manager"
	case "edit":
		return own || department && p.role == "manager"
	}
	return own
}

// found is the answer to a search: a result, from the format, for each of n that
// is allowed.
func found(n int, allowed func(i int) bool, result func(i int) string) string {
	var results []string
	for i := range n {
		if allowed(i) {
			results = append(results, result(i))
		}
	}
	return `{"results":[` + strings.Join(results, ",") + `]}`
}

// TestSearchScenario asks the 198 questions of the search scenario, of which the
// IdP asks six, and each entity that is found or not.
func TestSearchScenario(t *testing.T) {
	s := serve(t, "search")
	ask := func(path, body, want string) {
		t.Helper()
		if status, got := s.post(t, path, []byte(body)); status != http.StatusOK || got != want {
			t.Errorf("%s %s: %d %s, want %s", path, body, status, got, want)
		}
	}
	for a, action := range filing {
		for r, record := range filed {
			ask(authzen.PathSearchSubject, fmt.Sprintf(`{"subject":{"type":"user"},"action":{"name":%q},"resource":{"type":"record","id":%q}}`, action, record.id),
				found(len(staff), func(p int) bool { return recordAllows(p, a, r) }, func(p int) string { return fmt.Sprintf(`{"type":"user","id":%q}`, staff[p].name) }))
		}
		for p, person := range staff {
			ask(authzen.PathSearchResource, fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":%q},"resource":{"type":"record"}}`, person.name, action),
				found(len(filed), func(r int) bool { return recordAllows(p, a, r) }, func(r int) string { return fmt.Sprintf(`{"type":"record","id":%q}`, filed[r].id) }))
		}
	}
	for p, person := range staff {
		for r, record := range filed {
			about := fmt.Sprintf(`"subject":{"type":"user","id":%q},"resource":{"type":"record","id":%q}`, person.name, record.id)
			ask(authzen.PathSearchAction, "{"+about+"}",
				found(len(filing), func(a int) bool { return recordAllows(p, a, r) }, func(a int) string { return fmt.Sprintf(`{"name":%q}`, filing[a]) }))
			for a, action := range filing {
				ask(authzen.PathEvaluation, fmt.Sprintf(`{%s,"action":{"name":%q}}`, about, action), decision(recordAllows(p, a, r)))
			}
		}
	}
}

// TestSearchScenarioPages walks through what a manager may view by twos, as the
// module authzen-pdp-interop-resource-search-01-pagination does.
func TestSearchScenarioPages(t *testing.T) {
	s := serve(t, "search")
	var ids []string
	for token, pages := "", 0; ; pages++ {
		status, body := s.post(t, authzen.PathSearchResource, fmt.Appendf(nil,
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"view"},"resource":{"type":"record"},"page":{"limit":2,"token":%q}}`, token))
		var out authzen.EntitySearchResponse
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != http.StatusOK || out.Page == nil || pages > len(filed) {
			t.Fatalf("page %d: %d %s: %v", pages, status, body, err)
		}
		for _, result := range out.Results {
			ids = append(ids, result.ID)
		}
		if token = out.Page.NextToken; token == "" {
			break
		}
	}
	var want []string
	for _, record := range filed {
		want = append(want, record.id)
	}
	if got, want := strings.Join(ids, " "), strings.Join(want, " "); got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
