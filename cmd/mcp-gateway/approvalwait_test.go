package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
)

// holds is how often a call is held while it waits for an hour.
const holds = 72

// A call waits for an hour at hosts with the official SDKs at their defaults, in both
// eras: the person at the host sees one dialog, no SDK gives up, and the call runs
// once. The clock is shortened: a hold is 50 ms in place of 50 s.
func TestHourOfWaiting(t *testing.T) {
	const hold = 50 * time.Millisecond
	if long := gateway.NewConfig().Approval.Hold; holds*long != time.Hour || long >= time.Minute {
		t.Fatalf("a hold of %s is no part of an hour, or the TypeScript SDK times out first", long)
	}
	guidePackages(t)
	ran := new(record)
	tools := func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "write"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Text string `json:"text"`
		}) (*mcp.CallToolResult, any, error) {
			ran.add(in.Text)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text + " ran"}}}, nil, nil
		})
	}
	s := set(t, "write", fmt.Sprintf("  - {name: stateless, url: %q}\n  - {name: sessions, url: %q}", sdkServer(t, false, tools), sdkServer(t, true, tools)))
	s.change(t, "hold: 30s", "hold: "+hold.String())
	s.serve(t)
	var hosts sync.WaitGroup
	for _, era := range []string{"sessions", "stateless"} {
		url := "http://" + s.gateway + "/" + era + "/mcp"
		hosts.Go(func() {
			if got, want := typescript(t, "wait.mjs", url, era), "TypeScript "+era+" ran, 1 dialogs, several calls\n"; got != want {
				t.Errorf("TypeScript, %s: %s", era, got)
			}
		})
		hosts.Go(func() {
			if got, err := waitWithGo(t, url, era); err != nil || got != "Go "+era+" ran, 1 dialogs" {
				t.Errorf("Go, %s: %s, %v", era, got, err)
			}
		})
	}
	time.Sleep(holds * hold) // the hour
	if seen := ran.String(); seen != "" {
		t.Errorf("before an approval ran %s", seen)
	}
	for range 4 {
		s.approve(t)
	}
	hosts.Wait()
	for _, call := range []string{"Go sessions", "Go stateless", "TypeScript sessions", "TypeScript stateless"} {
		if n := strings.Count(ran.String(), call); n != 1 {
			t.Errorf("%s ran %d times", call, n)
		}
	}
}

// waitWithGo is a host with the Go SDK. When the gateway says that the call still
// waits, the host makes it again.
func waitWithGo(t *testing.T, url, era string) (string, error) {
	var dialogs atomic.Int32
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			dialogs.Add(1)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"wait": true}}, nil
		},
	})
	version := map[string]string{"sessions": "2025-11-25", "stateless": "2026-07-28"}[era]
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return "", err
	}
	defer session.Close()
	for {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "write", Arguments: map[string]any{"text": "Go " + era}})
		var refused *jsonrpc.Error
		if err == nil && len(result.Content) > 0 {
			return fmt.Sprintf("%s, %d dialogs", result.Content[0].(*mcp.TextContent).Text, dialogs.Load()), nil
		}
		var data struct {
			Reason string `json:"reason_code"`
		}
		if !errors.As(err, &refused) || json.Unmarshal(refused.Data, &data) != nil || data.Reason != "approval_pending" {
			return "", fmt.Errorf("%w, %+v", err, result)
		}
	}
}
