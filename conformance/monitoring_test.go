package conformance_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// elsewhere are metrics and labels in rules and panels that are not the
// program's: Prometheus and the kubelet have them.
var elsewhere = []string{
	"up", "job", "instance",
	"kubelet_volume_stats_available_bytes", "persistentvolumeclaim",
}

// Every metric and label that a rule or a panel reads is on /metrics.
func TestMonitoring(t *testing.T) {
	known := measured(t)
	if got := unmeasured(`sum by (policy) (policy_service_polices{revison="1"})`, known); !slices.Equal(got, []string{"policy_service_polices", "revison"}) {
		t.Fatalf("what is not measured is not noticed: %q", got)
	}
	for name, expression := range expressions(t) {
		if names := unmeasured(expression, known); len(names) > 0 {
			t.Errorf("%s reads %q, which nobody measures: %s", name, names, expression)
		}
	}
}

type rule struct {
	Alert       string
	Expr        string
	Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatal("no rules")
	}
	return file.Groups[0].Rules
}

// expressions are those of the rules and of the panels, by their names.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string                  `json:"title"`
			Targets []struct{ Expr string } `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "../deploy/dashboard.json")), &dashboard, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, r := range rules(t) {
		all[r.Alert] = r.Expr
	}
	alerts := len(all)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all[panel.Title] += target.Expr + "\n"
		}
	}
	if len(all) == alerts {
		t.Fatal("no panels")
	}
	return all
}

// The names in an expression: metrics, labels that are compared, and labels
// that are grouped by. A name before a parenthesis is a function's.
const (
	metrics  = `\b(up|[a-z]+_[a-z_]+)\b(?:[{\[)]|\s|$)`
	compared = `([a-z_]+)(?:=~|!=|!~|=)"`
	grouped  = `by \(([^)]*)\)`
)

var aside = regexp.MustCompile(`"[^"]*"|` + grouped)

// unmeasured are the metrics and labels in an expression that are not known.
func unmeasured(expression string, known map[string]bool) []string {
	names := submatches(compared, expression)
	for _, group := range submatches(grouped, expression) {
		names = append(names, strings.Split(group, ", ")...)
	}
	names = append(names, submatches(metrics, aside.ReplaceAllString(expression, ""))...)
	names = slices.DeleteFunc(names, func(name string) bool { return known[name] || slices.Contains(elsewhere, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// measured are the metrics and labels of a server that has decided, had a policy
// that cannot be evaluated, and has turned somebody away.
func measured(t *testing.T) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	place(t, dir+"/p.cedar", `@id("all") permit (principal, action, resource); @id("broken") permit (principal, action, resource) when { resource.missing };`)
	s := serveDir(t, dir, "--tenant-rate", "0.001")
	if code, body := s.post(t, authzen.PathEvaluation, []byte(reading)); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := s.post(t, authzen.PathEvaluation, []byte(reading)); code != http.StatusTooManyRequests {
		t.Fatalf("%d %s", code, body)
	}
	known := make(map[string]bool)
	for line := range strings.Lines(s.page(t)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "#" {
			name, labels, _ := strings.Cut(name, "{")
			known[name] = true
			for _, label := range submatches(compared, labels) {
				known[label] = true
			}
		}
	}
	if !known["policy_service_policy_errors_total"] || !known["policy"] {
		t.Fatalf("there are not all metrics: %q", slices.Sorted(maps.Keys(known)))
	}
	return known
}
