package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/lint"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

type validateCmd struct {
	Dir    string `arg:"" help:"Directory of the policy store."`
	Strict bool   `help:"Treat warnings as faults."`
	Format string `help:"Format of faults: ${enum}. Short has one line for each fault, for editors. Long, the default, also shows the line of the file." enum:"long,short" default:"long"`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
}

// A validation is the JSON output of validate.
type validation struct {
	Valid    bool        `json:"valid"`
	Revision string      `json:"revision,omitzero"`
	Tenants  []string    `json:"tenants,omitempty"`
	Policies int         `json:"policies,omitzero"`
	Entities int         `json:"entities,omitzero"` // that are stored
	Actions  int         `json:"actions,omitzero"`  // that the schema declares
	Faults   faults.List `json:"faults,omitempty"`
	Warnings faults.List `json:"warnings,omitempty"`
}

func (c *validateCmd) Run() error {
	store, err := policyStore(c.Dir)
	if err != nil {
		return err
	}
	result, err := validate(store)
	if err != nil {
		return err
	}
	if c.Strict && len(result.Warnings) > 0 {
		result.Valid, result.Faults, result.Warnings = false, append(result.Faults, result.Warnings...), nil
	}
	if c.JSON {
		err = printJSON(result)
	} else {
		err = c.print(store, result)
	}
	if err == nil && !result.Valid {
		return exitError(exitInvalid)
	}
	return err
}

// validate compiles a policy store and reads its tests. A fault in a test is a
// warning, because policies come into force without tests. A file of tests that is not
// read is an error.
func validate(store fs.FS) (*validation, error) {
	tests, untestable, err := testsIn(store)
	if err != nil {
		return nil, err
	}
	archive, misplaced, err := readStore(store)
	if err != nil {
		return nil, err
	}
	var result validation
	var snapshots *snapshot.Snapshots
	if archive != nil {
		snapshots, result.Faults, result.Warnings = lint.Check(archive, requestsOf(tests)...)
	}
	if snapshots != nil {
		result.Warnings = append(result.Warnings, policytest.Vacuous(snapshots, tests)...)
	}
	unread := policytest.Misplaced(store)
	for _, fault := range untestable {
		if !slices.Contains(unread, fault) {
			result.Warnings = append(result.Warnings, fault)
		}
	}
	result.Faults = slices.Concat(misplaced, hintSettings(result.Faults), unread)
	if len(result.Faults) > 0 {
		return &result, nil
	}
	result.Valid, result.Revision, result.Tenants = true, snapshots.Revision(), snapshots.Tenants()
	result.Policies, result.Entities = snapshots.Size()
	result.Actions = snapshots.Actions()
	return &result, nil
}

// testsIn returns the tests of a store, or their errors.
func testsIn(store fs.FS) (tests []policytest.Test, untestable faults.List, err error) {
	tests, err = policytest.Load(store)
	if err != nil && !errors.As(err, &untestable) {
		return nil, nil, err
	}
	return tests, untestable, nil
}

func requestsOf(tests []policytest.Test) (requests []*authzen.EvaluationRequest) {
	for _, test := range tests {
		requests = append(requests, test.Request)
	}
	return requests
}

// print writes errors and warnings to standard error, and the result to standard
// output.
func (c *validateCmd) print(store fs.FS, v *validation) error {
	for _, fault := range v.Faults {
		c.printFault(store, fault)
	}
	for _, warning := range v.Warnings {
		warning.Message = "warning: " + warning.Message
		c.printFault(store, warning)
	}
	if !v.Valid {
		return nil
	}
	beside := ""
	if v.Actions > 0 {
		beside += ", " + plain.Count(v.Actions, "action", "actions")
	}
	if len(v.Tenants) > 0 {
		beside += ", " + plain.Count(len(v.Tenants), "tenant", "tenants")
	}
	_, err := fmt.Printf("valid: %s%s\nrevision %s\n", sizes(v.Policies, v.Entities), beside, v.Revision)
	return err
}

// sizes returns the size of a policy store for people.
func sizes(policies, entities int) string {
	return plain.Count(policies, "policy", "policies") + ", " + plain.Count(entities, "entity", "entities")
}

// printFault writes an error and, in the long form, its line.
func (c *validateCmd) printFault(store fs.FS, f faults.Fault) {
	printLine(os.Stderr, f)
	if c.Format == "short" || f.Line == 0 {
		return
	}
	text, err := fs.ReadFile(store, f.File)
	if err != nil {
		return // it was there a moment ago, and the fault has been told
	}
	for line := range strings.Lines(excerpt(text, f.Line, f.Column)) {
		printLine(os.Stderr, "    "+strings.TrimSuffix(line, "\n"))
	}
}

// compileStore reads and compiles the policy store in dir; without dir, the embedded
// example.
func compileStore(dir string) (*snapshot.Snapshots, error) {
	store, err := policyStore(dir)
	if err != nil {
		return nil, err
	}
	return compileIn(store)
}

// compileIn is compileStore for an open store. It reports misplaced files and compile
// errors together.
func compileIn(store fs.FS) (*snapshot.Snapshots, error) {
	archive, misplaced, err := readStore(store)
	if err != nil {
		return nil, err
	}
	if archive == nil {
		return nil, misplaced
	}
	snapshots, err := snapshot.CompileStore(archive)
	var faults faults.List
	if err != nil && !errors.As(err, &faults) || misplaced == nil {
		return snapshots, err
	}
	return nil, append(misplaced, faults...)
}

// readStore reads a policy store, and reports files with a wrong place or format. An
// empty store is an error, because it cannot be served.
func readStore(store fs.FS) (archive snapshot.Archive, misplaced faults.List, err error) {
	archive, err = policystore.Read(store)
	switch {
	case errors.Is(err, policystore.ErrEmpty):
		return nil, faults.List{{File: ".", Message: err.Error(), Hint: "put *.cedar files in it"}}, nil
	case errors.As(err, &misplaced):
		return archive, misplaced, nil
	}
	return archive, nil, err
}

// compile is compileStore for the policies of one tenant.
func compile(dir, tenant string) (*snapshot.Snapshot, error) {
	snapshots, err := compileStore(dir)
	if err != nil {
		return nil, err
	}
	return snapshots.For(tenant)
}

func printJSON(v any) error {
	out, err := json.Marshal(v, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", out)
	return err
}
