package pdp_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// A refresh is decided anew: people approve where policies say so, and the old one ends with the issue.
// A revocation meanwhile refuses the new one.
func TestACapabilityIsRefreshed(t *testing.T) {
	c := pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys(), State: t.TempDir()}
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	refresh := func(id, members string) (int, authzen.CapabilityResponse) {
		t.Helper()
		return u.ask(fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"refreshes":%q,"tools":["files:write"],"duration":600%s}`, id, members))
	}
	old := u.issue(`"constraints":{"maxUses":3}`)
	for members, want := range map[string]int{
		``:                             400, // no limit on uses
		`,"constraints":{"maxUses":4}`: 400,
		`,"constraints":{"maxUses":3},"parent":"` + old.ID + `"`:          400,
		`,"constraints":{"maxUses":3},"holder":{"type":"agent","id":"b"}`: 400,
	} {
		if status, made := refresh(old.ID, members); status != want {
			t.Errorf("%s: %d %+v", members, status, made)
		}
	}
	status, made := refresh(old.ID, `,"constraints":{"maxUses":2}`)
	if status != 202 || made.Capability.Refreshes != old.ID {
		t.Fatalf("%d %+v", status, made)
	}
	claim := func(id string) string { return fmt.Sprintf(`{"id":%q,"use":true}`, id) }
	if d := u.call("a", "files:write", "before", claim(old.ID)); !d.Decision {
		t.Errorf("before the decision: %+v", d.Context)
	}
	if got := u.decide(made.Task.ID, "approve"); got != 200 {
		t.Fatal(got)
	}
	if got := u.show(made.Capability.ID).Capability; got.Status != "active" || *got.UsesLeft != 2 {
		t.Errorf("%+v", got)
	}
	if d := u.call("a", "files:write", "the old one", claim(old.ID)); d.Decision || d.Context.CapabilityDenied != "revoked" {
		t.Errorf("the old one: %+v", d.Context)
	}
	if d := u.call("a", "files:write", "the new one", claim(made.Capability.ID)); !d.Decision {
		t.Errorf("the new one: %+v", d.Context)
	}
	status, last := refresh(made.Capability.ID, `,"constraints":{"maxUses":2}`)
	if status != 202 {
		t.Fatalf("%d %+v", status, last)
	}
	if got := askAs(t, "k-olga", "POST", u.admin+pdp.PathCapabilities+"/"+made.Capability.ID+"/revoke", `{}`, nil); got != 200 {
		t.Fatal(got)
	}
	if got := u.decide(last.Task.ID, "approve"); got != 200 {
		t.Fatal(got)
	}
	if got := u.show(last.Capability.ID).Capability; got.Status != "refused" {
		t.Errorf("after the revocation of the one that it refreshes: %+v", got)
	}
}

// The proof of a refresh is good once, also over a restart.
func TestACapabilityWithAKeyIsRefreshed(t *testing.T) {
	c := pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys(), State: t.TempDir()}
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	k := prooftest.Ed25519()
	old := u.issue(`"holder_key":` + string(k.JWK()))
	rest := fmt.Sprintf(`"duration":60,"refreshes":%q,"tools":["files:write"]`, old.ID)
	proof, err := json.Marshal(k.Proof(prooftest.Call{Arguments: "{" + rest + "}", Capability: old.ID, Method: "capabilities/request"}))
	if err != nil {
		t.Fatal(err)
	}
	if status, made := u.ask(`{"subject":{"type":"agent","id":"a"},` + rest + `}`); status != 400 {
		t.Errorf("without a proof: %d %+v", status, made)
	}
	body := `{"subject":{"type":"agent","id":"a"},"proof":` + string(proof) + `,` + rest + `}`
	status, made := u.ask(body)
	if status != 202 || made.Capability.JKT != old.JKT {
		t.Fatalf("%d %+v", status, made)
	}
	for range 2 {
		if status, again := u.ask(body); status != 400 {
			t.Errorf("the same proof again: %d %+v", status, again)
		}
		s.stop(t)
		s = start(t, c)
		u.service = s
	}
}
