package pdp_test

import (
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas"
)

var parameter = regexp.MustCompile(`:(\w+)`)

// The OpenAPI document describes the routes that the listeners have, all of them
// and no others.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	main, admin, err := pdp.NewHandlers(t.Context(), t.TempDir(), nil, pdp.Limits{}, log, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, route := range slices.Concat(main.(*echo.Echo).Routes(), admin.(*echo.Echo).Routes()) {
		if route.Method == http.MethodDelete && !strings.HasPrefix(route.Path, "/admin/") { // another way to cancel, which the document tells beside POST
			continue
		}
		routes = append(routes, strings.ToLower(route.Method)+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
	}
	slices.Sort(routes)
	if diff := cmp.Diff(described(t), routes); diff != "" {
		t.Errorf("routes (-openapi.yaml +listeners):\n%s", diff)
	}
}

// described lists the operations of the document as method and path.
func described(t *testing.T) []string {
	t.Helper()
	var document struct {
		Paths map[string]map[string]any `yaml:"paths"`
	}
	if err := yaml.Unmarshal(schemas.OpenAPI(), &document); err != nil {
		t.Fatal(err)
	}
	var all []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "servers" {
				all = append(all, method+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}
