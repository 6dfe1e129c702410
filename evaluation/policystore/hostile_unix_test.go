//go:build unix

package policystore_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// A hardship is what can happen to a store with the one file a.cedar.
type hardship struct {
	name string
	hurt func(t *testing.T, dir string)
	want func(error) bool
	heal func(t *testing.T, dir string) // beside writing a.cedar again
}

var hardships = []hardship{
	{
		name: "half a file",
		hurt: func(t *testing.T, dir string) { put(t, filepath.Join(dir, "a.cedar"), policy(1)[:30]) },
		want: is(errRefused),
	},
	{
		name: "empty file",
		hurt: func(t *testing.T, dir string) { put(t, filepath.Join(dir, "a.cedar"), "") },
		want: is(errRefused),
	},
	{
		name: "bad syntax",
		hurt: func(t *testing.T, dir string) { put(t, filepath.Join(dir, "b.cedar"), "permit (;") },
		want: is(errRefused),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "emptied",
		hurt: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "a.cedar"))) },
		want: is(policystore.ErrEmpty),
	},
	{
		name: "deleted",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		want: is(fs.ErrNotExist),
	},
	{
		name: "deleted with its parent",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Dir(dir))) },
		want: is(fs.ErrNotExist),
	},
	{
		name: "moved away",
		hurt: func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".away")) },
		want: is(fs.ErrNotExist),
		heal: func(t *testing.T, dir string) { must(t, os.Rename(dir+".away", dir)) },
	},
	{
		name: "a file in its place",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); put(t, dir, "no directory") },
		want: is(syscall.ENOTDIR),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(dir)) },
	},
	{
		name: "a pipe in its place",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, syscall.Mkfifo(dir, 0o600)) },
		want: is(syscall.ENOTDIR),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(dir)) },
	},
	{
		name: "a link in a circle in its place",
		hurt: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, os.Symlink(dir, dir)) },
		want: is(syscall.ELOOP),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(dir)) },
	},
	{
		name: "a link out of it",
		hurt: func(t *testing.T, dir string) {
			put(t, dir+".outside/b.cedar", policy(9))
			must(t, os.Symlink("../policies.outside/b.cedar", filepath.Join(dir, "b.cedar")))
		},
		want: says("b.cedar: path escapes"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "an absolute link",
		hurt: func(t *testing.T, dir string) { must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "b.cedar"))) },
		want: says("b.cedar: path escapes"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "a link to nothing",
		hurt: func(t *testing.T, dir string) { must(t, os.Symlink("nothing", filepath.Join(dir, "b.cedar"))) },
		want: says("b.cedar: no such file"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "a pipe",
		hurt: func(t *testing.T, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "b.cedar"), 0o600)) },
		want: says("b.cedar: is not a regular file"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "a pipe for the tenants",
		hurt: func(t *testing.T, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "tenants"), 0o600)) },
		want: says("tenants: is not a directory"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "tenants"))) },
	},
	{
		name: "a directory",
		hurt: func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, "b.cedar"), 0o700)) },
		want: says("b.cedar: is not a regular file"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "a file of 100 MB",
		hurt: func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "b.cedar"), 100<<20) },
		want: says("b.cedar: is larger than"),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.cedar"))) },
	},
	{
		name: "a wrong tenant",
		hurt: func(t *testing.T, dir string) { put(t, filepath.Join(dir, "tenants/Acme/b.cedar"), policy(9)) },
		want: says(`tenants/Acme: "Acme" cannot be`),
		heal: func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "tenants"))) },
	},
	{
		name: "a manifest of something else",
		hurt: func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "manifest.json"), manifestOf(t, 1, texts{"a.cedar": policy(9)}))
		},
		want: is(policystore.ErrManifest),
		heal: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "manifest.json"))) },
	},
	{
		name: "a storm of files",
		hurt: func(t *testing.T, dir string) {
			if testing.Short() {
				t.Skip("writes many files: make check runs it")
			}
			storm(t, func(name string) { put(t, filepath.Join(dir, name), "") })
		},
		want: says("with this file there are more than 10000"),
		heal: func(t *testing.T, dir string) {
			storm(t, func(name string) { must(t, os.Remove(filepath.Join(dir, name))) })
		},
	},
	{
		name: "permission lost",
		hurt: func(t *testing.T, dir string) {
			if os.Geteuid() == 0 {
				t.Skip("nothing is forbidden to root")
			}
			must(t, os.Chmod(dir, 0))
		},
		want: is(fs.ErrPermission),
		heal: func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o700)) },
	},
}

func storm(t *testing.T, act func(name string)) {
	t.Helper()
	for i := range 12_000 {
		act(fmt.Sprintf("storm-%05d.cedar", i))
	}
}

// Whatever happens to a store, what is in force stays so, the reason is told,
// and what comes after is applied, be it the same or something else.
func TestHostileStores(t *testing.T) {
	for _, h := range hardships {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "above", "policies")
			put(t, filepath.Join(dir, "a.cedar"), policy(1))
			f := follow(t, dir, policystore.Config{})
			for version := 1; version <= 2; version++ {
				h.hurt(t, dir)
				f.failed(h.want)
				if h.heal != nil {
					h.heal(t, dir)
				}
				put(t, filepath.Join(dir, "a.cedar"), policy(version))
				f.applied(texts{"a.cedar": policy(version)})
			}
		})
	}
}
