package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A speaker is a client in Go: connect begins a session and ends the one before,
// call counts progress in signs.
type speaker interface {
	connect(ctx context.Context, url string) error
	call(ctx context.Context, name string, n int, signs *atomic.Int64) (string, error)
	tools(ctx context.Context) ([]string, error)
	probe(ctx context.Context) error
}

var speakers = map[string]speaker{"go": new(goSpeaker), "mcp-go": new(mcpgoSpeaker)}

// fieldClient is a program that does in Go what testdata/field/converse.mjs does:
// field-client SDK URL.
func fieldClient() {
	s, url := speakers[os.Args[1]], os.Args[2]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		check(json.Unmarshal(lines.Bytes(), &c))
		said, err := carryOut(s, url, c)
		if err != nil {
			said = shown(err)
		}
		text, err := json.Marshal(said)
		check(err)
		fmt.Println(string(text))
	}
}

func carryOut(s speaker, url string, c command) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch c.Do {
	case "connect":
		return "connected", s.connect(ctx, url)
	case "call":
		var signs atomic.Int64
		text, err := s.call(ctx, c.Name, c.N, &signs)
		if len(text) > 100 && err == nil {
			text = fmt.Sprintf("%d characters", len(text))
		}
		if n := signs.Load(); n > 0 {
			text += fmt.Sprintf(", progress %d", n)
		}
		return text, err
	case "list":
		names, err := s.tools(ctx)
		slices.Sort(names)
		return strings.Join(names, " "), err
	case "probe":
		return "answered", s.probe(ctx)
	}
	return "", fmt.Errorf("no command %q", c.Do)
}

// varying are the parts of errors that differ from one run to the next.
var varying = regexp.MustCompile(`127\.0\.0\.1:\d+(->127\.0\.0\.1:\d+|[\w/]*)`)

// unlearned is a lost session that the Go SDK takes for an error of one request: that
// of the call or of the stream of the session, whichever is first.
var unlearned = regexp.MustCompile(`Session not found: rejected by transport: Not Found$`)

// shown says in one line what a person sees of an error: that the session is lost, if
// the SDK says so in a way that programs can tell, or else the code, where there is
// one, and the message.
func shown(err error) string {
	for _, lost := range []error{mcp.ErrSessionMissing, transport.ErrSessionTerminated} {
		if errors.Is(err, lost) || errors.Is(err, mcp.ErrConnectionClosed) && strings.Contains(err.Error(), lost.Error()) {
			return fmt.Sprintf("error: the session is lost: %v", lost)
		}
	}
	if found := unlearned.FindString(err.Error()); found != "" {
		return "error: " + found
	}
	code := ""
	if wire := new(jsonrpc.Error); errors.As(err, &wire) {
		code = fmt.Sprintf(" %d", wire.Code)
	}
	return "error" + code + ": " + varying.ReplaceAllString(strings.TrimSpace(err.Error()), "…")
}

// A goSpeaker is a client of the official Go SDK.
type goSpeaker struct {
	session *mcp.ClientSession
	signs   atomic.Pointer[atomic.Int64] // of the call
}

func (s *goSpeaker) connect(ctx context.Context, url string) error {
	if s.session != nil {
		s.session.Close()
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "field", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { s.signs.Load().Add(1) },
	})
	err := mcp.AddSendingCustomMethod[*mcp.ListToolsParams, *mcp.ListToolsResult](client, "field/unknown")
	if err == nil {
		s.session, err = client.Connect(context.WithoutCancel(ctx), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	}
	return err
}

func (s *goSpeaker) call(ctx context.Context, name string, n int, signs *atomic.Int64) (string, error) {
	s.signs.Store(signs)
	params := &mcp.CallToolParams{Name: name, Arguments: map[string]any{"n": n}, Meta: mcp.Meta{}}
	params.SetProgressToken(name)
	result, err := s.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	text := ""
	if content, ok := result.Content[0].(*mcp.TextContent); ok {
		text = content.Text
	}
	if result.IsError {
		text = "tool error: " + text
	}
	return text, nil
}

func (s *goSpeaker) tools(ctx context.Context) ([]string, error) {
	names := make(map[string]bool)
	for tool, err := range s.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names[tool.Name] = true
	}
	return slices.Collect(maps.Keys(names)), nil
}

func (s *goSpeaker) probe(ctx context.Context) error {
	_, err := mcp.CallCustomMethod[*mcp.ListToolsParams, *mcp.ListToolsResult](ctx, s.session, "field/unknown", &mcp.ListToolsParams{})
	return err
}
