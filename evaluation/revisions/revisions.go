// Package revisions lists the files and policies of a policy store, and the differences between two
// stores, policy by policy and file by file.
package revisions

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"path"
	"slices"

	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// Contents are the files and policies of a policy store.
type Contents struct {
	Files    []File   `json:"files"`    // by name
	Policies []Policy `json:"policies"` // by file and line
}

// A File is a file of a policy store.
type File struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Text    string `json:"text,omitzero"`
	LeftOut bool   `json:"left_out,omitzero"` // Text is left out, because it is longer than MaxText

	sum [sha256.Size]byte // of the text
}

// MaxText is the length of the longest text of a File, in bytes.
const MaxText = 1 << 20

// A Policy is a policy of a policy store.
type Policy struct {
	ID          string            `json:"id"`
	Effect      string            `json:"effect"` // permit or forbid
	Tenant      string            `json:"tenant,omitzero"`
	File        string            `json:"file"`
	Line        int               `json:"line"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Text        string            `json:"text"`
}

// Of returns the contents of a compiled policy store.
func Of(s *snapshot.Snapshots) *Contents {
	out := &Contents{Files: files(s.Archive())}
	seen := map[key]bool{}
	for _, one := range s.All() {
		for i, source := range explain.Sources(one) {
			p := Policy{
				ID: source.Policy, Effect: source.Effect, Tenant: snapshot.TenantOf(source.File), File: source.File, Line: source.Line,
				Annotations: one.Policies.Ordered[i].Annotations(), Text: source.Text,
			}
			if !seen[p.key()] { // the root's belong to every tenant
				seen[p.key()] = true
				out.Policies = append(out.Policies, p)
			}
		}
	}
	slices.SortFunc(out.Policies, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func files(a snapshot.Archive) (all []File) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		f := File{Name: name, Bytes: len(a[name]), LeftOut: len(a[name]) > MaxText, sum: sha256.Sum256(a[name])}
		if !f.LeftOut {
			f.Text = string(a[name])
		}
		all = append(all, f)
	}
	return all
}

// A key identifies a policy of a store: ids are unique in the root and in each tenant.
type key struct{ tenant, id string }

func (p Policy) key() key { return key{p.Tenant, p.ID} }

// Only returns the part of the contents whose files satisfy a condition.
func (c *Contents) Only(visible func(file string) bool) *Contents {
	return &Contents{
		Files:    slices.DeleteFunc(slices.Clone(c.Files), func(f File) bool { return !visible(f.Name) }),
		Policies: slices.DeleteFunc(slices.Clone(c.Policies), func(p Policy) bool { return !visible(p.File) }),
	}
}

// A Change is what happened to a policy or a file.
type Change string

const (
	Added   Change = "added"
	Removed Change = "removed"
	Changed Change = "changed"
)

// A Difference lists what differs between two policy stores.
type Difference struct {
	Policies []PolicyChange `json:"policies"` // by id
	Files    []FileChange   `json:"files"`    // by name
}

// A PolicyChange is a policy that differs. Before is nil for one that was added, After for one that
// was removed. Lines are for one whose text has changed.
type PolicyChange struct {
	Change Change  `json:"change"`
	ID     string  `json:"id"`
	Before *Policy `json:"before,omitempty"`
	After  *Policy `json:"after,omitempty"`
	Lines  []Line  `json:"lines,omitempty"`     // those that differ, with their surroundings
	Left   int     `json:"lines_left,omitzero"` // number of further lines
}

// A FileChange is a file that differs. Lines are for one that has changed and holds no policies.
type FileChange struct {
	Change Change `json:"change"`
	Name   string `json:"name"`
	Before int    `json:"before_bytes"`
	After  int    `json:"after_bytes"`
	Lines  []Line `json:"lines,omitempty"`
	Left   int    `json:"lines_left,omitzero"`
}

// Compare returns the differences between two policy stores. A policy has changed if its text, its
// effect or its file has.
func Compare(before, after *Contents) *Difference {
	return &Difference{Policies: comparePolicies(before.Policies, after.Policies), Files: compareFiles(before.Files, after.Files)}
}

func comparePolicies(before, after []Policy) []PolicyChange {
	old, out := map[key]*Policy{}, []PolicyChange{}
	for i := range before {
		old[before[i].key()] = &before[i]
	}
	for i := range after {
		p := &after[i]
		was := old[p.key()]
		delete(old, p.key())
		switch {
		case was == nil:
			out = append(out, PolicyChange{Change: Added, ID: p.ID, After: p})
		case was.Text != p.Text || was.Effect != p.Effect || was.File != p.File:
			c := PolicyChange{Change: Changed, ID: p.ID, Before: was, After: p}
			c.Lines, c.Left = compareTexts(was.Text, p.Text, was.Line, p.Line)
			out = append(out, c)
		}
	}
	for _, was := range old {
		out = append(out, PolicyChange{Change: Removed, ID: was.ID, Before: was})
	}
	slices.SortFunc(out, func(a, b PolicyChange) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.file(), b.file()))
	})
	return out
}

func (c PolicyChange) file() string {
	if c.After != nil {
		return c.After.File
	}
	return c.Before.File
}

func compareFiles(before, after []File) []FileChange {
	old, out := map[string]File{}, []FileChange{}
	for _, f := range before {
		old[f.Name] = f
	}
	for _, f := range after {
		was, known := old[f.Name]
		delete(old, f.Name)
		switch {
		case !known:
			out = append(out, FileChange{Change: Added, Name: f.Name, After: f.Bytes})
		case was.sum != f.sum:
			c := FileChange{Change: Changed, Name: f.Name, Before: was.Bytes, After: f.Bytes}
			if path.Ext(f.Name) != ".cedar" && !was.LeftOut && !f.LeftOut {
				c.Lines, c.Left = compareTexts(was.Text, f.Text, 1, 1)
			}
			out = append(out, c)
		}
	}
	for _, f := range old {
		out = append(out, FileChange{Change: Removed, Name: f.Name, Before: f.Bytes})
	}
	slices.SortFunc(out, func(a, b FileChange) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
