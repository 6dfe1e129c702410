package policytest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Test is a request and its expected decision.
type Test struct {
	Name     string
	Tenant   string // owner of the test; "" for the store's root
	File     string // path from the root of the policy store
	Line     int    // from 1
	Request  *authzen.EvaluationRequest
	Time     time.Time                 // of the decision; zero if the test sets none
	Approval *authzen.VerifiedApproval // the active approval; nil for none
	// Capability is the active capability that covers the request; nil for none.
	Capability *authzen.VerifiedCapability
	Unknown    bool // the request may have names that the schema does not declare
	Want       Expectation
}

// An Expectation is the expected or the actual outcome of a test. Nil policies or obligations match any.
type Expectation struct {
	Decision    bool     `json:"decision"`
	Policies    []string `json:"policies,omitzero"`    // ids of all determining policies
	Obligations []string `json:"obligations,omitzero"` // types of all obligations
}

// Load reads the tests of the policy store at the root of fsys, in the order of their files, tenants'
// last. The error is an [evaluation.Faults] with every fault.
func Load(fsys fs.FS) ([]Test, error) { return ReadFiles(fsys).Tests() }

// Files are the test files of a policy store.
type Files struct {
	names    []string
	texts    map[string][]byte
	problems faults.List
}

// ReadFiles reads the test files of the policy store at the root of fsys. Faults are those of
// [Files.Tests].
func ReadFiles(fsys fs.FS) *Files {
	f := &Files{texts: map[string][]byte{}}
	f.names, f.problems = files(fsys)
	f.problems = append(f.problems, Misplaced(fsys)...)
	for _, name := range f.names {
		src, err := readFile(fsys, name)
		if err != nil {
			f.problems = append(f.problems, faults.Fault{File: name, Message: err.Error()})
			continue
		}
		f.texts[name] = src
	}
	return f
}

// Only returns the files, and faults, whose path satisfies a condition.
func (f *Files) Only(visible func(file string) bool) *Files {
	out := &Files{texts: f.texts}
	for _, name := range f.names {
		if visible(name) {
			out.names = append(out.names, name)
		}
	}
	for _, fault := range f.problems {
		if visible(fault.File) {
			out.problems = append(out.problems, fault)
		}
	}
	return out
}

// Digest returns a hash of the names, texts and faults of the files.
func (f *Files) Digest() [sha256.Size]byte {
	h := sha256.New()
	for _, name := range f.names {
		fmt.Fprintf(h, "%q %x\n", name, sha256.Sum256(f.texts[name]))
	}
	fmt.Fprintf(h, "%q", f.problems.Error())
	return [sha256.Size]byte(h.Sum(nil))
}

// Tests parses the files. See [Load].
func (f *Files) Tests() ([]Test, error) {
	var tests []Test
	problems := slices.Clone(f.problems)
	for _, name := range f.names {
		src, read := f.texts[name]
		if !read {
			continue
		}
		found, wrong := parse(name, src)
		tests = append(tests, found...)
		problems = append(problems, wrong...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return tests, nil
}

// files lists the test files, those of tenants last.
func files(fsys fs.FS) (names []string, problems faults.List) {
	for _, folder := range folders(fsys) {
		info, err := fs.Stat(fsys, folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = errors.New("is not a directory")
		}
		var entries []fs.DirEntry
		if err == nil {
			entries, err = fs.ReadDir(fsys, folder)
		}
		if err != nil {
			problems = append(problems, faults.Fault{File: folder, Message: err.Error()})
		}
		for _, entry := range entries {
			if path.Ext(entry.Name()) == ".yaml" {
				names = append(names, path.Join(folder, entry.Name()))
			}
		}
	}
	return names, problems
}

// folders lists where tests can be: in the root and in the directory of each tenant. It opens
// directories only, because to open a named pipe may never end.
func folders(fsys fs.FS) []string {
	all := []string{"tests"}
	if info, err := fs.Stat(fsys, "tenants"); err != nil || !info.IsDir() {
		return all
	}
	tenants, _ := fs.ReadDir(fsys, "tenants") // what cannot be read is a fault of the store
	for _, tenant := range tenants {
		name := path.Join("tenants", tenant.Name())
		if info, err := fs.Stat(fsys, name); err == nil && info.IsDir() {
			all = append(all, path.Join(name, "tests"))
		}
	}
	return all
}

// maxFile limits a test file, in bytes.
const maxFile = 64 << 20

var errNotRegular = errors.New("is not a regular file")

// readFile reads a regular file. Reading another kind, such as a named pipe, may never end. It checks
// the file again once it is open, because another one can have replaced it.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	if info, err := fs.Stat(fsys, name); err == nil && !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return text, err
}

// parse parses one test file.
func parse(name string, src []byte) (tests []Test, problems faults.List) {
	rows, problems := rowsOf(name, src)
	names := make(map[string]bool)
	for _, part := range rows {
		test, wrong := read(part)
		if len(wrong) == 0 && names[test.Name] {
			wrong = []faults.Fault{part.Fault(fmt.Sprintf("%q names two tests", test.Name), "")}
		}
		if len(wrong) > 0 {
			problems = append(problems, wrong...)
			continue
		}
		test.Tenant, test.File, test.Line = tenantOf(name), name, part.Line()
		names[test.Name] = true
		tests = append(tests, test)
	}
	return tests, problems
}

// tenantOf returns the tenant that owns a test file.
func tenantOf(name string) string {
	below, ok := strings.CutPrefix(name, "tenants/")
	if !ok {
		return ""
	}
	tenant, _, _ := strings.Cut(below, "/")
	return tenant
}

// rowsOf returns the tests of a file as written.
func rowsOf(name string, src []byte) (rows []*yamldoc.Document, problems faults.List) {
	d, err := yamldoc.Parse(name, src)
	var fault faults.Fault
	switch {
	case errors.As(err, &fault):
		return nil, faults.List{fault}
	case d.Empty():
		return nil, faults.List{{File: name, Line: 1, Column: 1, Message: "there is no list of tests"}}
	}
	var file struct {
		Tests []any `yaml:"tests"`
	}
	problems = d.Decode(&file)
	for i := range file.Tests {
		rows = append(rows, d.Part("tests", strconv.Itoa(i)))
	}
	return rows, problems
}

// A row is a test as written. Pointers distinguish a missing value from an empty one.
type row struct {
	Name        string      `yaml:"name"`
	Time        string      `yaml:"time"`
	Request     *request    `yaml:"request"`
	Approval    *approval   `yaml:"approval,omitempty"`
	Capability  *capability `yaml:"capability,omitempty"`
	Decision    *bool       `yaml:"decision"`
	Unknown     bool        `yaml:"unknown,omitempty"`
	Policies    *[]string   `yaml:"policies,flow"`
	Obligations *[]string   `yaml:"obligations,flow"`
}

// A request has the members of an authzen.EvaluationRequest and no others. Package authzen checks the
// values.
type request struct {
	Subject  *entity        `yaml:"subject,flow"          json:"subject,omitzero"`
	Action   *action        `yaml:"action,flow"           json:"action,omitzero"`
	Resource *entity        `yaml:"resource,flow"         json:"resource,omitzero"`
	Context  map[string]any `yaml:"context,flow,omitzero" json:"context,omitzero"`
}

type entity struct {
	Type       any            `yaml:"type"                json:"type"`
	ID         any            `yaml:"id"                  json:"id"`
	Properties map[string]any `yaml:"properties,omitzero" json:"properties,omitzero"`
}

type action struct {
	Name       any            `yaml:"name"                json:"name"`
	Properties map[string]any `yaml:"properties,omitzero" json:"properties,omitzero"`
}

// read reads a test. A value that YAML accepts but the test does not is a fault of the whole test.
func read(part *yamldoc.Document) (Test, []faults.Fault) {
	var row row
	if part.Empty() {
		return Test{}, []faults.Fault{part.Fault("a test is empty", "")}
	}
	if problems := part.Decode(&row); len(problems) > 0 {
		return Test{}, problems
	}
	if row.Name == "" {
		return Test{}, []faults.Fault{part.Fault("name is required", "")}
	}
	test, err := row.test()
	if err != nil {
		return Test{}, []faults.Fault{part.Fault(fmt.Sprintf("%q: %v", row.Name, err), "")}
	}
	return test, nil
}

func (r *row) test() (Test, error) {
	if r.Request == nil {
		return Test{}, errors.New("request is required")
	}
	if r.Decision == nil {
		return Test{}, errors.New("decision is required")
	}
	decided, err := moment("time", r.Time)
	if err != nil {
		return Test{}, err
	}
	approval, err := r.Approval.verified()
	if err != nil {
		return Test{}, err
	}
	capability, err := r.Capability.verified()
	if err != nil {
		return Test{}, err
	}
	sent, err := r.Request.evaluation()
	if err != nil {
		return Test{}, err
	}
	return Test{Name: r.Name, Time: decided, Request: sent, Approval: approval, Capability: capability, Unknown: r.Unknown, Want: r.want()}, nil
}

// moment parses a time; "" is zero.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %q, not of the form 2026-01-31T12:00:00Z", name, text)
	}
	return t, nil
}

// evaluation returns the request as if it had come over the wire, with the same parser.
func (r *request) evaluation() (*authzen.EvaluationRequest, error) {
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var out authzen.EvaluationRequest
	if err := authzen.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (r *row) want() Expectation {
	want := Expectation{Decision: *r.Decision}
	if r.Policies != nil {
		want.Policies = sorted(*r.Policies)
	}
	if r.Obligations != nil {
		want.Obligations = sorted(*r.Obligations)
	}
	return want
}
