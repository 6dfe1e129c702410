package conformance_test

import (
	"path/filepath"
	"testing"
)

// tornWrites is how often a store is written over: a tenth of the swaps.
func tornWrites() int { return max(10, *reloadSwaps/10) }

// TestReloadOfPartialWrites holds that files which are written over one by one, with a
// manifest, show no mixture: what is between two versions is refused, and the
// last one goes on.
func TestReloadOfPartialWrites(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, versioned(0))
	put(t, filepath.Join(dir, "manifest.json"), manifest(0))
	s := serveDir(t, dir, "--require-manifest")
	l := newLoad(t, s)
	whole := l.during(func() {
		for version := 1; version <= tornWrites(); version++ {
			for name, text := range versioned(version) {
				putByRename(t, filepath.Join(dir, name), text)
				if s.reload(t).Loaded {
					t.Errorf("%s of version %d is in force alone", name, version)
				}
			}
			putByRename(t, filepath.Join(dir, "manifest.json"), manifest(version))
			s.apply(t, l, version)
		}
	})
	t.Logf("one by one, and a manifest: %v", whole)
	whole.clean(t)
}

// TestReloadOfPartialWritesControl holds that the check of TestReload and TestReloadOfPartialWrites
// sees versions that are mixed: without a manifest the store can be read between
// two files, which nobody can tell from a store that is meant.
func TestReloadOfPartialWritesControl(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, versioned(0))
	s := serveDir(t, dir)
	l := newLoad(t, s)
	torn := l.during(func() {
		for version := 1; version <= tornWrites(); version++ {
			for name, text := range versioned(version) {
				putByRename(t, filepath.Join(dir, name), text)
				s.reload(t)
			}
		}
	})
	t.Logf("one by one: %v", torn)
	if len(torn.mixed) == 0 || len(torn.refused) > 0 {
		t.Errorf("%d answers are mixed, %d refused: would the check see it?", len(torn.mixed), len(torn.refused))
	}
}
