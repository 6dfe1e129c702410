package conformance_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-json-experiment/json"
)

// files are the files of a policy store by their slash-separated paths.
type files map[string]string

// versioned are the two files of a policy store that tells its version: each
// has a policy that permits everything and obliges to its version, so that
// every decision shows the version of either file.
func versioned(version int) files {
	out := files{}
	for _, name := range []string{"a", "b"} {
		out[name+".cedar"] = fmt.Sprintf("@id(%q)\n@obligation_notification(%q)\npermit (principal, action, resource);\n",
			name, fmt.Sprintf(`{"to":"%s","body":"%d"}`, name, version))
	}
	return out
}

// policyFile is the file of a store that has one.
const policyFile = "policies.cedar"

// inOneFile are the policies of a version in one file.
func inOneFile(version int) string {
	both := versioned(version)
	return both["a.cedar"] + both["b.cedar"]
}

var (
	// errMixed means that an answer was given by more than one version.
	errMixed = errors.New("mixed versions")
	// errNoAnswer means that it is not the decisions that were asked for.
	errNoAnswer = errors.New("no answer")
)

var shown = regexp.MustCompile(`"body":"(\d+)"`)

// versionOf returns the version by which all of so many decisions were made.
func versionOf(body string, decisions int) (string, error) {
	found := shown.FindAllStringSubmatch(body, -1)
	if len(found) != 2*decisions {
		return "", fmt.Errorf("%w: %s", errNoAnswer, body)
	}
	for _, f := range found {
		if f[1] != found[0][1] {
			return "", fmt.Errorf("%w: %s", errMixed, body)
		}
	}
	return found[0][1], nil
}

// fill writes files in place.
func fill(t *testing.T, dir string, all files) {
	t.Helper()
	for name, text := range all {
		put(t, filepath.Join(dir, filepath.FromSlash(name)), text)
	}
}

// put writes a file in place, for everybody to read.
func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// putByRename replaces a file as editors do.
func putByRename(t *testing.T, path, text string) {
	t.Helper()
	put(t, path+".tmp", text)
	must(t, os.Rename(path+".tmp", path))
}

// publish puts a version into a store as a kubelet does into a volume: what is
// in force is where ..data leads, which is swapped by one rename.
func publish(t *testing.T, dir string, version int) {
	t.Helper()
	name := fmt.Sprintf("..v%d", version)
	fill(t, filepath.Join(dir, name), versioned(version))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

// published makes a store into which versions are published, and publishes
// version 0.
func published(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	publish(t, dir, 0)
	for name := range versioned(0) {
		must(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// manifest is the manifest.json of a version.
func manifest(version int) string {
	sums := map[string]string{}
	for name, text := range versioned(version) {
		sums[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	}
	text, err := json.Marshal(map[string]any{"version": version + 1, "files": sums}, json.Deterministic(true))
	if err != nil {
		panic(err) // of strings and a number
	}
	return string(text)
}
