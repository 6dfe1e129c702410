package conformance_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"
)

var edits = flag.Int("edits", 5, "how often TestEdits makes each kind of edit")

// editLimit is how soon an edit has to be in force.
const editLimit = 2 * time.Second

// A way is how a store is edited: make makes it of version 0.
type way struct {
	name string
	make func(t *testing.T) (dir string)
	edit func(t *testing.T, dir string, version int)
}

var ways = []way{
	inOneFileBy("in place", put),
	inOneFileBy("by rename", putByRename),
	{"swap of ..data", published, publish},
}

func inOneFileBy(name string, write func(t *testing.T, path, text string)) way {
	edit := func(t *testing.T, dir string, version int) {
		t.Helper()
		write(t, filepath.Join(dir, policyFile), inOneFile(version))
	}
	return way{name, func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		edit(t, dir, 0)
		return dir
	}, edit}
}

// TestEdits holds that an edit is in force in time without anybody asking for
// it, and measures from the end of the edit to the first answer by it.
func TestEdits(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			dir := way.make(t)
			l := newLoad(t, serveDir(t, dir))
			took := make([]time.Duration, *edits)
			for i := range took {
				way.edit(t, dir, i+1)
				took[i] = l.await(t, i+1)
			}
			slowest := percentile(took, 100)
			t.Logf("%d edits: p50 %v, p99 %v, slowest %v", *edits, percentile(took, 50), percentile(took, 99), slowest)
			if slowest > editLimit {
				t.Errorf("an edit was in force after %v", slowest)
			}
		})
	}
}
