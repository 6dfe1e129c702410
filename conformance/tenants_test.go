package conformance_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What one tenant writes keeps nothing from another: beside a tenant that is at
// fault, or a bomb, another's forbid is in force within two seconds.
func TestTenantsReloadApart(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, "tenants/evil")
	put(t, filepath.Join(dir, "a.cedar"), "@id(\"erase\") forbid (principal, action == Action::\"erase\", resource);\n")
	put(t, filepath.Join(evil, "own.cedar"), permitsAll)
	s := serveDir(t, dir)
	for name, bomb := range map[string]struct{ file, text, want string }{
		"at fault":     {"more.cedar", "permit (\n", "tenants/evil/more.cedar:"},
		"aliases":      {"config.yaml", "approval_templates:\n  t:\n    display:\n" + aliases("      "), "tenants/evil/config.yaml:9:13: this stands for more than 100000 values"},
		"nested types": {"schema.cedarschema", nestedTypes(), "tenants/evil/schema.cedarschema:11:1: with type A10"},
		"unknown keys": {"config.yaml", unknownKeys(100_000), "tenants/evil/config.yaml: a mapping has more than 10000 keys"},
	} {
		good := filepath.Join(dir, "tenants/good")
		must(t, os.RemoveAll(good))
		put(t, filepath.Join(good, "own.cedar"), permitsAll)
		s.decidesFor(t, "good", `{"decision":true}`)

		put(t, filepath.Join(evil, bomb.file), bomb.text)
		eventually(t, name+": the tenant's fault is not told", func() bool { return strings.Contains(s.verbose(t), bomb.want) })
		put(t, filepath.Join(good, "own.cedar"), forbidsAll)
		written := time.Now()
		s.decidesFor(t, "good", `{"decision":false}`)
		if took := time.Since(written); took > 2*time.Second && !raceEnabled() {
			t.Errorf("%s: in force after %v", name, took)
		}
		s.decidesFor(t, "evil", `{"decision":true}`)
		if text := s.verbose(t); !strings.HasPrefix(text, "stale\n") {
			t.Errorf("%s: readiness is\n%s", name, text)
		}
		must(t, os.Remove(filepath.Join(evil, bomb.file)))
		eventually(t, name+": the fault stays", func() bool { return strings.HasPrefix(s.verbose(t), "ok\n") })
	}
}

// decidesFor waits until a tenant's request is answered so.
func (s *server) decidesFor(t *testing.T, tenant, want string) {
	t.Helper()
	eventually(t, tenant+" is not answered "+want, func() bool {
		_, body := s.post(t, "/tenants/"+tenant+"/access/v1/evaluation", []byte(readsRecord1))
		return body == want
	})
}

// verbose returns what a service says of itself.
func (s *server) verbose(t *testing.T) string {
	t.Helper()
	response, err := http.Get(s.Admin + "/readyz?verbose")
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return string(text)
}
