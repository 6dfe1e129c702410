package policystore_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// sign returns the manifest.json.sig of a manifest.
func sign(key ed25519.PrivateKey, manifest string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(manifest))) + "\n"
}

func newKey(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	return public, private
}

func TestManifest(t *testing.T) {
	files := texts{"a.cedar": policy(1), "entities.json": "[]", "access/files.json": "{}", "tenants/acme/b.cedar": policy(2)}
	dir := newStore(t, files)
	put(t, filepath.Join(dir, "manifest.json"), manifestOf(t, 7, files))

	state, err := policystore.New(dir, policystore.Config{RequireManifest: true}).Read()
	must(t, err)
	if diff := cmp.Diff(files, textsOf(state.Archive)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	if state.Manifest.Version != 7 || state.Manifest.AllowShrink || len(state.Manifest.Files) != 4 {
		t.Errorf("manifest %+v", state.Manifest)
	}
}

func TestManifestRefuses(t *testing.T) {
	files := texts{"a.cedar": policy(1), "b.cedar": policy(2), "c.cedar": policy(3)}
	other := texts{"a.cedar": policy(1), "b.cedar": policy(9), "README.md": "", "tenants/acme/d.cedar": policy(4)}
	good := manifestOf(t, 1, files)
	for _, test := range []struct{ name, manifest, want string }{
		{"an access document", manifestOf(t, 1, texts{"a.cedar": policy(1), "b.cedar": policy(2), "c.cedar": policy(3), "access/files.json": "{}"}),
			"access/files.json is missing"},
		{"other files", manifestOf(t, 1, other),
			"README.md is listed and does not count, b.cedar differs, c.cedar is not listed, tenants/acme/d.cedar is missing"},
		{"upper-case sums", strings.ToUpper(good), "unknown"},
		{"no version", strings.Replace(good, `"version":1`, `"version":0`, 1), "version has to be a number from 1"},
		{"negative version", strings.Replace(good, `"version":1`, `"version":-1`, 1), "version has to be a number from 1"},
		{"fraction", strings.Replace(good, `"version":1`, `"version":1.5`, 1), "version"},
		{"no files", `{"version":1}`, "files is missing"},
		{"unknown member", strings.Replace(good, `{`, `{"allow_shrnk":true,`, 1), "allow_shrnk"},
		{"duplicate member", strings.Replace(good, `{`, `{"version":2,`, 1), "duplicate"},
		{"cut off", good[:len(good)/2], "unexpected EOF"},
		{"empty", "", "EOF"},
		{"two", good + good, "after top-level value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newStore(t, files)
			put(t, filepath.Join(dir, "manifest.json"), test.manifest)
			_, err := policystore.Load(dir)
			if !errors.Is(err, policystore.ErrManifest) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, not %s", err, test.want)
			}
		})
	}
}

// A long list of differences is cut short.
func TestManifestAbridges(t *testing.T) {
	files := texts{}
	for i := range 100 {
		files[string(rune('a'+i/26))+string(rune('a'+i%26))+".cedar"] = policy(i)
	}
	dir := newStore(t, files)
	put(t, filepath.Join(dir, "manifest.json"), manifestOf(t, 1, nil))
	if _, err := policystore.Load(dir); err == nil || !strings.HasSuffix(err.Error(), "at.cedar is not listed, 80 more") {
		t.Errorf("the error is %v", err)
	}
}

func TestManifestRequired(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(1)})
	if state, err := policystore.New(dir, policystore.Config{}).Read(); err != nil || state.Manifest != nil {
		t.Errorf("without a manifest: %v, %v", state, err)
	}
	if _, err := policystore.New(dir, policystore.Config{RequireManifest: true}).Read(); !errors.Is(err, policystore.ErrManifest) {
		t.Errorf("the error is %v", err)
	}
}

func TestManifestMinVersion(t *testing.T) {
	files := texts{"a.cedar": policy(1)}
	dir := newStore(t, files)
	put(t, filepath.Join(dir, "manifest.json"), manifestOf(t, 4, files))
	if _, err := policystore.New(dir, policystore.Config{MinVersion: 4}).Read(); err != nil {
		t.Error(err)
	}
	if _, err := policystore.New(dir, policystore.Config{MinVersion: 5}).Read(); !errors.Is(err, policystore.ErrRollback) {
		t.Errorf("the error is %v", err)
	}
}

// Nothing is a state only if a manifest says so.
func TestEmptyStore(t *testing.T) {
	dir := newStore(t, nil)
	store := policystore.New(dir, policystore.Config{})
	if _, err := store.Read(); !errors.Is(err, policystore.ErrEmpty) {
		t.Errorf("without a manifest the error is %v", err)
	}
	manifest := filepath.Join(dir, "manifest.json")
	put(t, manifest, `{"version":1,"files":{}}`)
	if _, err := store.Read(); !errors.Is(err, policystore.ErrEmpty) {
		t.Errorf("with a manifest the error is %v", err)
	}
	put(t, manifest, `{"version":1,"files":{},"allow_shrink":true}`)
	if state, err := store.Read(); err != nil || len(state.Archive) != 0 {
		t.Errorf("where it is allowed: %v, %v", state, err)
	}
}

func TestSignature(t *testing.T) {
	public, private := newKey(t)
	_, stranger := newKey(t)
	files := texts{"a.cedar": policy(1)}
	manifest := manifestOf(t, 1, files)
	for _, test := range []struct {
		name      string
		manifest  string
		signature string
		valid     bool
	}{
		{"signed", manifest, sign(private, manifest), true},
		{"without a line break", manifest, strings.TrimSpace(sign(private, manifest)), true},
		{"by a stranger", manifest, sign(stranger, manifest), false},
		{"another manifest", manifest + "\n", sign(private, manifest), false},
		{"not base64", manifest, "!" + sign(private, manifest), false},
		{"too short", manifest, "AAAA", false},
		{"empty", manifest, "", false},
		{"none", manifest, "-", false},
		{"no manifest", "-", sign(private, manifest), false},
		{"neither", "-", "-", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newStore(t, files)
			for name, text := range (texts{"manifest.json": test.manifest, "manifest.json.sig": test.signature}) {
				if text != "-" {
					put(t, filepath.Join(dir, name), text)
				}
			}
			_, err := policystore.New(dir, policystore.Config{ManifestKey: public}).Read()
			if test.valid && err != nil {
				t.Error(err)
			}
			if !test.valid && !errors.Is(err, policystore.ErrUnsigned) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestSignatureByBadKey(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(1)})
	_, err := policystore.New(dir, policystore.Config{ManifestKey: []byte("short")}).Read()
	if !errors.Is(err, policystore.ErrUnsigned) {
		t.Errorf("the error is %v", err)
	}
}

// However the files of a change come one after the other, with a manifest there
// is the state before it and the state after it, and nothing else.
func TestManifestKeepsSetsTogether(t *testing.T) {
	public, private := newKey(t)
	old, new := versioned(t, 1), versioned(t, 2)
	for _, files := range []texts{old, new} {
		files["manifest.json.sig"] = sign(private, files["manifest.json"])
	}
	torn := 0
	for order := range permutations(slices.Sorted(maps.Keys(new))) {
		dir := newStore(t, old)
		signed := policystore.New(dir, policystore.Config{ManifestKey: public})
		for step, name := range order {
			put(t, filepath.Join(dir, name), new[name])
			state, err := signed.Read()
			if last := step == len(order)-1; last != (err == nil) {
				t.Fatalf("after %v: %v, %v", order[:step+1], state, err)
			}
			if err != nil && !errors.Is(err, policystore.ErrManifest) && !errors.Is(err, policystore.ErrUnsigned) {
				t.Fatal(err)
			}
		}
		torn += tornWithout(t, order, old, new)
	}
	if torn == 0 {
		t.Error("without a manifest no set was torn: the test does not see it")
	}
}

// tornWithout makes the change in a store without a manifest and counts the
// states that were neither the old nor the new one.
func tornWithout(t *testing.T, order []string, old, new texts) (torn int) {
	dir := newStore(t, texts{"a.cedar": old["a.cedar"], "b.cedar": old["b.cedar"]})
	for _, name := range order {
		if filepath.Ext(name) != ".cedar" {
			continue
		}
		put(t, filepath.Join(dir, name), new[name])
		archive, err := policystore.Load(dir)
		must(t, err)
		if string(archive["a.cedar"]) != string(archive["b.cedar"]) {
			torn++
		}
	}
	return torn
}

// versioned returns two files that belong together, with their manifest.
func versioned(t testing.TB, version int) texts {
	files := texts{"a.cedar": policy(version), "b.cedar": policy(version)}
	files["manifest.json"] = manifestOf(t, int64(version), files)
	return files
}

// permutations yields every order of names.
func permutations(names []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		var place func(order, left []string) bool
		place = func(order, left []string) bool {
			if len(left) == 0 {
				return yield(order)
			}
			for i, name := range left {
				rest := slices.Delete(slices.Clone(left), i, i+1)
				if !place(append(slices.Clone(order), name), rest) {
					return false
				}
			}
			return true
		}
		place(nil, names)
	}
}
