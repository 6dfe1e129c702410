package evaluation_test

import (
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/schematest"
)

// The JSON Schema of config.yaml has the keys that are read.
func TestSchemaOfSettings(t *testing.T) {
	schema, err := schemas.StoreSchema("config")
	if err != nil {
		t.Fatal(err)
	}
	schematest.SameKeys(t, schema, "", evaluation.SettingsType)
}
