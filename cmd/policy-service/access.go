package main

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

type accessCmd struct {
	Show accessShowCmd `cmd:"" help:"Show the rules of access documents, and the Cedar policies that they compile to."`
}

type accessShowCmd struct {
	Path     string `arg:"" optional:"" help:"Policy store, or one access document. Default: the embedded policies."`
	Policies string `help:"Policy store in which to read a document that is not in one." type:"path" placeholder:"DIR"`
	JSON     bool   `name:"json" help:"Print each rule as JSON, one on a line."`
}

func (c *accessShowCmd) Run() error {
	archive, file, err := c.archive()
	if err != nil {
		return err
	}
	all, err := snapshot.CompileStore(archive)
	if err != nil {
		return err
	}
	rows := accessRows(all, file)
	if len(rows) == 0 {
		fmt.Fprintln(os.Stderr, "there are no access documents: they are files access/SERVER.json of the policy store")
	}
	if c.JSON {
		return printAccessJSON(rows)
	}
	return printAccess(rows)
}

// archive returns the files to compile, and the document to show; "" for all.
func (c *accessShowCmd) archive() (a snapshot.Archive, file string, err error) {
	info, err := os.Stat(c.Path)
	if c.Path == "" || err == nil && info.IsDir() {
		a, err = storeFiles(c.Path)
		return a, "", err
	}
	if err != nil {
		return nil, "", err
	}
	if store, file, ok := enclosingStore(c.Path); ok && c.Policies == "" {
		a, err = storeFiles(store)
		return a, file, err
	}
	return c.draft()
}

// draft returns the files of --policies with a document from elsewhere.
func (c *accessShowCmd) draft() (a snapshot.Archive, file string, err error) {
	a = snapshot.Archive{}
	if c.Policies != "" {
		if a, err = storeFiles(c.Policies); err != nil {
			return nil, "", err
		}
	}
	if file = path.Join("access", filepath.Base(c.Path)); !snapshot.IsAccess(file) {
		return nil, "", faults.List{{File: c.Path, Message: "cannot be the name of an access document", Hint: `name it SERVER.json, of letters, digits, ".", - and _`}}
	}
	a[file], err = os.ReadFile(c.Path)
	return a, file, err
}

// enclosingStore returns the store that a document is in, and the document's path in the store.
func enclosingStore(document string) (store, file string, ok bool) {
	absolute, err := filepath.Abs(document)
	if err != nil {
		return "", "", false
	}
	store = filepath.Dir(filepath.Dir(absolute))
	if tenants := filepath.Dir(store); filepath.Base(tenants) == "tenants" {
		store = filepath.Dir(tenants)
	}
	file, err = filepath.Rel(store, absolute)
	file = filepath.ToSlash(file)
	return store, file, err == nil && snapshot.IsAccess(file)
}

// storeFiles reads the files of a policy store. Misplaced files are an error.
func storeFiles(dir string) (snapshot.Archive, error) {
	store, err := policyStore(dir)
	if err != nil {
		return nil, err
	}
	archive, misplaced, err := readStore(store)
	if err == nil && misplaced != nil {
		err = misplaced
	}
	return archive, err
}

// accessRows returns the rules of a document, or of all documents for "", each once.
func accessRows(all *snapshot.Snapshots, file string) (rows []accesspolicy.Row) {
	seen := map[string]bool{}
	for _, s := range all.All() {
		for _, row := range s.Access {
			if !seen[row.Policy] && (file == "" || row.File == file) {
				seen[row.Policy] = true
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func printAccessJSON(rows []accesspolicy.Row) error {
	for _, row := range rows {
		text, err := json.Marshal(row, json.Deterministic(true))
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

// printAccess prints a table of the rules in comments, and the policies. The whole is Cedar.
func printAccess(rows []accesspolicy.Row) error {
	if len(rows) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "// RULE\tEFFECT\tWHO\tTOOLS\tUNTIL\tNEEDS")
	for _, row := range rows {
		until := "-"
		if !row.Until.IsZero() {
			until = row.Until.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "// %s\t%s\t%s\t%s\t%s\t%s\n", row.Policy, row.Effect, row.Who, strings.Join(row.Tools, ","), until, cmp.Or(strings.Join(row.Needs, ","), "-"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := fmt.Printf("\n// %s:%d\n%s\n", row.File, row.Line, row.Cedar); err != nil {
			return err
		}
	}
	return nil
}
