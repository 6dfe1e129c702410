package coaz_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var update = flag.Bool("update", false, "write the wanted questions of testdata/*.txtar")

// TestExchanges holds what calls are mapped to against testdata/*.txtar.
//
// A file has the settings of an upstream, "upstream", and the claims of a
// token, "claims". A case is two sections, "NAME/request" and "NAME/response".
// A request is {"method", "params", "notification", "tool", "subject", "claims"},
// of which claims stand in place of the file's. A response is what is asked, or why
// nothing is.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no exchanges in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { testExchanges(t, file) })
	}
}

const settings = 2 // sections before the first case

func testExchanges(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < settings || archive.Files[0].Name != "upstream" || archive.Files[1].Name != "claims" {
		t.Fatalf("%s does not begin with upstream and claims", file)
	}
	mapper := newMapper(t, archive.Files[0].Data)
	for i := settings; i < len(archive.Files); i += 2 {
		name, ok := strings.CutSuffix(archive.Files[i].Name, "/request")
		if !ok || i+1 == len(archive.Files) || archive.Files[i+1].Name != name+"/response" {
			t.Fatalf("%s: section %q is not followed by its response", file, archive.Files[i].Name)
		}
		t.Run(name, func(t *testing.T) {
			call := callOf(t, archive.Files[i].Data, archive.Files[1].Data)
			got := render(t, mapper, call)
			if *update {
				archive.Files[i+1].Data = []byte(got)
			} else if diff := cmp.Diff(string(archive.Files[i+1].Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func newMapper(t *testing.T, settings []byte) *coaz.Mapper {
	t.Helper()
	var upstream coaz.Upstream
	if len(settings) > 0 {
		if err := yaml.UnmarshalWithOptions(settings, &upstream, yaml.Strict()); err != nil {
			t.Fatal(err)
		}
	}
	mapper, err := coaz.New(map[string]coaz.Upstream{"crm": upstream})
	if err != nil {
		t.Fatal(err)
	}
	return mapper
}

func callOf(t *testing.T, request, claims []byte) coaz.Call {
	t.Helper()
	message := struct {
		Method       string          `json:"method"`
		Params       jsontext.Value  `json:"params"`
		Notification bool            `json:"notification"`
		Tool         jsontext.Value  `json:"tool"`
		Subject      authzen.Subject `json:"subject,omitzero"`
		Claims       jsontext.Value  `json:"claims"`
	}{Claims: slices.Clone(claims)}
	if err := json.Unmarshal(request, &message, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	return coaz.Call{
		Method: message.Method, Params: message.Params, Notification: message.Notification,
		Tool: message.Tool, Subject: message.Subject, Claims: claimsOf(t, message.Claims), Server: "crm",
	}
}

func claimsOf(t testing.TB, text []byte) (claims map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// render writes what is asked as lines: the dialect, warnings, and one question
// a line, a batch in its own lines.
func render(t testing.TB, mapper *coaz.Mapper, call coaz.Call) string {
	t.Helper()
	q, err := mapper.Map(call)
	var invalid *coaz.MappingError
	switch {
	case errors.Is(err, coaz.ErrUnknownMethod):
		return "unknown method\n"
	case errors.As(err, &invalid):
		return string(q.Dialect) + "\n" + invalid.Error() + "\n"
	case err != nil:
		t.Fatalf("%T: %v", err, err)
	}
	lines := []string{string(q.Dialect)}
	for _, warning := range q.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	set := []bool{q.PassThrough, q.Evaluation != nil, q.Evaluations != nil}
	if len(slices.DeleteFunc(set, func(b bool) bool { return !b })) != 1 {
		t.Fatalf("%+v", q)
	}
	switch {
	case q.PassThrough:
		lines = append(lines, "pass through")
	case q.Evaluation != nil:
		lines = append(lines, "evaluation", line(t, q.Evaluation))
	default:
		defaults := *q.Evaluations
		defaults.Evaluations = nil
		lines = append(lines, "evaluations", line(t, defaults))
		for _, item := range q.Evaluations.Evaluations {
			lines = append(lines, line(t, item))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func line(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
