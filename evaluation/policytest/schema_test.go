package policytest_test

import (
	"testing"

	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/schematest"
)

// The JSON Schema of tests has the keys that are read.
func TestSchemaOfTests(t *testing.T) {
	schema, err := schemas.StoreSchema("tests")
	if err != nil {
		t.Fatal(err)
	}
	schematest.SameKeys(t, schema, "test", policytest.RowType)
}
