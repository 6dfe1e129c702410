package policystore

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

const (
	manifestFile  = "manifest.json"
	signatureFile = "manifest.json.sig"
)

// A Manifest is the content of manifest.json at the root of a store. If it exists, the files of the
// store must be exactly those it lists. It does not list itself and is not part of the archive.
type Manifest struct {
	// Version is at least 1.
	Version int64 `json:"version"`
	// Files maps the slash-separated path of each relevant file from the root to its SHA-256 sum in
	// lowercase hexadecimal.
	Files map[string]string `json:"files"`
	// AllowShrink allows the store to lose policies, even all of them.
	AllowShrink bool `json:"allow_shrink,omitzero"`
}

// accept returns the state of a store's files.
func (c *Config) accept(l *listing, texts map[string][]byte) (*State, error) {
	manifest, signature := texts[manifestFile], texts[signatureFile]
	delete(texts, manifestFile)
	delete(texts, signatureFile)
	sums := sumsOf(texts)
	s := &State{Archive: texts, listing: l, digest: digestOf(sums, manifest, append(l.misplaced(), l.unread()...))}
	if err := c.checkSigned(manifest, signature); err != nil {
		return s, err
	}
	m, err := parseManifest(manifest)
	if err != nil {
		return s, err
	}
	s.Manifest = m
	return s, c.check(m, sums)
}

// checkSigned checks the signature of the manifest.
func (c *Config) checkSigned(manifest, signature []byte) error {
	if len(c.ManifestKey) == 0 {
		return nil
	}
	if len(c.ManifestKey) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: the key has %d bytes, not %d", ErrUnsigned, len(c.ManifestKey), ed25519.PublicKeySize)
	}
	if manifest == nil {
		return fmt.Errorf("%w: there is no %s", ErrUnsigned, manifestFile)
	}
	if signature == nil {
		return fmt.Errorf("%w: there is no %s", ErrUnsigned, signatureFile)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(signature)))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnsigned, signatureFile, err)
	}
	if !ed25519.Verify(c.ManifestKey, manifest, raw) {
		return fmt.Errorf("%w: %s is not by that key for this %s", ErrUnsigned, signatureFile, manifestFile)
	}
	return nil
}

// parseManifest parses a manifest. It returns nil if there is none.
func parseManifest(text []byte) (*Manifest, error) {
	if text == nil {
		return nil, nil
	}
	var m Manifest
	if err := json.Unmarshal(text, &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrManifest, manifestFile, err)
	}
	if m.Version < 1 {
		return nil, fmt.Errorf("%w: %s: version has to be a number from 1", ErrManifest, manifestFile)
	}
	if m.Files == nil {
		return nil, fmt.Errorf("%w: %s: files is missing", ErrManifest, manifestFile)
	}
	return &m, nil
}

// check compares the sums of files with a manifest, if there is one.
func (c *Config) check(m *Manifest, sums map[string]string) error {
	if m == nil && c.RequireManifest {
		return fmt.Errorf("%w: there is no %s", ErrManifest, manifestFile)
	}
	if m != nil {
		if differences := m.differences(sums); len(differences) > 0 {
			return fmt.Errorf("%w: %s", ErrManifest, abridge(differences))
		}
	}
	if len(sums) == 0 && (m == nil || !m.AllowShrink) {
		return ErrEmpty
	}
	return m.atLeast(c.MinVersion)
}

// differences lists how the files differ from the manifest, one line for each file.
func (m *Manifest) differences(sums map[string]string) []string {
	var out []string
	for name, want := range m.Files {
		got, found := sums[name]
		switch {
		case !found && !snapshot.Counts(name):
			out = append(out, name+" is listed and does not count")
		case !found:
			out = append(out, name+" is missing")
		case got != want:
			out = append(out, name+" differs")
		}
	}
	for name := range sums {
		if _, found := m.Files[name]; !found {
			out = append(out, name+" is not listed")
		}
	}
	slices.Sort(out)
	return out
}

// abridge shortens many lines to one.
func abridge(lines []string) string {
	const most = 20
	if more := len(lines) - most; more > 0 {
		lines = append(slices.Clone(lines[:most]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(lines, ", ")
}

// atLeast checks the version of a manifest, if there is one.
func (m *Manifest) atLeast(version int64) error {
	if m == nil || m.Version >= version {
		return nil
	}
	return fmt.Errorf("%w: version %d is lower than %d", ErrRollback, m.Version, version)
}

func sumsOf(texts map[string][]byte) map[string]string {
	sums := make(map[string]string, len(texts))
	for name, text := range texts {
		sum := sha256.Sum256(text)
		sums[name] = hex.EncodeToString(sum[:])
	}
	return sums
}

// digestOf returns a digest that identifies the content of a store.
func digestOf(sums map[string]string, manifest []byte, found faults.List) [sha256.Size]byte {
	digest := sha256.New()
	fmt.Fprintf(digest, "%x\n", sha256.Sum256(manifest))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(digest, "%s %q\n", sums[name], name)
	}
	for _, fault := range found {
		fmt.Fprintf(digest, "fault %q\n", fault.Error())
	}
	return [sha256.Size]byte(digest.Sum(nil))
}
