package coaz_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// secret is a claim that no message of an error may repeat.
const secret = "s3cr3t-claim"

var caller = map[string]any{
	"sub": "alice", "client_id": "agent-app", "iss": "https://auth.example.com", "aud": "https://mcp.example.com",
	"employee": secret, "act": map[string]any{"sub": secret}, "exp": jsontext.Value("1750000000"),
}

// Whatever a tool declares and a client sends, the questions are complete, of
// the caller, and marked as the gateway marks them; or there is an error that
// repeats no claim. CZ-12, CZ-20, CZ-22, CZ-23, CZ-74.
func FuzzMap(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no exchanges: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range archive.Files {
			if message, ok := toolCall(section); ok {
				f.Add([]byte(message.Tool), []byte(message.Params))
			}
		}
	}
	f.Add([]byte(`{"name":"t","inputSchema":{"x-authzen-mapping":{"evaluation":{"action":{"name":"a"},"resource":{"type":"r","id":"$token.employee"},"context":{"x":"$int(token.employee)"}}}}}`), []byte(`{"name":"t"}`))
	mapper, err := coaz.New(map[string]coaz.Upstream{"crm": {Trust: coaz.Declared}, "careful": {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tool, params []byte) {
		for _, server := range []string{"crm", "careful"} {
			q, err := mapper.Map(coaz.Call{Method: "tools/call", Tool: tool, Params: params, Claims: caller, Server: server})
			var invalid *coaz.MappingError
			switch {
			case errors.As(err, &invalid):
				if strings.Contains(err.Error(), secret) && !strings.Contains(string(tool), secret) {
					t.Errorf("the error has a claim: %v", err)
				}
			case err != nil:
				t.Errorf("%T: %v", err, err)
			default:
				sound(t, q, server)
			}
		}
	})
}

type message struct {
	Method       string
	Tool, Params jsontext.Value
}

func toolCall(section txtar.File) (m message, ok bool) {
	ok = strings.HasSuffix(section.Name, "/request") && json.Unmarshal(section.Data, &m, json.MatchCaseInsensitiveNames(true)) == nil
	return m, ok && m.Tool != nil
}

func sound(t *testing.T, q coaz.Questions, server string) {
	t.Helper()
	asked := []*authzen.EvaluationRequest{q.Evaluation}
	if q.Evaluations != nil {
		asked = nil
		for _, item := range q.Evaluations.Items() {
			if item.Err != nil {
				t.Fatal(item.Err)
			}
			asked = append(asked, item.Request)
		}
	}
	if q.PassThrough || len(asked) == 0 || q.Evaluation != nil && q.Evaluations != nil {
		t.Fatalf("%+v", q)
	}
	for _, request := range asked {
		var context struct {
			Agent   string `json:"agent"`
			Gateway struct {
				Server string `json:"server"`
			} `json:"gateway"`
			Unverified jsontext.Value `json:"subject_unverified"`
			Approval   jsontext.Value `json:"approval"`
		}
		if err := json.Unmarshal(request.Context, &context); err != nil {
			t.Fatal(err)
		}
		if request.Subject.ID != "alice" || context.Agent != "agent-app" || context.Gateway.Server != server || context.Unverified != nil || context.Approval != nil {
			t.Errorf("%s", line(t, request))
		}
		text := line(t, request)
		if err := authzen.Unmarshal([]byte(text), new(authzen.EvaluationRequest)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// BenchmarkMap says what a mapping costs: the default one, one that a tool
// declares, and the dearest that there may be.
func BenchmarkMap(b *testing.B) {
	mapper, err := coaz.New(map[string]coaz.Upstream{"crm": {Trust: coaz.Declared}})
	if err != nil {
		b.Fatal(err)
	}
	const numbers = `[1,2,3,4,5,6,7,8,9]`
	for _, bench := range []struct{ name, schema string }{
		{"default", `{}`},
		{"declared", `{"x-authzen-mapping":{"evaluation":{"action":{"name":"a"},"resource":{"type":"r","id":"$params.arguments.id"},"context":{"agent":"$token.?client_id"}}}}`},
		{"too dear", `{"x-authzen-mapping":{"evaluation":{"action":{"name":"a"},"resource":{"type":"r","id":"x"},"context":{"x":"$` +
			numbers + `.map(a,` + numbers + `.map(b,` + numbers + `.map(c,` + numbers + `.map(d,` + numbers + `.map(e,a)))))"}}}}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			call := coaz.Call{
				Method: "tools/call", Params: jsontext.Value(`{"name":"t","arguments":{"id":"1"}}`),
				Tool: jsontext.Value(`{"name":"t","inputSchema":` + bench.schema + `}`), Claims: caller, Server: "crm",
			}
			for b.Loop() {
				if _, err := mapper.Map(call); (err != nil) != (bench.name == "too dear") {
					b.Fatal(err)
				}
			}
		})
	}
}
