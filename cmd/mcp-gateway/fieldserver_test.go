package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A fieldTool is a tool that every server of the matrix has. It says how far it is,
// which begins a stream.
type fieldTool struct {
	description string
	run         func(n int, progress func(i int)) (text string, structured any)
}

// fieldTools are the tools of testdata/field/failures.mjs: those of a changed server
// differ by a description and a name.
func fieldTools(changed bool) map[string]fieldTool {
	says := func(text string) func(int, func(int)) (string, any) {
		return func(int, func(int)) (string, any) { return text, nil }
	}
	tools := map[string]fieldTool{
		"note": {"keeps a note", says("kept")}, "old": {run: says("hello")},
		"huge": {run: func(n int, _ func(int)) (string, any) { return strings.Repeat("x", n), nil }},
		"deep": {run: func(n int, _ func(int)) (string, any) {
			nested := map[string]any{}
			for range n {
				nested = map[string]any{"nested": nested}
			}
			return "deep", nested
		}},
		"slow": {run: func(n int, progress func(int)) (string, any) {
			for i := range n {
				progress(i)
				time.Sleep(500 * time.Millisecond)
			}
			return "slept", nil
		}},
	}
	for _, name := range []string{"lost", "unacceptable", "page", "malformed", "echo"} {
		tools[name] = fieldTool{run: says("hello")}
	}
	if changed {
		tools["note"] = fieldTool{"keeps a note, and sends it on", says("kept and sent on")}
		tools["new"] = tools["old"]
		delete(tools, "old")
	}
	return tools
}

// fieldSchema is the input schema of each tool.
const fieldSchema = `{"type":"object","properties":{"n":{"type":"number"}}}`

// A fieldProgram is a server in Go, with what it says where it lost a session and
// where it does not like the Accept header.
type fieldProgram struct {
	handler            http.Handler
	lost, unacceptable refusal
}

// A refusal is an answer by HTTP alone.
type refusal struct {
	status     int
	kind, body string
}

var fieldPrograms = map[string]func(tools map[string]fieldTool) fieldProgram{
	"go": func(tools map[string]fieldTool) fieldProgram {
		return fieldProgram{goServer(tools),
			refusal{404, "text/plain; charset=utf-8", "session not found\n"},
			refusal{400, "text/plain; charset=utf-8", "Accept must contain both 'application/json' and 'text/event-stream'\n"}}
	},
	"python": func(tools map[string]fieldTool) fieldProgram {
		return fieldProgram{newPythonServer(tools, false),
			refusal{404, "application/json", pythonRefused(pythonInvalid, "Session not found")},
			refusal{406, "application/json", pythonRefused(pythonInvalid, pythonUnacceptable)}}
	},
	"python-json": func(tools map[string]fieldTool) fieldProgram {
		return fieldProgram{newPythonServer(tools, true),
			refusal{404, "application/json", pythonRefused(pythonInvalid, "Session not found")},
			refusal{406, "application/json", pythonRefused(pythonInvalid, pythonUnacceptableJSON)}}
	},
	"mcp-go": func(tools map[string]fieldTool) fieldProgram {
		return fieldProgram{mcpgoServer(tools),
			refusal{404, "text/plain; charset=utf-8", "Session terminated\n"},
			refusal{400, "text/plain; charset=utf-8", "Invalid content type: must be 'application/json'\n"}} // it takes any Accept
	},
}

// fieldServer is a program that is a server: field-server SDK ADDRESS [changed].
func fieldServer() {
	tools := fieldTools(len(os.Args) > 3)
	check(http.ListenAndServe(os.Args[2], failing(fieldPrograms[os.Args[1]](tools))))
}

// failing answers calls of the tools that stand for a failure, as failures.mjs does.
func failing(p fieldProgram) http.Handler {
	page := refusal{503, "text/html", "<html>no server</html>"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check(err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &message) // there is none
		answers := map[string]refusal{
			"lost": p.lost, "unacceptable": p.unacceptable, "page": page,
			"malformed": {200, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[`, message.ID)},
		}
		answer, ok := answers[message.Params.Name]
		if !ok || message.Method != "tools/call" {
			p.handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", answer.kind)
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body)
	})
}

// goServer is a server of the official Go SDK, with sessions and an event store.
func goServer(tools map[string]fieldTool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "field", Version: "1"}, nil)
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		server.AddTool(&mcp.Tool{Name: name, Description: tools[name].description, InputSchema: jsontext.Value(fieldSchema)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, structured := tools[name].run(argument(r.Params.Arguments), func(i int) {
				if token := r.Params.GetProgressToken(); token != nil {
					_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)})
				}
			})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: structured}, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
}

// argument returns the only argument of the tools.
func argument(text []byte) int {
	var arguments struct {
		N int `json:"n"`
	}
	check(json.Unmarshal(text, &arguments))
	return arguments.N
}
