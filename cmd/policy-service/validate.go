package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/policystore"
)

type validateCmd struct {
	Dir    string `arg:"" help:"Directory of the policy store."`
	Strict bool   `help:"Let warnings fail as faults do."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
}

// A validation is what validate prints as JSON.
type validation struct {
	Valid    bool              `json:"valid"`
	Revision string            `json:"revision,omitzero"`
	Tenants  []string          `json:"tenants,omitempty"`
	Policies int               `json:"policies,omitzero"`
	Entities int               `json:"entities,omitzero"`
	Faults   evaluation.Faults `json:"faults,omitempty"`
	Warnings evaluation.Faults `json:"warnings,omitempty"`
}

func (c *validateCmd) Run() error {
	result, err := validateStore(c.Dir)
	if err != nil {
		return err
	}
	if c.Strict && len(result.Warnings) > 0 {
		result.Valid, result.Faults, result.Warnings = false, append(result.Faults, result.Warnings...), nil
	}
	if c.JSON {
		err = printJSON(result)
	} else {
		err = result.print()
	}
	if err == nil && !result.Valid {
		return exitError(exitInvalid)
	}
	return err
}

func validateStore(dir string) (*validation, error) {
	snapshots, err := compileStore(dir)
	var faults evaluation.Faults
	if errors.As(err, &faults) {
		return &validation{Faults: faults}, nil
	}
	if err != nil {
		return nil, err
	}
	result := &validation{Valid: true, Revision: snapshots.Revision(), Tenants: snapshots.Tenants(), Warnings: snapshots.Warnings()}
	result.Policies, result.Entities = snapshots.Size()
	return result, nil
}

// print writes faults and warnings to standard error, one a line, and what is
// valid to standard output.
func (v *validation) print() error {
	for _, fault := range v.Faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	for _, warning := range v.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", warning)
	}
	if !v.Valid {
		return nil
	}
	tenants := ""
	if len(v.Tenants) > 0 {
		tenants = fmt.Sprintf(", %d tenants", len(v.Tenants))
	}
	_, err := fmt.Printf("valid: %d policies, %d entities%s\nrevision %s\n", v.Policies, v.Entities, tenants, v.Revision)
	return err
}

// compileStore reads and compiles the policy store in dir; without one, the
// embedded example.
func compileStore(dir string) (*evaluation.Snapshots, error) {
	store, err := policyStore(dir)
	if err != nil {
		return nil, err
	}
	archive, err := policystore.Read(store)
	if err != nil {
		return nil, err
	}
	return evaluation.CompileStore(archive)
}

// compile is compileStore for what answers one tenant.
func compile(dir, tenant string) (*evaluation.Snapshot, error) {
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
