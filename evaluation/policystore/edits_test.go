package policystore_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

var edits = flag.Int("edits", 3, "how often TestEdits makes each kind of edit")

// A style is a way to change a store. In an empty directory it makes one of
// version 0 and returns its path, what makes it another version, and what it
// then holds.
type style struct {
	name string
	make func(t *testing.T, base string) (dir string, edit func(version int), files func(version int) texts)
}

// one is a store of one file.
func one(name string) func(version int) texts {
	return func(version int) texts { return texts{name: policy(version)} }
}

// byFile makes the style of a store whose one file is edited.
func byFile(name, file string, edit func(t *testing.T, path, text string)) style {
	return style{name, func(t *testing.T, base string) (string, func(int), func(int) texts) {
		path := filepath.Join(base, "policies", file)
		put(t, path, policy(0))
		return filepath.Join(base, "policies"), func(version int) { edit(t, path, policy(version)) }, one(file)
	}}
}

// rename replaces a file as vim and sed do.
func rename(t *testing.T, path, text string) {
	put(t, path+".tmp", text)
	must(t, os.Rename(path+".tmp", path))
}

// bySwap makes the style of a store to which, at dir, leads the symbolic link
// ..data of the directory of that name.
func bySwap(name, dir, at string, links texts) style {
	return style{name, func(t *testing.T, base string) (string, func(int), func(int) texts) {
		in := filepath.Join(base, dir)
		edit := func(version int) { publish(t, in, version) }
		edit(0)
		for link, target := range links {
			must(t, os.Symlink(target, filepath.Join(base, link)))
		}
		return filepath.Join(base, at), edit, one("a.cedar")
	}}
}

// publish does what a kubelet does to a volume.
func publish(t testing.TB, dir string, version int) {
	t.Helper()
	name := fmt.Sprintf("..2026_%d", version)
	fill(t, filepath.Join(dir, name), texts{"a.cedar": policy(version)})
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

var styles = []style{
	byFile("in place", "a.cedar", func(t *testing.T, path, text string) { put(t, path, text) }),
	byFile("rename", "a.cedar", rename),
	byFile("backup and create", "a.cedar", func(t *testing.T, path, text string) {
		must(t, os.Rename(path, path+"~"))
		put(t, path, text)
	}),
	byFile("link", "a.cedar", func(t *testing.T, path, text string) {
		put(t, path+".tmp", text)
		must(t, os.Remove(path))
		must(t, os.Link(path+".tmp", path))
		must(t, os.Remove(path+".tmp"))
	}),
	byFile("directory deleted and made", "a.cedar", func(t *testing.T, path, text string) {
		must(t, os.RemoveAll(filepath.Dir(path)))
		put(t, path, text)
	}),
	byFile("directory renamed", "a.cedar", func(t *testing.T, path, text string) {
		dir := filepath.Dir(path)
		put(t, filepath.Join(dir+".new", filepath.Base(path)), text)
		must(t, os.Rename(dir, dir+".old"))
		must(t, os.Rename(dir+".new", dir))
		must(t, os.RemoveAll(dir+".old"))
	}),
	byFile("tenant in place", "tenants/acme/a.cedar", func(t *testing.T, path, text string) { put(t, path, text) }),
	byFile("tenant rename", "tenants/acme/a.cedar", rename),
	byFile("tenant deleted and made", "tenants/acme/a.cedar", func(t *testing.T, path, text string) {
		must(t, os.RemoveAll(filepath.Dir(path)))
		put(t, path, text)
	}),
	byFile("tenants deleted and made", "tenants/acme/a.cedar", func(t *testing.T, path, text string) {
		must(t, os.RemoveAll(filepath.Dir(filepath.Dir(path))))
		put(t, path, text)
	}),
	bySwap("ConfigMap", "policies", "policies", texts{"policies/a.cedar": "..data/a.cedar"}),
	bySwap("ConfigMap directory", "volume", "volume/..data", nil),
	bySwap("link to a link", "volume", "policies", texts{"policies": "volume/..data"}),
	{"links on the way", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		links := filepath.Join(base, "links")
		must(t, os.Mkdir(links, 0o700))
		must(t, os.Symlink("links/live", filepath.Join(base, "current")))
		edit := func(version int) {
			tree := fmt.Sprintf("../trees/%d", version)
			put(t, filepath.Join(links, tree, "policies/a.cedar"), policy(version))
			must(t, os.Symlink(tree, filepath.Join(links, "next")))
			must(t, os.Rename(filepath.Join(links, "next"), filepath.Join(links, "live")))
		}
		edit(0)
		return filepath.Join(base, "current/policies"), edit, one("a.cedar")
	}},
	{"parent renamed, then in place", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		above := filepath.Join(base, "above")
		edit := func(version int) {
			if version%2 == 1 {
				must(t, os.Rename(above, fmt.Sprintf("%s.%d", above, version)))
			}
			put(t, filepath.Join(above, "policies/a.cedar"), policy(version))
		}
		edit(0)
		return filepath.Join(above, "policies"), edit, one("a.cedar")
	}},
	{"directory made, then in place", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		dir := filepath.Join(base, "policies")
		edit := func(version int) {
			if version%2 == 1 {
				must(t, os.RemoveAll(dir))
			}
			put(t, filepath.Join(dir, "a.cedar"), policy(version))
		}
		edit(0)
		return dir, edit, one("a.cedar")
	}},
	{"linked tenants", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		dir := filepath.Join(base, "policies")
		edit := func(version int) { publish(t, dir, version) }
		edit(0)
		must(t, os.Mkdir(filepath.Join(dir, "tenants"), 0o700))
		must(t, os.Symlink("../..data", filepath.Join(dir, "tenants/acme")))
		return dir, edit, one("tenants/acme/a.cedar")
	}},
	{"new folders", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		dir := filepath.Join(base, "policies")
		put(t, filepath.Join(dir, "a.cedar"), policy(0))
		files := texts{"a.cedar": policy(0)}
		edit := func(version int) {
			name := fmt.Sprintf("forbids/f%d/deep/b.cedar", version)
			put(t, filepath.Join(dir, name), policy(version))
			files[name] = policy(version)
		}
		return dir, edit, func(int) texts { return maps.Clone(files) }
	}},
	{"folder in place", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		dir := filepath.Join(base, "policies")
		edit := func(version int) { put(t, filepath.Join(dir, "sub/deep/a.cedar"), policy(version)) }
		edit(0)
		return dir, edit, one("sub/deep/a.cedar")
	}},
	{"new tenant", func(t *testing.T, base string) (string, func(int), func(int) texts) {
		dir := filepath.Join(base, "policies")
		put(t, filepath.Join(dir, "a.cedar"), policy(0))
		files := texts{"a.cedar": policy(0)}
		edit := func(version int) {
			name := fmt.Sprintf("tenants/t%d/b.cedar", version)
			put(t, filepath.Join(dir, name), policy(version))
			files[name] = policy(version)
		}
		return dir, edit, func(int) texts { return maps.Clone(files) }
	}},
}

// An edit is in force within two seconds, without the help of a poll.
func TestEdits(t *testing.T) {
	for _, s := range styles {
		t.Run(s.name, func(t *testing.T) { edit(t, s, 2*time.Second, policystore.Config{Poll: time.Hour}) })
	}
}

// Where the file system reports nothing it may take a poll longer.
func TestEditsPolled(t *testing.T) {
	blind := func(s *policystore.Store) { s.Blind(errors.New("no more watches")) }
	for _, s := range []style{styles[0], styles[1], styles[10]} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			edit(t, s, 3500*time.Millisecond, policystore.Config{}, blind)
		})
	}
}

// edit makes edits in one style and checks how long it takes from the end of
// each until it is applied.
func edit(t *testing.T, s style, limit time.Duration, c policystore.Config, prepare ...func(*policystore.Store)) {
	t.Helper()
	dir, edit, files := s.make(t, t.TempDir())
	f := follow(t, dir, c, prepare...)
	var took []time.Duration
	for version := 1; version <= *edits; version++ {
		edit(version)
		edited := time.Now()
		took = append(took, f.applied(files(version)).at.Sub(edited))
	}
	slices.Sort(took)
	percentile := func(p int) time.Duration { return took[len(took)*p/100].Round(time.Millisecond) }
	t.Logf("%d edits: p50 %v, p99 %v", *edits, percentile(50), percentile(99))
	if last := took[len(took)-1]; last > limit {
		t.Errorf("an edit was applied after %v", last)
	}
}
