package gateway

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// The trail names resources without the passwords of their URLs.
func TestTrailHasNoPasswords(t *testing.T) {
	for uri, want := range map[string]string{
		"postgres://app:hunter2@db.example.com/orders": "postgres://app:xxxxx@db.example.com/orders",
		"https://app:hunter2%zz@example.com/":          "https://app:xxxxx@example.com/",
		"file:///etc/hosts":                            "file:///etc/hosts",
		"%zz":                                          "%zz",
	} {
		e := &enforce.Entry{Call: &enforce.Call{
			Caller: &enforce.Caller{}, Message: &wire.Message{Method: wire.MethodResourceRead}, Params: &wire.Params{URI: uri},
		}}
		if got := auditCall(e).Tool; got != want {
			t.Errorf("%s: %s", uri, got)
		}
	}
}

// The outcome of a call that people approved is on disk before the client has the
// answer. That of another call is not waited for.
func TestOutcomeOfApprovedCallIsOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, left := t.TempDir(), t.TempDir()
		kept, err := audit.Open(dir, audit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		ends := &trail{Trail: kept, log: slog.New(slog.DiscardHandler)}
		var ids []string
		for _, approval := range []string{"apr_1", ""} {
			id, err := kept.Forward(audit.Call{Method: wire.MethodToolsCall, Approval: approval})
			if err != nil {
				t.Fatal(err)
			}
			ends.end(&enforce.Entry{Call: new(enforce.Call), Approval: approval}, id, audit.Succeeded)
			ids = append(ids, id)
		}
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil { // what the process leaves if it dies now
			t.Fatal(err)
		}
		next, err := audit.Open(left, audit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if lost := next.Unknown(); len(lost) != 1 || lost[0].ID != ids[1] {
			t.Errorf("%v are unknown, want %s, which nobody approved", lost, ids[1])
		}
	})
}
