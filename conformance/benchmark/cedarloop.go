//go:build linux

package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// A cedarLoop evaluates every policy of a policy store with cedar-go: no index
// of policies, no schema, no decision log.
type cedarLoop struct {
	policies *cedar.PolicySet
	entities cedar.EntityMap
}

func newCedarLoop(dir string) (http.Handler, error) {
	text, err := os.ReadFile(filepath.Join(dir, "entities.json"))
	if err != nil {
		return nil, err
	}
	l := &cedarLoop{policies: cedar.NewPolicySet()}
	if err := json.Unmarshal(text, &l.entities); err != nil {
		return nil, err
	}
	for _, name := range []string{"common.cedar", "tools.cedar"} {
		if err := l.add(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *cedarLoop) add(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		return err
	}
	for _, policy := range list {
		l.policies.Add(cedar.PolicyID(policy.Annotations()["id"]), policy)
	}
	return nil
}

func (l *cedarLoop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
		http.Error(w, "decode the body", http.StatusBadRequest)
		return
	}
	address, err := types.ParseIPAddr(asked.Context.SourceIP)
	if err != nil {
		http.Error(w, "context.source_ip is no address", http.StatusBadRequest)
		return
	}
	principal := cedar.NewEntityUID(cedar.EntityType(asked.Subject.Type), cedar.String(asked.Subject.ID))
	what := cedar.NewEntityUID(cedar.EntityType(asked.Resource.Type), cedar.String(asked.Resource.ID))
	entities := overlay{l.entities, l.with(principal, cedar.RecordMap{
		"mfa": types.Boolean(asked.Subject.Properties.MFA), "client": cedar.String(asked.Subject.Properties.Client),
	}), l.with(what, cedar.RecordMap{
		"server": cedar.String(asked.Resource.Properties.Server), "payload_bytes": types.Long(asked.Resource.Properties.PayloadBytes),
	})}
	decision, _ := cedar.Authorize(l.policies, entities, cedar.Request{
		Principal: principal, Action: cedar.NewEntityUID("Action", cedar.String(asked.Action.Name)), Resource: what,
		Context: cedar.NewRecord(cedar.RecordMap{
			"risk": types.Long(asked.Context.Risk), "source_ip": address, "purpose": cedar.String(asked.Context.Purpose),
			"action": cedar.NewRecord(cedar.RecordMap{"dry_run": types.Boolean(asked.Action.Properties.DryRun)}),
		}),
	})
	answer(w, bool(decision))
}

// with returns a stored entity with the properties of a request. A stored value
// wins.
func (l *cedarLoop) with(uid cedar.EntityUID, properties cedar.RecordMap) cedar.Entity {
	entity := l.entities[uid]
	maps.Insert(properties, entity.Attributes.All())
	entity.UID, entity.Attributes = uid, cedar.NewRecord(properties)
	return entity
}

// An overlay has two entities of a request in front of those of a store.
type overlay struct {
	stored              cedar.EntityMap
	principal, resource cedar.Entity
}

// Get returns an entity.
func (o overlay) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch uid {
	case o.principal.UID:
		return o.principal, true
	case o.resource.UID:
		return o.resource, true
	}
	return o.stored.Get(uid)
}
