package evaluation_test

import (
	"errors"
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A store that an accident could have made does not come into force, unless
// the operator says that policies may go.
func TestGuards(t *testing.T) {
	const (
		permits = `@id("a") permit (principal, action, resource);` + "\n" + `@id("b") permit (principal, action, resource);` + "\n"
		forbid  = `@id("c") forbid (principal, action, resource);` + "\n"
		fourth  = `@id("d") permit (principal, action, resource);` + "\n"
		nothing = "// nothing\n"
		config  = "-- config.yaml --\nclock: now\n"
		schema  = "-- schema.cedarschema --\nentity user; action read appliesTo {principal: [user], resource: [user]};\n"
		other   = "-- schema.json --\n" + `{"":{"entityTypes":{"user":{}},"actions":{}}}` + "\n"
		people  = "-- entities.json --\n" + `[{"uid":{"type":"user","id":"a"},"attrs":{},"parents":[]}]` + "\n"
		nobody  = "-- entities.json --\n[ ]\n"
		staff   = "-- tenants/acme/entities.json --\n" + `[{"uid":{"type":"user","id":"a"},"attrs":{},"parents":[]}]` + "\n"
		acme    = "-- tenants/acme/a.cedar --\n" + `@id("x") permit (principal, action, resource);` + "\n"
		settled = acme + "-- tenants/acme/config.yaml --\nclock: now\n"
		zeta    = "-- tenants/zeta/a.cedar --\n" + `@id("x") permit (principal, action, resource);` + "\n"
	)
	for name, test := range map[string]struct {
		before, after string
		basic, strict error
	}{
		"the same":              {permits + forbid, permits + forbid, nil, nil},
		"more":                  {forbid, permits + forbid, nil, nil},
		"half":                  {permits + forbid + fourth, fourth + forbid, nil, nil},
		"less than half":        {permits + forbid, forbid, nil, snapshot.ErrShrunk},
		"no forbid any more":    {permits + forbid, permits, nil, snapshot.ErrShrunk},
		"no forbid as before":   {permits, permits + fourth, nil, nil},
		"nothing any more":      {permits, nothing, snapshot.ErrEmptied, snapshot.ErrEmptied},
		"nothing as before":     {nothing, nothing, nil, nil},
		"no settings":           {permits + config, permits, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"no schema":             {permits + schema, permits, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"another schema":        {permits + schema, permits + other, nil, nil},
		"no tenant's settings":  {permits + settled, permits + acme, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"no entities":           {permits + people, permits, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"empty entities":        {permits + people, permits + nobody, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"no entities as before": {permits + nobody, permits, nil, nil},
		"no tenant's entities":  {permits + acme + staff, permits + acme, snapshot.ErrStoreLosesFiles, snapshot.ErrStoreLosesFiles},
		"no tenant":             {permits + settled + zeta, permits + zeta, nil, nil},
		"no tenants any more":   {permits + acme, permits, snapshot.ErrUntenanted, snapshot.ErrUntenanted},
	} {
		t.Run(name, func(t *testing.T) {
			for strict, want := range map[bool]error{false: test.basic, true: test.strict} {
				l := openLog(t, t.TempDir(), decisionlog.Config{})
				e := evaluation.NewEngine(l, evaluation.Config{GuardShrink: strict})
				load(t, e, test.before)
				decides := revisionOf(t, test.after)
				if want != nil {
					decides = inForce(t, e)
				}
				change := evaluation.Change{Archive: archive(test.after), Cause: "change"}
				if _, err := e.Reload(t.Context(), change); !errors.Is(err, want) || inForce(t, e) != decides {
					t.Errorf("strict %t: %v, want %v; revision %s decides, want %s", strict, err, want, inForce(t, e), decides)
				}
				change.Shrink = true
				if _, err := e.Reload(t.Context(), change); err != nil {
					t.Errorf("strict %t, and policies may go: %v", strict, err)
				}
			}
		})
	}
}

// revisionOf returns the revision of a whole store.
func revisionOf(t *testing.T, text string) string {
	t.Helper()
	s, err := snapshot.CompileStore(archive(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Revision()
}
