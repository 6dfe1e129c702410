package decisionlog

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"
)

// VerifyModule is an ES module that verifies entries and bundles with WebCrypto, in browsers and in Node.
//
//go:embed verify.mjs
var VerifyModule []byte

//go:embed evidence.txt
var evidenceText string

// Members of evidence, which is a bundle, beyond those of every bundle.
const (
	evidenceReadme   = "README.txt"
	evidenceKeys     = "keys"
	evidenceModule   = "verify.mjs"
	evidenceProof    = "proof.json"
	evidencePolicies = "policies/" // then the revision's hash in hex, and the path of the file
)

// relatedEntries is how many entries before and behind an entry are searched for those that belong to it.
const relatedEntries = 100_000

// WriteEvidence writes a bundle about entry n: the entry, the entries of the Access Requests that it belongs
// to, the policies of their revisions, an inclusion proof, and a program that verifies all of this offline.
func (r *Reader) WriteEvidence(ctx context.Context, w io.Writer, n int64) error {
	e := &evidence{reader: r, index: n}
	if err := e.relate(ctx); err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	b := &bundleWriter{zip: zip.NewWriter(w), reader: r, more: e.members}
	if err := b.write(ctx, Filter{Indexes: e.indexes}); err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

// An evidence is what belongs to one entry.
type evidence struct {
	reader    *Reader
	index     int64
	line      []byte
	record    *Record
	indexes   []int64
	revisions map[string]bool
}

// relate finds the entries that belong to the entry.
func (e *evidence) relate(ctx context.Context) (err error) {
	if e.line, err = e.reader.Line(ctx, e.index); err != nil {
		return err
	}
	if e.record, err = readRecord(e.line, nil); err != nil {
		return err
	}
	e.indexes, e.revisions = []int64{e.index}, make(map[string]bool)
	tasks, err := e.tasks(ctx)
	for task := range tasks {
		if err == nil {
			err = e.each(ctx, func(n int64, line []byte) error {
				belongs, err := Filter{Task: task}.Match(line)
				if belongs {
					e.indexes = append(e.indexes, n)
				}
				return err
			})
		}
	}
	slices.Sort(e.indexes)
	e.indexes = slices.Compact(e.indexes)
	return err
}

// tasks returns the Access Requests of the entry: the one that it is about, those whose approvals allowed it,
// and those that were made because of it.
func (e *evidence) tasks(ctx context.Context) (map[string]bool, error) {
	tasks := make(map[string]bool)
	rows, err := ReadDecisions(e.line)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		tasks[row.Approval.Task] = true
	}
	because := []byte(`"evaluation_id":"` + e.record.Entry.ID)
	err = e.each(ctx, func(_ int64, line []byte) error {
		if !bytes.Contains(line, because) {
			return nil
		}
		rows, err := ReadDecisions(line)
		for _, row := range rows {
			if row.Kind == KindRequest {
				tasks[row.Approval.Task] = true
			}
		}
		return err
	})
	delete(tasks, "")
	return tasks, err
}

// each visits the entries of the same tenant near the entry. The line is valid during the visit.
func (e *evidence) each(ctx context.Context, visit func(n int64, line []byte) error) error {
	from, until := max(0, e.index-relatedEntries), min(e.reader.Head().Size, e.index+relatedEntries)
	own := Filter{Tenants: []string{e.record.Tenant}}
	var failed error
	err := e.reader.inPlace(ctx, from, until, func(n int64, line, _ []byte) bool {
		if !bytes.Contains(line, []byte(`"task":"`)) {
			return true
		}
		belongs, err := own.Match(line)
		if err == nil && belongs {
			err = visit(n, line)
		}
		failed = err
		return err == nil
	})
	return errors.Join(err, failed)
}

// members returns the further members of the bundle.
func (e *evidence) members(signed *Checkpoint) ([]bundleMember, error) {
	proof := &Proof{Checkpoint: signed.Note, Index: e.index, Line: string(e.line)}
	var err error
	if proof.Hashes, err = tlog.ProveRecord(signed.Size, e.index, e.reader); err != nil {
		return nil, err
	}
	text, err := json.Marshal(proof)
	if err != nil {
		return nil, err
	}
	keys, err := e.reader.Keys()
	if err != nil {
		return nil, err
	}
	policies, missing, err := e.policies()
	if err != nil {
		return nil, err
	}
	return append(policies,
		bundleMember{evidenceProof, append(text, '\n')},
		bundleMember{evidenceKeys, []byte(strings.Join(keys, "\n") + "\n")},
		bundleMember{evidenceModule, VerifyModule},
		bundleMember{evidenceReadme, []byte(e.readme(signed, missing))},
	), nil
}

// policies returns the files of the revisions that the entries name, and the revisions that the archive lacks.
func (e *evidence) policies() (files []bundleMember, missing []string, err error) {
	for line, err := range e.reader.Select(context.Background(), Filter{Indexes: e.indexes}) {
		if err != nil {
			return nil, nil, err
		}
		record, err := readRecord(line, nil)
		if err != nil {
			return nil, nil, err
		}
		if record.Revision != "" {
			e.revisions[record.Revision] = true
		}
	}
	for _, revision := range slices.Sorted(maps.Keys(e.revisions)) {
		archive, err := e.reader.ReadArchive(revision)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, revision)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for path, content := range archive {
			files = append(files, bundleMember{evidencePolicies + strings.TrimPrefix(revision, revisionPrefix) + "/" + path, content})
		}
	}
	return files, missing, nil
}

// readme describes the evidence.
func (e *evidence) readme(signed *Checkpoint, missing []string) string {
	from, until := max(0, e.index-relatedEntries), min(signed.Size, e.index+relatedEntries)
	text := fmt.Sprintf(evidenceText, e.index, e.record.Entry.ID, signed.Origin, signed.Size, signed.Root, len(e.indexes), from, until)
	for _, revision := range missing {
		text += "\nThe archive does not have the policies " + revision + ".\n"
	}
	return text
}

// isPolicies reports whether a member of evidence is a file of a revision, and of which.
func isPolicies(name string) (revision, path string, found bool) {
	rest, found := strings.CutPrefix(name, evidencePolicies)
	revision, path, whole := strings.Cut(rest, "/")
	return revision, path, found && whole
}
