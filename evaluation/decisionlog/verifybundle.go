package decisionlog

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"
)

// A BundleReport is the result of a verification.
type BundleReport struct {
	Checkpoint
	Selection Filter   `json:"selection"` // selection that the log has signed
	Entries   int64    `json:"entries"`
	First     int64    `json:"first_index"` // index of the first entry; -1 if there is none
	Last      int64    `json:"last_index"`
	Revisions []string `json:"revisions"` // revisions that entries name, sorted
}

// VerifyBundle verifies a bundle that [Reader.WriteBundle] wrote, with only the public keys of its
// log. It checks that the entries are unchanged entries of the log at their indexes, and that the
// log has signed its head and the selection. It returns an [IntegrityError], with the first faulty
// entry if known.
//
// A bundle proves completeness only for consecutive indexes. In a bundle of the whole log it also
// proves it for gaps that an entry of kind "pruned" explains. Otherwise completeness relies on the
// log's signature of the selection.
func VerifyBundle(file io.ReaderAt, size int64, keys []string) (*BundleReport, error) {
	report, err := verifyBundle(file, size, keys)
	if err != nil {
		return nil, fmt.Errorf("verify bundle: %w", err)
	}
	return report, nil
}

func verifyBundle(file io.ReaderAt, size int64, keys []string) (*BundleReport, error) {
	members, err := openMembers(file, size)
	if err != nil {
		return nil, err
	}
	text, err := members.read(bundleCheckpoint)
	if err != nil {
		return nil, err
	}
	signed, err := ParseCheckpoint(text, keys)
	if err != nil {
		return nil, err
	}
	report := &BundleReport{Checkpoint: *signed, First: -1, Last: -1}
	a := newAudit()
	if err := members.verifyEntries(report, a); err != nil {
		return nil, err
	}
	report.Revisions = slices.Sorted(maps.Keys(a.revisions))
	further, err := members.further()
	if err != nil {
		return nil, err
	}
	if err := members.verifyManifest(report, further, keys); err != nil {
		return nil, err
	}
	if err := members.verifyPolicies(further, a.revisions); err != nil {
		return nil, err
	}
	if f := report.Selection; f.SelectsAll() && f.From == 0 && f.Until == report.Size {
		_, err = a.pruned()
	}
	return report, err
}

// members are the files of a bundle.
type members struct {
	files map[string]*zip.File
	sums  map[string]hash.Hash // hashes of the members that were read
}

// openMembers opens a bundle. Besides its four members, it may have others, which the manifest lists.
func openMembers(file io.ReaderAt, size int64) (*members, error) {
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return nil, damaged(-1, "has a bundle that is not a ZIP file: %v", err)
	}
	m := &members{files: make(map[string]*zip.File), sums: make(map[string]hash.Hash)}
	for _, file := range archive.File {
		if m.files[file.Name] != nil || !ValidPath(file.Name) {
			return nil, damaged(-1, "has a bundle with two members, or an invalid one, of the name %q", file.Name)
		}
		m.files[file.Name] = file
	}
	for _, name := range append(slices.Clone(bundleMembers), bundleManifest) {
		if m.files[name] == nil {
			return nil, damaged(-1, "has a bundle without %s", name)
		}
	}
	return m, nil
}

// bundleMembers are the members that every bundle has before its manifest.
var bundleMembers = []string{bundleEntries, bundleHashes, bundleCheckpoint}

// further returns the names of the other members in order, after it has read them.
func (m *members) further() ([]string, error) {
	var names []string
	for name := range m.files {
		if name != bundleManifest && !slices.Contains(bundleMembers, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r, err := m.open(name)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return nil, damaged(-1, "has a bundle whose %s cannot be read: %v", name, err)
		}
	}
	return names, nil
}

// verifyPolicies verifies that the policies of evidence are those of the revisions that entries name.
func (m *members) verifyPolicies(names []string, revisions map[string]bool) error {
	manifests := make(map[string]string)
	for _, name := range names { // in order
		if revision, path, found := isPolicies(name); found {
			manifests[revision] += fmt.Sprintf("%x  %s\n", m.sums[name].Sum(nil), path)
		}
	}
	for revision, manifest := range manifests {
		if name := revisionPrefix + revision; Revision([]byte(manifest)) != name || !revisions[name] {
			return damaged(-1, "has a bundle with policies that are not those of revision %s, or that no entry names", name)
		}
	}
	return nil
}

// open opens a member and computes its hash while it is read.
func (m *members) open(name string) (*bufio.Reader, error) {
	content, err := m.files[name].Open()
	if err != nil {
		return nil, damaged(-1, "has a bundle whose %s cannot be read: %v", name, err)
	}
	m.sums[name] = sha256.New()
	return bufio.NewReaderSize(io.TeeReader(content, m.sums[name]), 1<<16), nil
}

// shortMember is the maximum size in bytes of a member that is not a list.
const shortMember = 1 << 20

// read returns a short member.
func (m *members) read(name string) ([]byte, error) {
	r, err := m.open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, shortMember))
	if err != nil {
		return nil, damaged(-1, "has a bundle whose %s cannot be read: %v", name, err)
	}
	if len(text) == shortMember {
		return nil, damaged(-1, "has a bundle whose %s is too long", name)
	}
	return text, nil
}

// verifyEntries computes the root from the entries and the hashes between them.
func (m *members) verifyEntries(report *BundleReport, a *audit) error {
	entries, err := m.open(bundleEntries)
	if err != nil {
		return err
	}
	hashes, err := m.open(bundleHashes)
	if err != nil {
		return err
	}
	w := &bundleWalk{lines: entries, hashes: hashes, report: report, audit: a}
	if err := w.next(); err != nil {
		return err
	}
	root := new(tree).head().Root
	if report.Size > 0 {
		if root, err = w.root(0, report.Size); err != nil {
			return err
		}
	}
	w.gap(report.Size)
	switch {
	case w.line != nil:
		return damaged(w.index, "is beyond the checkpoint")
	case root != report.Root:
		return damaged(-1, "has the root %v, and its checkpoint %v", root, report.Root)
	}
	if _, err := hashes.ReadByte(); err != io.EOF {
		return damaged(-1, "has a bundle with extra hashes")
	}
	return nil
}

// A bundleWalk reads entries and hashes in the order of [cover].
type bundleWalk struct {
	lines, hashes *bufio.Reader
	line          []byte // next line; nil after the last
	index         int64  // index of line
	report        *BundleReport
	audit         *audit
}

// next reads the next line.
func (w *bundleWalk) next() error {
	last := w.index
	line, err := readLine(w.lines, wholeLine)
	if err == io.EOF && len(line) == 0 {
		w.line, w.index = nil, maxIndex
		return nil
	}
	if err != nil {
		return damaged(w.report.Last+1, "or a later one cannot be read: %v", err)
	}
	w.line = line[:len(line)-1]
	var ok bool
	if w.index, ok = lineIndex(w.line); !ok || w.report.Entries > 0 && w.index <= last {
		return damaged(w.report.Last+1, "or a later one does not have its index")
	}
	return nil
}

// root computes the hash of the node over [lo, hi).
func (w *bundleWalk) root(lo, hi int64) (tlog.Hash, error) {
	_, whole := wholeNode(lo, hi)
	switch {
	case whole && w.index >= hi:
		return w.hash()
	case hi-lo == 1:
		return w.leaf()
	}
	mid := lo + leftSize(hi-lo)
	left, err := w.root(lo, mid)
	if err != nil {
		return left, err
	}
	right, err := w.root(mid, hi)
	return tlog.NodeHash(left, right), err
}

// hash reads the next hash.
func (w *bundleWalk) hash() (tlog.Hash, error) {
	text, err := readLine(w.hashes, hashLine)
	switch {
	case errors.Is(err, errLongLine):
		return tlog.Hash{}, damaged(-1, "has a bundle with a hash of more than %d bytes", hashLine)
	case err != nil:
		return tlog.Hash{}, damaged(-1, "has a bundle with too few hashes")
	}
	hash, err := tlog.ParseHash(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return hash, damaged(-1, "has a bundle with the hash %q", text)
	}
	return hash, nil
}

// leaf reads the next line and returns its hash, which must equal the stored one.
func (w *bundleWalk) leaf() (tlog.Hash, error) {
	want, err := w.hash()
	if err != nil {
		return want, err
	}
	if got := tlog.RecordHash(w.line); got != want {
		return got, damaged(w.index, "is not what was recorded")
	}
	if _, err := w.audit.read(w.index, w.line); err != nil {
		return want, err
	}
	w.gap(w.index)
	if w.report.Entries == 0 {
		w.report.First = w.index
	}
	w.report.Entries++
	w.report.Last = w.index
	return want, w.next()
}

// Maximum size in bytes of a line of a bundle, with its line feed.
const (
	wholeLine = maxLine + 64 // maxLine excludes the index
	hashLine  = 64
)

var errLongLine = errors.New("the line is too long")

// readLine reads a line of up to most bytes, with its line feed.
func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case len(line)+len(part) > most:
			return nil, errLongLine
		case err != bufio.ErrBufferFull:
			return append(line, part...), err
		}
		line = append(line, part...)
	}
}

// gap records the entries missing before the one at index.
func (w *bundleWalk) gap(index int64) {
	if first := w.report.Last + 1; first < index {
		w.audit.missing = append(w.audit.missing, span{first, index})
	}
}

// verifyManifest verifies the log's signature of the manifest.
func (m *members) verifyManifest(report *BundleReport, further, keys []string) error {
	manifest, err := m.read(bundleManifest)
	if err != nil {
		return err
	}
	text, err := openNote(manifest, keys)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	_, rest, _ := strings.Cut(text, "\nselection ")
	selection, _, _ := strings.Cut(rest, "\n")
	if err := json.Unmarshal([]byte(selection), &report.Selection); err != nil {
		return damaged(-1, "has a bundle whose manifest has no selection: %v", err)
	}
	var sums string
	for _, name := range slices.Concat(bundleMembers, further) {
		sums += sumLine(m.sums[name], name)
	}
	if want := manifestText(report.Origin, int(report.Entries), selection, sums); text != want {
		return damaged(-1, "has a bundle that differs from its manifest")
	}
	return nil
}

// lineIndex returns the index at the beginning of a line.
func lineIndex(line []byte) (int64, bool) {
	rest, found := bytes.CutPrefix(line, []byte(`{"index":`))
	number, _, ended := bytes.Cut(rest, []byte(","))
	n, err := strconv.ParseInt(string(number), 10, 64)
	return n, found && ended && err == nil && n >= 0 && bytes.HasPrefix(line, appendIndex(nil, n))
}
