package main

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"encoding/json"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
)

// An mcpgoSpeaker is a client of mark3labs/mcp-go.
type mcpgoSpeaker struct {
	client *mcpgoclient.Client
	signs  atomic.Pointer[atomic.Int64] // of the call
}

func (s *mcpgoSpeaker) connect(ctx context.Context, url string) error {
	if s.client != nil {
		s.client.Close()
	}
	c, err := mcpgoclient.NewStreamableHttpClient(url)
	if err != nil {
		return err
	}
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			s.signs.Load().Add(1)
		}
	})
	s.client = c
	_, err = c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: mcp.Implementation{Name: "field", Version: "1"}}})
	return err
}

func (s *mcpgoSpeaker) call(ctx context.Context, name string, n int, signs *atomic.Int64) (string, error) {
	s.signs.Store(signs)
	result, err := s.client.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{
		Name: name, Arguments: map[string]any{"n": n}, Meta: &mcp.Meta{ProgressToken: name},
	}})
	if err != nil {
		return "", err
	}
	text := ""
	if content, ok := result.Content[0].(mcp.TextContent); ok {
		text = content.Text
	}
	if result.IsError {
		text = "tool error: " + text
	}
	return text, nil
}

func (s *mcpgoSpeaker) tools(ctx context.Context) (names []string, err error) {
	result, err := s.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

// probe sends what the client has no function for.
func (s *mcpgoSpeaker) probe(ctx context.Context) error {
	answer, err := s.client.GetTransport().SendRequest(ctx, transport.JSONRPCRequest{JSONRPC: "2.0", ID: mcp.NewRequestId("probe"), Method: "field/unknown"})
	if err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error.AsError()
	}
	return nil
}

// mcpgoServer is a server of mark3labs/mcp-go, with sessions. Its progress goes to the
// stream of the call, or of the session if there is one, as chance has it, so that
// there is none.
func mcpgoServer(tools map[string]fieldTool) http.Handler {
	s := mcpgoserver.NewMCPServer("field", "1")
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		tool := mcp.NewToolWithRawSchema(name, tools[name].description, json.RawMessage(fieldSchema))
		s.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, structured := tools[name].run(r.GetInt("n", 0), func(i int) {
				if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
					_ = s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i})
				}
			})
			result := mcp.NewToolResultText(text)
			result.StructuredContent = structured
			return result, nil
		})
	}
	return mcpgoserver.NewStreamableHTTPServer(s, mcpgoserver.WithStateful(true), mcpgoserver.WithDisableStreaming(true))
}
