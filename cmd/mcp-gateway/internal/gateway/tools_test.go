package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A server that says that its tools have changed is asked what they are, whoever
// calls or not, and a definition that has changed is not called from then on.
// However often it says so, it is asked once a second.
func TestAnnouncedChangesAreListed(t *testing.T) {
	changed := &wire.Message{Method: wire.MethodToolsChanged}
	for _, test := range []struct {
		name   string
		says   *wire.Message
		times  int // every millisecond
		fails  bool
		asked  func(n int64) bool
		stands error // of the tool after that
	}{
		{"once", changed, 1, false, func(n int64) bool { return n == 1 }, catalog.ErrQuarantined},
		{"ten thousand times in ten seconds", changed, 10_000, false, func(n int64) bool { return n >= 10 && n <= 12 }, catalog.ErrQuarantined},
		{"ten thousand times, and answers nothing", changed, 10_000, true, func(n int64) bool { return n >= 10 && n <= 12 }, nil},
		{"that its prompts have", &wire.Message{Method: "notifications/prompts/list_changed"}, 10, false, func(n int64) bool { return n == 0 }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), catalogFile)
			synctest.Test(t, func(t *testing.T) {
				all := listing(t, path)
				var asked atomic.Int64
				title := "one"
				call := &enforce.Call{Server: "desk", Params: &wire.Params{Name: "write"}}
				call.Upstream = func(_ context.Context, m *wire.Message) (*wire.Message, error) {
					asked.Add(1)
					if test.fails && title != "one" {
						return nil, errors.New("the server is gone")
					}
					return &wire.Message{ID: m.ID, Result: fmt.Appendf(nil, `{"tools":[{"name":"write","description":%q}]}`, title)}, nil
				}
				if _, err := all.FindTool(t.Context(), call); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				before := asked.Load()
				title = "two"
				for range test.times {
					all.onNotification(call, test.says)
					time.Sleep(time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				if n := asked.Load() - before; !test.asked(n) {
					t.Errorf("it is asked %d times", n)
				}
				if _, err := all.Tool("desk", "write"); !errors.Is(err, test.stands) {
					t.Errorf("the tool: %v", err)
				}
			})
		})
	}
}

// listing returns tools that are asked again when that is said, and pinned in a
// file.
func listing(t *testing.T, path string) *tools {
	t.Helper()
	pins, err := catalog.Open(catalog.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Catalog: catalogConfig{Refresh: duration(time.Hour)}, Servers: []serverConfig{{Name: "desk"}}}
	current := new(currentRules)
	current.Store(&rules{cfg: cfg, arguments: cfg.argumentPolicies()})
	all := newTools(pins, current, cfg, newHealth(), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { all.run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return all
}

// A call that comes while a server is asked again waits for what that says.
func TestCallWaitsForAnnouncedChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), catalogFile)
	synctest.Test(t, func(t *testing.T) {
		all := listing(t, path)
		title := "one"
		call := &enforce.Call{Server: "desk", Params: &wire.Params{Name: "write"}}
		call.Upstream = func(_ context.Context, m *wire.Message) (*wire.Message, error) {
			answer := fmt.Appendf(nil, `{"tools":[{"name":"write","description":%q}]}`, title)
			time.Sleep(10 * time.Second)
			return &wire.Message{ID: m.ID, Result: answer}, nil
		}
		if _, err := all.FindTool(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := all.FindTool(t.Context(), call); err != nil {
			t.Fatalf("the control: %v", err)
		}
		title = "two"
		all.onNotification(call, &wire.Message{Method: wire.MethodToolsChanged})
		time.Sleep(time.Millisecond)
		var refused *enforce.Refusal
		if _, err := all.FindTool(t.Context(), call); !errors.As(err, &refused) || refused.Data.Reason != enforce.ReasonQuarantined {
			t.Errorf("%v", err)
		}
	})
}

// A list that the server refuses in the session of one caller is that caller's
// answer. A call of another, which came meanwhile, lists in its own session.
func TestListInLostSession(t *testing.T) {
	path := filepath.Join(t.TempDir(), catalogFile)
	synctest.Test(t, func(t *testing.T) {
		all := listing(t, path)
		in := func(answer *wire.Message, err error) *enforce.Call {
			return &enforce.Call{Server: "desk", Params: &wire.Params{Name: "write"}, Upstream: func(context.Context, *wire.Message) (*wire.Message, error) {
				time.Sleep(time.Second)
				return answer, err
			}}
		}
		lost := in(nil, &enforce.Refusal{Code: wire.CodeInternal, Status: 404, Message: "Session not found"})
		alive := in(&wire.Message{Result: []byte(`{"tools":[{"name":"write"}]}`)}, nil)
		var calls sync.WaitGroup
		calls.Go(func() {
			var refused *enforce.Refusal
			if _, err := all.FindTool(t.Context(), lost); !errors.As(err, &refused) || refused.Status != 404 {
				t.Errorf("in the lost session: %v", err)
			}
		})
		time.Sleep(time.Millisecond)
		calls.Go(func() {
			if _, err := all.FindTool(t.Context(), alive); err != nil {
				t.Errorf("in another session: %v", err)
			}
		})
		calls.Wait()
		if _, err := all.FindTool(t.Context(), lost); err != nil {
			t.Errorf("once the tools are known: %v", err)
		}
	})
}
