package main

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/policystore"
)

type validateCmd struct {
	Dir  string `arg:"" help:"Directory of the policy store."`
	JSON bool   `name:"json" help:"Print the result as JSON."`
}

// A validation is what validate prints as JSON.
type validation struct {
	Valid    bool              `json:"valid"`
	Revision string            `json:"revision,omitzero"`
	Policies int               `json:"policies,omitzero"`
	Entities int               `json:"entities,omitzero"`
	Faults   evaluation.Faults `json:"faults,omitempty"`
}

func (c *validateCmd) Run() error {
	snapshot, err := compile(c.Dir)
	var faults evaluation.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	result := validation{Valid: err == nil, Faults: faults}
	if result.Valid {
		result.Revision = snapshot.Revision()
		result.Policies, result.Entities = snapshot.Size()
	}
	if c.JSON {
		if err := printJSON(result); err != nil {
			return err
		}
		if !result.Valid {
			return exitError(exitInvalid)
		}
		return nil
	}
	if !result.Valid {
		return faults
	}
	fmt.Printf("valid: %d policies, %d entities\nrevision %s\n", result.Policies, result.Entities, result.Revision)
	return nil
}

// compile reads and compiles the policy store in dir; without one, the
// embedded example.
func compile(dir string) (*evaluation.Snapshot, error) {
	store, err := policyStore(dir)
	if err != nil {
		return nil, err
	}
	archive, err := policystore.Read(store)
	if err != nil {
		return nil, err
	}
	return evaluation.Compile(archive)
}

func printJSON(v any) error {
	out, err := json.Marshal(v, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", out)
	return err
}
