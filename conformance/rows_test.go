package conformance_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// profiles number what AuthZEN profiles, draft 1, ask for: AR is the Access
// Request and Approval Profile, from 159 what its text of October 2026 and its
// companions add; OB the Obligations Profile, the PDP's part from 1, from 33
// what notifications have become, and the PEP's from 40; CZ the COAZ framework, its MCP binding from 29, and
// from 61 what a gateway decides where they are silent.
var profiles = []struct {
	name        string
	first, last int
}{{"AR", 1, 164}, {"OB", 1, 34}, {"OB", 40, 62}, {"CZ", 1, 81}}

// TestRows holds testdata/rows.txt to the tests of the module: each row is
// cited where the table says that it is proved, and no test cites another.
func TestRows(t *testing.T) {
	for _, fault := range rowFaults(t, os.DirFS(".."), profileRows(), read(t, "testdata/rows.txt")) {
		t.Error(fault)
	}
}

// A row is a line of the table.
type row struct {
	ids  []string
	file string // of the test that proves them; "-" for none
	what string // the test or the exchange; without a file, why there is none
}

// rowFaults lists what is wrong with a table of these ids, or with the
// citations of a module.
func rowFaults(t *testing.T, module fs.FS, ids []string, table string) (faults []string) {
	t.Helper()
	rows, faults := parseRows(table)
	placed := make(map[string]row)
	for _, r := range rows {
		for _, id := range r.ids {
			if _, twice := placed[id]; twice {
				faults = append(faults, id+" is there twice")
			}
			placed[id] = r
		}
		faults = append(faults, r.unproved(module)...)
	}
	for _, id := range ids {
		if _, ok := placed[id]; !ok {
			faults = append(faults, id+" is not in the table")
		}
	}
	return append(faults, strayCitations(t, module, placed)...)
}

// parseRows reads a table, all but its comments.
func parseRows(table string) (rows []row, faults []string) {
	for line := range strings.Lines(table) {
		r, ok := parseRow(line)
		switch {
		case ok:
			rows = append(rows, r)
		case !strings.HasPrefix(line, "#"):
			faults = append(faults, fmt.Sprintf("not a row: %q", line))
		}
	}
	return rows, faults
}

// parseRow reads IDS | FILE | TEST, or IDS | - | REASON.
func parseRow(line string) (r row, ok bool) {
	parts := strings.Split(strings.TrimSpace(line), " | ")
	if len(parts) != 3 {
		return row{}, false
	}
	r = row{citations(parts[0]), strings.TrimSpace(parts[1]), strings.TrimSpace(parts[2])}
	return r, len(r.ids) > 0 && r.what != ""
}

// unproved lists the ids of a row that its test does not cite.
func (r row) unproved(module fs.FS) []string {
	if r.file == "-" {
		return nil
	}
	text, err := fs.ReadFile(module, r.file)
	if err != nil {
		return []string{err.Error()}
	}
	cited := citedAt(r.file, string(text), r.what)
	var faults []string
	for _, id := range r.ids {
		if !slices.Contains(cited, id) {
			faults = append(faults, fmt.Sprintf("%s is not cited by %q of %s", id, r.what, r.file))
		}
	}
	return faults
}

// citedAt returns what a test of a Go file cites, in its comment or its body,
// or an exchange of a txtar file: in its name, before the rest of that, or in
// the line that its name begins.
func citedAt(file, text, test string) (ids []string) {
	end, about := "\n}\n", func(part string) bool { return strings.Contains(part, "func "+test+"(") }
	if path.Ext(file) == ".txtar" {
		name := test + "/request --"
		if !strings.Contains(text, name+"\n") {
			return nil
		}
		end, about = "\n", func(line string) bool { return strings.HasPrefix(line, test+": ") || strings.HasSuffix(line, name) }
	}
	for part := range strings.SplitSeq(text, end) {
		if about(part) {
			ids = append(ids, citations(part)...)
		}
	}
	return ids
}

// thisFile cites as controls do.
const thisFile = "conformance/rows_test.go"

// strayCitations lists what test files cite and the table does not have, or has
// as not proved.
func strayCitations(t *testing.T, module fs.FS, placed map[string]row) (faults []string) {
	t.Helper()
	err := fs.WalkDir(module, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && name != "."):
			return fs.SkipDir
		case name == thisFile || !strings.HasSuffix(name, "_test.go") && path.Ext(name) != ".txtar":
			return nil
		}
		text, err := fs.ReadFile(module, name)
		for _, id := range citations(string(text)) {
			if r, ok := placed[id]; !ok {
				faults = append(faults, fmt.Sprintf("%s cites %s, which is not in the table", name, id))
			} else if r.file == "-" {
				faults = append(faults, fmt.Sprintf("%s cites %s, of which the table says: %s", name, id, r.what))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

// citation is the id of a row or, over the end of a comment's line if need be,
// those from one id to another.
var citation = regexp.MustCompile(`\b(AR|OB|CZ)-(\d+)(?:\s+(?://\s+)?to\s+(?://\s+)?(?:AR|OB|CZ)-(\d+))?`)

// citations lists the ids that a text names.
func citations(text string) (ids []string) {
	for _, m := range citation.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2]) // digits, all of them
		last, err := strconv.Atoi(m[3])
		if err != nil {
			last = first
		}
		for n := first; n <= last; n++ {
			ids = append(ids, fmt.Sprintf("%s-%d", m[1], n))
		}
	}
	return ids
}

func profileRows() (ids []string) {
	for _, p := range profiles {
		ids = append(ids, citations(fmt.Sprintf("%s-%d to %[1]s-%[3]d", p.name, p.first, p.last))...)
	}
	return ids
}

// What is wrong with a table, or with citations, is seen.
func TestRowFaultsAreSeen(t *testing.T) {
	module := fstest.MapFS{
		"a/a_test.go":        {Data: []byte("// AR-1\nfunc TestA() {\n}\n\n// AR-2\n// to AR-3: others.\nfunc TestB() {\n}\n")},
		"a/testdata/a.txtar": {Data: []byte("asking: AR-4\n-- asking/request --\n-- AR-5 telling/request --\n")},
		"a/a.go":             {Data: []byte("// AR-9")},
		".git/a_test.go":     {Data: []byte("// AR-9")},
		thisFile:             {Data: []byte("// AR-9")},
	}
	const table = `# Rows.
AR-1 | a/a_test.go | TestA
AR-2 to AR-3 | a/a_test.go | TestB
AR-4 | a/testdata/a.txtar | asking
AR-5 | a/testdata/a.txtar | telling
AR-6 | - | not ours
`
	for _, test := range []struct {
		name, old, new string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"proved by another test", "TestA", "TestB", []string{`AR-1 is not cited by "TestB" of a/a_test.go`}},
		{"a test that is gone", "TestA", "TestGone", []string{`AR-1 is not cited by "TestGone" of a/a_test.go`}},
		{"proved by another exchange", "| asking", "| telling", []string{`AR-4 is not cited by "telling" of a/testdata/a.txtar`}},
		{"an exchange that is gone", "asking", "askin", []string{`AR-4 is not cited by "askin" of a/testdata/a.txtar`}},
		{"a file that is gone", "a/a_test.go | TestA", "b_test.go | TestA", []string{"open b_test.go: file does not exist"}},
		{"cited and missing", "AR-1 | a/a_test.go | TestA\n", "", []string{"AR-1 is not in the table", "a/a_test.go cites AR-1, which is not in the table"}},
		{"missing", "AR-6 | - | not ours\n", "", []string{"AR-6 is not in the table"}},
		{"twice", "AR-6", "AR-5 to AR-6", []string{"AR-5 is there twice", "a/testdata/a.txtar cites AR-5, of which the table says: not ours"}},
		{"cited, and said to be not ours", "a/a_test.go | TestA", "- | of no use", []string{"a/a_test.go cites AR-1, of which the table says: of no use"}},
		{"without a reason", " | not ours", "", []string{`not a row: "AR-6 | -\n"`, "AR-6 is not in the table"}},
	} {
		got := rowFaults(t, module, citations("AR-1 to AR-6"), strings.Replace(table, test.old, test.new, 1))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
