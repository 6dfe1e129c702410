package policystore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// link makes symbolic links, by what they point to.
func link(t *testing.T, dir string, links map[string]string) {
	t.Helper()
	for name, target := range links {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
}

func loads(t *testing.T, dir string, want texts) {
	t.Helper()
	archive, err := policystore.Load(dir)
	must(t, err)
	if diff := cmp.Diff(want, textsOf(archive)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	store := texts{
		"a.cedar":            policy(1),
		"with space.cedar":   "// nothing\n",
		"empty.cedar":        "",
		"schema.cedarschema": "entity user;",
		"schema.json":        "{}",
		"entities.json":      "[]",
		"config.yaml":        "clock: now\n",
	}
	dir := newStore(t, store)
	loads(t, dir, store)
	fill(t, dir, texts{
		"README.md": "x", "tests/a.yaml": "x", "a.cedar~": "x", "a.cedar.bak": "x", "._a.cedar": "\x00\x05",
		"cedar": "x", "entities.json.tmp": "x", "config.yaml~": "x", "sub/.hidden/c.cedar": "x", ".git/c.cedar": "x", "docs/notes.yaml": "x",
	})
	loads(t, dir, store)
}

// Symbolic links may point anywhere inside the directory.
func TestLinksInside(t *testing.T) {
	dir := newStore(t, texts{
		"..2026_11_20/a.cedar":       policy(1),
		"..2026_11_20/entities.json": "[]",
		".shared/b.cedar":            policy(2),
	})
	link(t, dir, map[string]string{
		"..data":        "..2026_11_20",
		"a.cedar":       "..data/a.cedar",
		"entities.json": "..data/entities.json",
		"b.cedar":       ".shared/../.shared/b.cedar",
		"c.cedar":       "b.cedar",
	})
	want := texts{"a.cedar": policy(1), "b.cedar": policy(2), "c.cedar": policy(2), "entities.json": "[]"}
	loads(t, dir, want)

	// The way in which Kubernetes changes a volume.
	fill(t, dir, texts{"..2026_11_21/a.cedar": policy(3), "..2026_11_21/entities.json": "[ ]"})
	link(t, dir, map[string]string{"..data_tmp": "..2026_11_21"})
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	want["a.cedar"], want["entities.json"] = policy(3), "[ ]"
	loads(t, dir, want)
}

// And nowhere else.
func TestLinksOutside(t *testing.T) {
	outside := newStore(t, texts{"a.cedar": policy(1)})
	for name, links := range map[string]map[string]string{
		"to a sibling directory": {"a.cedar": "../policies-2/a.cedar"},
		"and back in":            {"a.cedar": "../policies/fine.cedar"},
		"to itself":              {"a.cedar": "a.cedar"},
		"by a directory":         {"..data": outside, "a.cedar": "..data/a.cedar"},
		"by two":                 {"..data": "sub/up", "sub/up": "../..", "a.cedar": "..data/beside.cedar"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newStore(t, texts{
				"fine.cedar": policy(1), "sub/x": "", "../beside.cedar": policy(2), "../policies-2/a.cedar": policy(3),
			})
			link(t, dir, links)
			if archive, err := policystore.Load(dir); err == nil {
				t.Errorf("loaded %q", textsOf(archive))
			}
		})
	}
}
