package policystore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// sparse makes a file of so many bytes that takes no space.
func sparse(t testing.TB, path string, size int64) {
	t.Helper()
	put(t, path, "")
	must(t, os.Truncate(path, size))
}

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		fill func(dir string)
		want string
	}{
		"a large file": {
			func(dir string) { sparse(t, filepath.Join(dir, "large.cedar"), 64<<20+1) },
			"large.cedar: is larger than 67108864 bytes",
		},
		"a large manifest": {
			func(dir string) { sparse(t, filepath.Join(dir, "manifest.json"), 64<<20+1) },
			"manifest.json: is larger than 67108864 bytes",
		},
		"large files": {
			func(dir string) {
				for i := range 5 {
					sparse(t, filepath.Join(dir, fmt.Sprintf("%d.cedar", i)), 64<<20)
				}
			},
			"4.cedar: with this file there are more than 268435456 bytes",
		},
		"many files": {
			func(dir string) {
				for i := range 12_000 {
					put(t, filepath.Join(dir, fmt.Sprintf("%05d.cedar", i)), "")
				}
			},
			"10000.cedar: with this file there are more than 10000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newStore(t, nil)
			test.fill(dir)
			_, err := policystore.Load(dir)
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("the error is %v, not %s", err, test.want)
			}
		})
	}
}

// The largest store that is allowed can be read.
func TestLimitOfFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("writes many files: make check runs it")
	}
	dir := newStore(t, nil)
	for i := range 10_000 {
		put(t, filepath.Join(dir, fmt.Sprintf("%05d.cedar", i)), policy(i))
	}
	archive, err := policystore.Load(dir)
	must(t, err)
	if len(archive) != 10_000 {
		t.Errorf("read %d files", len(archive))
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, files := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			dir := newStore(b, nil)
			for i := range files {
				put(b, filepath.Join(dir, fmt.Sprintf("%05d.cedar", i)), policy(i))
			}
			for b.Loop() {
				if _, err := policystore.Load(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
