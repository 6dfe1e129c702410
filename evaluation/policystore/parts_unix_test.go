//go:build unix

package policystore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A tenantHardship is what a tenant can do to its own folder.
type tenantHardship struct {
	hurt func(t *testing.T, dir string) // the tenant's folder, which is there
	want string                         // that is told, below tenants/
}

var tenantHardships = map[string]tenantHardship{
	"link out of the store": {
		func(t *testing.T, dir string) { link(t, dir, map[string]string{"b.cedar": "../../../beside.cedar"}) },
		"evil/b.cedar: path escapes",
	},
	"absolute link": {
		func(t *testing.T, dir string) { link(t, dir, map[string]string{"b.cedar": "/etc/hostname"}) },
		"evil/b.cedar: path escapes from the policy store: the symbolic link to /etc/hostname is absolute",
	},
	"link to a folder outside": {
		func(t *testing.T, dir string) { link(t, dir, map[string]string{"sub": "../../../outside"}) },
		"evil/sub: path escapes",
	},
	"link for the folder": {
		func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Symlink("../../outside", dir))
		},
		"evil: path escapes",
	},
	"link round": {
		func(t *testing.T, dir string) { link(t, dir, map[string]string{"round": "."}) },
		"evil/round: the symbolic link leads to a folder that it is in",
	},
	"pipe": {
		func(t *testing.T, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "b.cedar"), 0o600)) },
		"evil/b.cedar: is not a regular file",
	},
	"folder of a policy's name": {
		func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, "b.cedar"), 0o700)) },
		"evil/b.cedar: is not a regular file",
	},
	"many files": {
		func(t *testing.T, dir string) { names(t, dir, 2_000, "%05d.cedar") },
		"evil: has more than 2000 files and folders",
	},
	"many files that are not read": {
		func(t *testing.T, dir string) { names(t, dir, 2_000, ".%05d") },
		"evil: has more than 2000 files and folders",
	},
	"deep folders": {
		func(t *testing.T, dir string) {
			must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 300)), 0o700))
		},
		"folders nest deeper than 32",
	},
	"name that is not UTF-8": {
		func(t *testing.T, dir string) { put(t, filepath.Join(dir, "\xff.cedar"), policy(9)) },
		`evil/\xff.cedar: file names must be UTF-8 without line breaks`,
	},
	"name of two lines": {
		func(t *testing.T, dir string) { put(t, filepath.Join(dir, "a\nb.cedar"), policy(9)) },
		`evil/a\nb.cedar: file names must be UTF-8 without line breaks`,
	},
	"large file": {
		func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "b.cedar"), 64<<20+1) },
		"evil/b.cedar: is larger than 67108864 bytes",
	},
	"large files": {
		func(t *testing.T, dir string) {
			sparse(t, filepath.Join(dir, "b.cedar"), 40<<20)
			sparse(t, filepath.Join(dir, "c.cedar"), 40<<20)
		},
		"evil/c.cedar: with this file there are more than 67108864 bytes",
	},
	"nothing": {
		func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "own.cedar"))) },
		"evil: holds no file that is read (put *.cedar files into it, or remove it)",
	},
	"masses of faults": {
		func(t *testing.T, dir string) {
			for i := range 100 {
				must(t, os.Symlink("/nowhere", filepath.Join(dir, fmt.Sprintf("%04d.cedar", i))))
			}
		},
		"evil: has 50 more faults",
	},
	"masses of misplaced names beside a pipe": {
		func(t *testing.T, dir string) {
			names(t, dir, 60, "%04d.Cedar")
			must(t, syscall.Mkfifo(filepath.Join(dir, "z.cedar"), 0o600))
		},
		"evil/z.cedar: is not a regular file",
	},
}

// names makes so many empty files.
func names(t *testing.T, dir string, n int, form string) {
	t.Helper()
	for i := range n {
		put(t, filepath.Join(dir, fmt.Sprintf(form, i)), "")
	}
}

var (
	healthy  = texts{"a.cedar": policy(1), "tenants/good/own.cedar": policy(2)}
	withEvil = texts{"a.cedar": policy(1), "tenants/good/own.cedar": policy(2), "tenants/evil/own.cedar": policy(3)}
)

// hurt makes a store in which a tenant has hurt its own folder.
func (h tenantHardship) store(t *testing.T) string {
	t.Helper()
	dir := newStore(t, withEvil)
	fill(t, dir, texts{"../beside.cedar": policy(9), "../outside/b.cedar": policy(9)})
	h.hurt(t, filepath.Join(dir, "tenants/evil"))
	return dir
}

// What keeps a tenant's folder from being read is that tenant's fault alone, and
// none of its files is read. Where all has to be right it is an error.
func TestTenantUnread(t *testing.T) {
	for name, h := range tenantHardships {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := h.store(t)
			state, err := policystore.New(dir, policystore.Config{}).Read()
			must(t, err)
			if diff := cmp.Diff(healthy, textsOf(state.Archive)); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
			tells(t, state.TenantFaults, h.want)
			for _, fault := range state.TenantFaults {
				if snapshot.TenantAt(fault.File) != "evil" {
					t.Errorf("%s is not told of the tenant", fault)
				}
			}

			root, err := os.OpenRoot(dir)
			must(t, err)
			defer root.Close()
			_, err = policystore.Read(root.FS())
			var found faults.List
			if !errors.As(err, &found) {
				t.Errorf("read for a check: %v", err)
			}
		})
	}
}

func tells(t *testing.T, found faults.List, want string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f faults.Fault) bool {
		return strings.HasPrefix(f.File, "tenants/evil") && strings.Contains(f.Error(), want)
	}) || len(found) > 52 {
		t.Errorf("told of %d faults: %v, not %s", len(found), found, want)
	}
}

// A manifest says what all files are: no part of a store comes without the others.
func TestTenantUnreadUnderManifest(t *testing.T) {
	for name, h := range tenantHardships {
		if name == "nothing" || strings.HasPrefix(name, "many") {
			continue // what is missing the manifest tells, and masses are like any other fault
		}
		dir := h.store(t)
		put(t, filepath.Join(dir, "manifest.json"), manifestOf(t, 1, healthy))
		if state, err := policystore.New(dir, policystore.Config{}).Read(); err == nil || !strings.Contains(err.Error(), h.want) {
			t.Errorf("%s: %v, %v", name, state, err)
		}
	}
}

// A watched store goes on while a tenant's folder cannot be read, with that tenant
// at fault, and recovers.
func TestTenantUnreadWatched(t *testing.T) {
	for name, h := range tenantHardships {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newStore(t, withEvil)
			f := follow(t, dir, policystore.Config{})
			h.hurt(t, filepath.Join(dir, "tenants/evil"))
			put(t, filepath.Join(dir, "tenants/good/own.cedar"), policy(4))
			after := maps.Clone(healthy)
			after["tenants/good/own.cedar"] = policy(4)
			f.comes(after)
			must(t, os.RemoveAll(filepath.Join(dir, "tenants/evil")))
			put(t, filepath.Join(dir, "tenants/evil/own.cedar"), policy(3))
			after["tenants/evil/own.cedar"] = policy(3)
			f.comes(after)
		})
	}
}

// comes waits for files to be applied, whatever is on the way to them.
func (f *follower) comes(files texts) {
	f.t.Helper()
	for r := f.next(); !maps.Equal(r.files, files); r = f.next() {
		if r.files == nil {
			f.t.Errorf("not read: %v", r.err)
		}
	}
}

// A tenant that never keeps still is left out.
func TestTenantUnsteady(t *testing.T) {
	dir := newStore(t, withEvil)
	file, stop, stopped := filepath.Join(dir, "tenants/evil/own.cedar"), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(file, []byte(strings.Repeat(" ", i%100)), 0o600)
			}
		}
	}()
	for range 20 {
		state, err := policystore.New(dir, policystore.Config{}).Read()
		if err != nil {
			t.Errorf("the store is not read: %v", err)
			break
		}
		got := textsOf(state.Archive)
		if _, read := got["tenants/evil/own.cedar"]; read == (len(state.TenantFaults) > 0) {
			t.Errorf("read %v and told %v", got, state.TenantFaults)
		}
		delete(got, "tenants/evil/own.cedar")
		if diff := cmp.Diff(healthy, got); diff != "" {
			t.Errorf("archive (-want +got):\n%s", diff)
		}
	}
	close(stop)
	<-stopped
}

// endless is a store in which a tenant's folder has names without end.
type endless struct {
	fstest.MapFS
	handed *int // names
}

type endlessDir struct {
	fs.File
	handed *int
}

func (e endless) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if name == "tenants/evil" {
		return endlessDir{f, e.handed}, err
	}
	return f, err
}

func (d endlessDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries := make([]fs.DirEntry, n)
	for i := range entries {
		*d.handed++
		info, err := fs.Stat(fstest.MapFS{"x.cedar": {}}, "x.cedar")
		if err != nil {
			return nil, err
		}
		entries[i] = fs.FileInfoToDirEntry(info)
	}
	return entries, nil
}

// However many names a tenant's folder has, a listing takes those up to the bound.
func TestTenantWithNamesWithoutEnd(t *testing.T) {
	store := endless{fstest.MapFS{"a.cedar": {Data: []byte(policy(1))}, "tenants/evil/own.cedar": {}, "tenants/good/own.cedar": {Data: []byte(policy(2))}}, new(int)}
	archive, err := policystore.Read(store)
	var found faults.List
	if !errors.As(err, &found) {
		t.Fatal(err)
	}
	tells(t, found, "evil: has more than 2000 files and folders")
	if diff := cmp.Diff(healthy, textsOf(archive)); diff != "" || *store.handed > 2*2_001 {
		t.Errorf("two listings took %d names; archive (-want +got):\n%s", *store.handed, diff)
	}
}

// What all tenants have together is bounded, and those with the most are left out.
func TestTenantsTogether(t *testing.T) {
	dir := newStore(t, healthy)
	for i := range 18 {
		sparse(t, filepath.Join(dir, fmt.Sprintf("tenants/big%02d/a.cedar", i)), 64<<20-int64(i))
	}
	told := policystore.TenantFaults(os.DirFS(dir))
	if len(told) != 2 || told[0].File != "tenants/big00" || told[1].File != "tenants/big01" {
		t.Errorf("told %v", told)
	}
}

// A folder of tenants without one would have the root answer everybody.
func TestTenantsEmpty(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(1), "tenants/.gitkeep": ""})
	_, err := policystore.New(dir, policystore.Config{}).Read()
	if err == nil || !says("tenants: holds no tenant: the root would answer everybody")(err) {
		t.Errorf("the error is %v", err)
	}
}
