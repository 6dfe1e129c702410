package evaluation_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// schemaForms are schemas on the border of what Cedar takes, with entities that
// the schema types.
var schemaForms = []struct{ name, cedar, json, entities string }{
	{name: "an enum", cedar: `entity C enum ["red", "blue"];`},
	{name: "a comma behind an enum", cedar: `entity C enum ["red", "blue",];`},
	{name: "an empty enum", cedar: `entity C enum [];`},
	{name: "a comma behind parents", cedar: `entity A; entity C in [A,];`},
	{name: "no parents", cedar: `entity C in [];`},
	{name: "a comma behind attributes", cedar: `entity A {a: Long,};`},
	{name: "a comma behind names", cedar: `entity A, B,;`},
	{name: "a comma behind principals", cedar: `entity A; action a appliesTo {principal: [A,], resource: [A]};`},
	{name: "a comma behind appliesTo", cedar: `entity A; action a appliesTo {principal: [A], resource: [A],};`},
	{name: "no principals", cedar: `entity A; action a appliesTo {principal: [], resource: [A]};`},
	{name: "no resource", cedar: `entity A; action a appliesTo {principal: [A]};`},
	{name: "a comma behind groups", cedar: `entity A; action g; action a in [g,] appliesTo {principal: [A], resource: [A]};`},
	{name: "no groups", cedar: `entity A; action a in [] appliesTo {principal: [A], resource: [A]};`},
	{name: "a byte order mark", cedar: "\ufeffentity A;"},

	{name: "JSON: a group as schemaToJson writes it", json: `{"":{"entityTypes":{"A":{}},"actions":{
		"g":{"appliesTo":{"principalTypes":[],"resourceTypes":[]}},
		"a":{"memberOf":[{"id":"g"}],"appliesTo":{"principalTypes":["A"],"resourceTypes":["A"]}}}}}`},
	{name: "JSON: no resource types", json: `{"":{"entityTypes":{"A":{}},"actions":{"a":{"appliesTo":{"principalTypes":["A"],"resourceTypes":[]}}}}}`},
	{name: "JSON: resource types missing", json: `{"":{"entityTypes":{"A":{}},"actions":{"a":{"appliesTo":{"principalTypes":["A"]}}}}}`},
	{name: "JSON: appliesTo missing", json: `{"":{"entityTypes":{"A":{}},"actions":{"a":{}}}}`},
	{name: "JSON: a name that is none", json: `{"":{"entityTypes":{"a b":{}},"actions":{}}}`},
	{name: "JSON: a type that is none", json: `{"":{"entityTypes":{"A":{"memberOfTypes":["B"]}},"actions":{}}}`},
	{name: "JSON: namespaces", json: `{"N":{"entityTypes":{"A":{"shape":{"type":"Record","attributes":{"b":{"type":"Entity","name":"B"}}}},"B":{}},"actions":{"a":{"appliesTo":{"principalTypes":["A"],"resourceTypes":["B"]}}}}}`},

	{name: "parents of parents", cedar: hotels, entities: `[
		{"uid":{"type":"Room","id":"1"},"attrs":{},"parents":[{"type":"Hotel","id":"h"},{"type":"Chain","id":"c"}]},
		{"uid":{"type":"Hotel","id":"h"},"attrs":{},"parents":[{"type":"Chain","id":"c"}]},
		{"uid":{"type":"Chain","id":"c"},"attrs":{},"parents":[]}]`},
	{name: "parents that are none", cedar: hotels, entities: `[{"uid":{"type":"Chain","id":"1"},"attrs":{},"parents":[{"type":"Hotel","id":"h"}]}]`},
}

const hotels = `entity Chain; entity Hotel in [Chain]; entity Room in [Hotel]; action see appliesTo {principal: [Room], resource: [Chain]};`

// TestOfficialSchemas holds which schemas are read, and which entities they
// allow, against the official engine.
func TestOfficialSchemas(t *testing.T) {
	var cases []*trial
	for _, form := range schemaForms {
		c := &trial{name: form.name, Policies: map[string]string{}, Entities: jsontext.Value("[]"), Requests: []officialRequest{}, archive: snapshot.Archive{}}
		if form.entities != "" {
			c.Entities = jsontext.Value(form.entities)
			c.archive["entities.json"] = []byte(form.entities)
		}
		if form.json != "" {
			c.Schema, c.archive["schema.json"] = jsontext.Value(form.json), []byte(form.json)
		} else {
			c.Schema, c.archive["schema.cedarschema"] = form.cedar, []byte(form.cedar)
		}
		cases = append(cases, c)
	}
	for i, official := range askOracle(t, oracle(t), cases) {
		if ours, _ := cases[i].ours(); (ours.Fault == "") != (official.Fault == "") {
			t.Errorf("%s: ours %q, official %q", cases[i].name, ours.Fault, official.Fault)
		}
	}
}
