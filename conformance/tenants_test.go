package conformance_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
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
		process.Eventually(t, name+": the tenant's fault is not told", func() bool { return strings.Contains(s.verbose(t), bomb.want) })
		put(t, filepath.Join(good, "own.cedar"), forbidsAll)
		written := time.Now()
		s.decidesFor(t, "good", `{"decision":false}`)
		if took := time.Since(written); took > 2*time.Second && !process.Race() {
			t.Errorf("%s: in force after %v", name, took)
		}
		s.decidesFor(t, "evil", `{"decision":true}`)
		if text := s.verbose(t); !strings.HasPrefix(text, "stale\n") {
			t.Errorf("%s: readiness is\n%s", name, text)
		}
		must(t, os.Remove(filepath.Join(evil, bomb.file)))
		process.Eventually(t, name+": the fault stays", func() bool { return strings.HasPrefix(s.verbose(t), "ok\n") })
	}
}

// What one tenant does to its folder, so that it cannot be read, keeps nothing
// from another either, also over a restart. Then it is 503 for that tenant alone.
func TestTenantsAreReadApart(t *testing.T) {
	for name, hurt := range map[string]func(dir string) error{
		"link out of the store":    func(dir string) error { return os.Symlink("/etc/hostname", filepath.Join(dir, "b.cedar")) },
		"link to a folder outside": func(dir string) error { return os.Symlink("../../..", filepath.Join(dir, "sub")) },
		"pipe":                     func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "b.cedar"), 0o600) },
		"deep folders":             func(dir string) error { return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 300)), 0o700) },
		"many folders":             manyFolders,
		"name that is not UTF-8":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "\xff.cedar"), nil, 0o600) },
		"name of two lines":        func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\nb.cedar"), nil, 0o600) },
		"large file": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "b.cedar"), nil, 0o600), os.Truncate(filepath.Join(dir, "b.cedar"), 64<<20+1))
		},
		"nothing": func(dir string) error { return os.Remove(filepath.Join(dir, "own.cedar")) },
	} {
		t.Run(name, func(t *testing.T) { readsApart(t, hurt) })
	}
}

func manyFolders(dir string) error {
	for i := range 2_000 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func readsApart(t *testing.T, hurt func(dir string) error) {
	dir, state := t.TempDir(), t.TempDir()
	own := filepath.Join(dir, "tenants/good/own.cedar")
	put(t, filepath.Join(dir, "a.cedar"), "@id(\"erase\") forbid (principal, action == Action::\"erase\", resource);\n")
	put(t, filepath.Join(dir, "tenants/evil/own.cedar"), permitsAll)
	put(t, own, permitsAll)
	s := launch(t, serveCommand(t, dir, state))
	s.decidesFor(t, "good", `{"decision":true}`)

	must(t, hurt(filepath.Join(dir, "tenants/evil")))
	put(t, own, forbidsAll)
	s.decidesFor(t, "good", `{"decision":false}`)
	s.decidesFor(t, "evil", `{"decision":true}`)
	process.Eventually(t, "the tenant's fault is not told", func() bool {
		text := s.verbose(t)
		return strings.HasPrefix(text, "stale\n") && strings.Contains(text, "tenants/evil")
	})
	s.End(t)

	s = launch(t, serveCommand(t, dir, state))
	s.decidesFor(t, "good", `{"decision":false}`)
	if status, body := s.post(t, "/tenants/evil/access/v1/evaluation", []byte(readsRecord1)); status != http.StatusServiceUnavailable {
		t.Errorf("after a restart the tenant is answered %d %s", status, body)
	}
	put(t, own, permitsAll)
	s.decidesFor(t, "good", `{"decision":true}`)
	must(t, os.RemoveAll(filepath.Join(dir, "tenants/evil")))
	put(t, filepath.Join(dir, "tenants/evil/own.cedar"), permitsAll)
	s.decidesFor(t, "evil", `{"decision":true}`)

	// The same in the root is a fault of all: a control.
	must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "b.cedar")))
	process.Eventually(t, "the root's fault is not told", func() bool { return strings.Contains(s.verbose(t), "b.cedar: path escapes") })
	put(t, own, forbidsAll)
	process.Eventually(t, "the change is not looked at", func() bool { return strings.HasPrefix(s.verbose(t), "stale\n") })
	s.decidesFor(t, "good", `{"decision":true}`)
}

// decidesFor waits until a tenant's request is answered so.
func (s *server) decidesFor(t *testing.T, tenant, want string) {
	t.Helper()
	process.Eventually(t, tenant+" is not answered "+want, func() bool {
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
