package decisionlog_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// hash returns the file name of a blob: its SHA-256.
func hash(blob string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(blob))) }

func TestManifest(t *testing.T) {
	got, err := decisionlog.Manifest(map[string][]byte{
		"b.cedar":                []byte("b"),
		"a.cedar":                []byte("a"),
		"tenants/acme/a.cedar":   []byte("a"),
		"tenants/acme/two  gaps": nil,
	})
	want := hash("a") + "  a.cedar\n" +
		hash("b") + "  b.cedar\n" +
		hash("a") + "  tenants/acme/a.cedar\n" +
		hash("") + "  tenants/acme/two  gaps\n"
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("manifest (-want +got):\n%s%v", diff, err)
	}
	if got, want := decisionlog.Revision(got), "sha256:"+hash(want); got != want {
		t.Errorf("revision = %s, want %s", got, want)
	}
}

func TestManifestRefuses(t *testing.T) {
	for _, path := range []string{"", ".", "..", "/a", "a/", "a//b", "./a", "a/../b", "a\nb", "a\r", "\xff"} {
		if _, err := decisionlog.Manifest(map[string][]byte{path: nil}); err == nil {
			t.Errorf("%q is taken for a path", path)
		}
	}
}

// archived returns the files under DIR/archive with their sizes and times.
func archived(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	root := filepath.Join(dir, "archive")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		found[filepath.ToSlash(name)] = fmt.Sprint(info.Size(), info.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func keep(t *testing.T, l *decisionlog.Log, files map[string][]byte) (revision string) {
	t.Helper()
	revision, err := l.KeepArchive(files)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func checkArchive(t *testing.T, l *decisionlog.Log, revision string, want map[string][]byte) {
	t.Helper()
	got, err := l.ReadArchive(revision)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("archive of %s (-want +got):\n%s%v", revision, diff, err)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	first := map[string][]byte{"a.cedar": []byte("a"), "b.cedar": []byte("b"), "copy/a.cedar": []byte("a"), "empty": {}}
	second := map[string][]byte{"a.cedar": []byte("a"), "b.cedar": []byte("B")}
	firstRevision := keep(t, l, first)
	before := archived(t, dir)
	if len(before) != 3+1 {
		t.Errorf("3 different files and a manifest are %v", before)
	}
	if again := keep(t, l, first); again != firstRevision {
		t.Errorf("the same files are revisions %s and %s", firstRevision, again)
	}
	if diff := cmp.Diff(before, archived(t, dir)); diff != "" {
		t.Errorf("kept a second time (-before +after):\n%s", diff)
	}

	secondRevision := keep(t, l, second)
	after := archived(t, dir)
	if len(after) != len(before)+2 {
		t.Errorf("a file that changed and a manifest make %d files of %d", len(after), len(before))
	}
	for name, is := range before {
		if after[name] != is {
			t.Errorf("%s is written again", name)
		}
	}
	checkArchive(t, l, firstRevision, first)
	checkArchive(t, l, secondRevision, second)
}

func TestEmptyArchive(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	checkArchive(t, l, keep(t, l, nil), map[string][]byte{})
}

func TestArchiveConcurrently(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	files := map[string][]byte{"a.cedar": []byte("a"), "b.cedar": []byte("b")}
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() { checkArchive(t, l, keep(t, l, files), files) })
	}
	done.Wait()
}

func TestArchiveRepaired(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	files := map[string][]byte{"a.cedar": []byte("permit"), "b.cedar": []byte("forbid")}
	revision := keep(t, l, files)
	blobs := filepath.Join(dir, "archive", "blobs")
	if err := errors.Join(
		os.Remove(filepath.Join(blobs, hash("permit"))),
		os.Truncate(filepath.Join(blobs, hash("forbid")), 1),
	); err != nil {
		t.Fatal(err)
	}
	var integrity *decisionlog.IntegrityError
	if _, err := l.ReadArchive(revision); !errors.As(err, &integrity) {
		t.Errorf("ReadArchive: %v, want an IntegrityError", err)
	}
	keep(t, l, files)
	checkArchive(t, l, revision, files)
}

func TestArchiveUnknown(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for _, revision := range []string{
		"",
		"sha256:",
		"sha256:" + hash("x"),
		hash("x"),
		"sha256:" + strings.ToUpper(hash("x")),
		"sha256:../../../etc/passwd",
	} {
		if _, err := l.ReadArchive(revision); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v, want it not to exist", revision, err)
		}
	}
}

// FuzzReadArchive reads arbitrary bytes as a manifest.
func FuzzReadArchive(f *testing.F) {
	a, b := hash("a")+"  a.cedar\n", hash("b")+"  b.cedar\n"
	for _, seed := range []string{"", a, a + b, b + a, a + a, a[:len(a)-1], hash("a") + " a.cedar\n", hash("c") + "  c\n", "../../x  a\n"} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	l := openLog(f, dir, decisionlog.Config{})
	if _, err := l.KeepArchive(map[string][]byte{"a.cedar": []byte("a"), "b.cedar": []byte("b")}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, manifest []byte) {
		path := filepath.Join(dir, "archive", "revisions", hash(string(manifest)))
		if err := os.WriteFile(path, manifest, 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := l.ReadArchive(decisionlog.Revision(manifest))
		if err != nil {
			var integrity *decisionlog.IntegrityError
			if !errors.As(err, &integrity) {
				t.Errorf("%v, want an IntegrityError", err)
			}
			return
		}
		again, err := decisionlog.Manifest(files)
		if diff := cmp.Diff(string(manifest), string(again)); diff != "" || err != nil {
			t.Errorf("manifest (-read +made):\n%s%v", diff, err)
		}
	})
}
