package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rich is a server of the Go SDK that has something of everything, always under the
// same names.
func rich(t *testing.T, name string, sessions bool) (*mcp.Server, string) {
	t.Helper()
	nothing := func(context.Context, *mcp.SubscribeRequest) error { return nil }
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{
		Instructions:       "I am " + name + "\n[b] I am b",
		SubscribeHandler:   nothing,
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{name, r.Params.Ref.Name + r.Params.Ref.URI}}}, nil
		},
	})
	server.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.ResourceLink{URI: "file:///same", Name: name}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "of " + name}}}, nil
	}
	server.AddResource(&mcp.Resource{URI: "file:///same", Name: "same"}, read)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "file:///t/{x}", Name: "t"}, read)
	mcp.AddTool(server, &mcp.Tool{Name: "link"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.ResourceLink{URI: "file:///same", Name: name}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///in", Text: name}},
		}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who am I?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s is %v", name, answer.Content["name"])}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		for i := range 2 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: name}); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(r.Params.GetProgressToken() != nil)}}}, nil, nil
	})
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: !sessions}))
	t.Cleanup(s.Close)
	return server, s.URL
}

// Two servers that have the same names are told apart in everything that a client
// of either era does.
func TestUnionTellsServersApart(t *testing.T) {
	for _, sessions := range []bool{true, false} {
		t.Run(fmt.Sprintf("sessions %v", sessions), func(t *testing.T) {
			serverA, a := rich(t, "a", sessions)
			_, b := rich(t, "b", sessions)
			var updated, progress record
			changed := make(chan bool, 100)
			session := connected(t, united(t, deniesAll(t), "", a, b), &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": r.Params.Message}}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					progress.add(fmt.Sprint(r.Params.ProgressToken, r.Params.Message, r.Params.Progress))
				},
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated.add(r.Params.URI) },
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- true },
			})
			var got []string
			for prompt, err := range session.Prompts(t.Context(), nil) {
				got = append(got, fmt.Sprint(prompt.Name, err))
			}
			for resource, err := range session.Resources(t.Context(), nil) {
				got = append(got, fmt.Sprint(resource.URI, err))
			}
			for template, err := range session.ResourceTemplates(t.Context(), nil) {
				got = append(got, fmt.Sprint(template.URITemplate, err))
			}
			prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "b__greet"})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, prompt.Messages[0].Content.(*mcp.ResourceLink).URI)
			for _, uri := range []string{"mcp-server://a/file:///same", "mcp-server://b/file:///t/1", "mcp-server://c/file:///same", "file:///same"} {
				read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
				if err != nil {
					got = append(got, err.Error())
					continue
				}
				got = append(got, read.Contents[0].URI+" "+read.Contents[0].Text)
			}
			for _, ref := range []*mcp.CompleteReference{{Type: "ref/prompt", Name: "b__greet"}, {Type: "ref/resource", URI: "mcp-server://a/file:///t/{x}"}} {
				completed, err := session.Complete(t.Context(), &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "x", Value: "1"}})
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, completed.Completion.Values...)
			}
			linked, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "b__link", Arguments: map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, linked.Content[0].(*mcp.ResourceLink).URI, linked.Content[1].(*mcp.EmbeddedResource).Resource.URI)
			want := []string{
				"a__greet<nil>", "b__greet<nil>", "mcp-server://a/file:///same<nil>", "mcp-server://b/file:///same<nil>",
				"mcp-server://a/file:///t/{x}<nil>", "mcp-server://b/file:///t/{x}<nil>", "mcp-server://b/file:///same",
				"mcp-server://a/file:///same of a", "mcp-server://b/file:///t/1 of b",
				`calling "resources/read": the resource is not known`, `calling "resources/read": the resource is not known`,
				"b", "greet", "a", "file:///t/{x}", "mcp-server://b/file:///same", "mcp-server://b/file:///in",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := "[a] I am a\n[a] [b] I am b\n[b] I am b\n[b] [b] I am b"; !strings.HasSuffix(session.InitializeResult().Instructions, want) {
				t.Errorf("the instructions are %s", session.InitializeResult().Instructions)
			}
			params := &mcp.CallToolParams{Name: "a__count", Arguments: map[string]any{}}
			params.SetProgressToken("mine")
			if _, err := session.CallTool(t.Context(), params); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() string { return progress.String() }, "minea0 minea1")
			if sessions {
				if got, want := said(t, session, "b__ask"), "b is [b] who am I?"; got != want {
					t.Errorf("asked: %s", got)
				}
				if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mcp-server://a/file:///same"}); err != nil {
					t.Fatal(err)
				}
				if err := serverA.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "file:///same"}); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() string { return updated.String() }, "mcp-server://a/file:///same")
			}
			serverA.RemoveTools("link")
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				t.Error("the client does not learn that a list has changed")
			}
			eventually(t, func() string { return fmt.Sprint(slices.Contains(strings.Fields(toolNames(t, session)), "a__link")) }, "false")
		})
	}
}

// eventually waits until what is seen is as wanted.
func eventually(t *testing.T, see func() string, want string) {
	t.Helper()
	got := ""
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if got = see(); got == want {
			return
		}
	}
	t.Errorf("got %s, want %s", got, want)
}
