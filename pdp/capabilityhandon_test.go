package pdp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// handOnStore lets the holder of a capability hand it on twice.
func handOnStore() pdp.Config {
	store := capabilityStore()
	store["policies.cedar"].Data = append(store["policies.cedar"].Data, `
@id("hand on") permit (principal is sub, action == Action::"capability.request", resource is tool) when { context.depth > 0 && context.depth <= 2 };
`...)
	return pdp.Config{Policies: store, Auth: capabilityKeys()}
}

// A holder hands its capability on, smaller, if policies permit it. The end of the first ends all.
func TestACapabilityIsHandedOn(t *testing.T) {
	c := handOnStore()
	c.State = t.TempDir()
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	outer := u.issue(`"constraints":{"maxUses":3}`)
	hand := func(members string) (int, authzen.Capability) {
		t.Helper()
		status, made := u.ask(fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"holder":{"type":"sub","id":"s"},"parent":%q,"tools":["files:write"],%s}`, outer.ID, members))
		return status, made.Capability
	}
	for members, want := range map[string]int{
		`"duration":60`: 400, // no limit on uses
		`"duration":60,"constraints":{"maxUses":4}`:       400,
		`"duration":7200,"constraints":{"maxUses":1}`:     400,
		`"duration":60,"constraints":{"maxUses":1},"x":1`: 400,
	} {
		if status, made := hand(members); status != want {
			t.Errorf("%s: %d %+v", members, status, made)
		}
	}
	status, inner := hand(`"duration":60,"constraints":{"maxUses":2}`)
	if status != 201 || inner.Holder.ID != "s" || inner.Parent != outer.ID || inner.Depth != 1 {
		t.Fatalf("%d %+v", status, inner)
	}
	deepest := inner
	for depth := 2; depth <= 3; depth++ {
		body := fmt.Sprintf(`{"subject":{"type":"sub","id":"s"},"parent":%q,"tools":["files:write"],"duration":30,"constraints":{"maxUses":1}}`, deepest.ID)
		status, made := u.ask(body)
		if want := map[int]int{2: 201, 3: 403}[depth]; status != want {
			t.Fatalf("depth %d: %d %+v", depth, status, made)
		}
		if status == 201 {
			deepest = made.Capability
		}
	}
	call := func(id string) *authzen.Decision {
		t.Helper()
		var d authzen.Decision
		body := fmt.Sprintf(`{"subject":{"type":"sub","id":"s"},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"files:write"},"context":{"capability":{"id":%q,"use":true}}}`, id)
		if status := askAs(t, u.key, "POST", u.main+authzen.PathEvaluation, body, &d); status != 200 {
			t.Fatalf("evaluation: %d", status)
		}
		return &d
	}
	if d := call(outer.ID); d.Decision || d.Context.CapabilityDenied != "unknown" {
		t.Errorf("the sub-agent uses what it does not hold: %+v", d.Context)
	}
	for i, want := range []struct{ id, denied string }{{deepest.ID, ""}, {deepest.ID, "exhausted"}, {inner.ID, ""}, {inner.ID, "exhausted"}} {
		if d := call(want.id); d.Decision != (want.denied == "") || want.denied != "" && string(d.Context.CapabilityDenied) != want.denied {
			t.Errorf("call %d: %+v %+v, want %q", i, d, d.Context, want.denied)
		}
	}
	_, last := hand(`"duration":60,"constraints":{"maxUses":1}`)
	if got := askAs(t, "k-olga", "POST", u.admin+pdp.PathCapabilities+"/"+outer.ID+"/revoke", `{}`, nil); got != 200 {
		t.Fatal(got)
	}
	if d := call(last.ID); d.Decision || d.Context.CapabilityDenied != "revoked" {
		t.Errorf("after the revocation: %+v", d.Context)
	}
}

// A capability with a key is handed on with a proof of this request, once, also over a restart.
func TestACapabilityWithAKeyIsHandedOn(t *testing.T) {
	c := handOnStore()
	c.State = t.TempDir()
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	k, other := prooftest.Ed25519(), prooftest.Ed25519()
	outer := u.issue(`"holder_key":` + string(k.JWK()))
	rest := fmt.Sprintf(`"duration":60,"holder":{"id":"s","type":"sub"},"holder_key":%s,"parent":%q,"tools":["files:write"]`, canonicalJWK(other), outer.ID)
	body := func(k prooftest.Key, rest, signed string) string {
		proof, err := json.Marshal(k.Proof(prooftest.Call{Arguments: "{" + signed + "}", Capability: outer.ID, Method: "capabilities/request"}))
		if err != nil {
			t.Fatal(err)
		}
		return `{"subject":{"type":"agent","id":"a"},"proof":` + string(proof) + `,` + rest + `}`
	}
	for name, text := range map[string]string{
		"no proof":        `{"subject":{"type":"agent","id":"a"},` + rest + `}`,
		"another key":     body(other, rest, rest),
		"another request": body(k, strings.Replace(rest, "60", "61", 1), rest),
	} {
		if status, made := u.ask(text); status != 400 {
			t.Errorf("%s: %d %+v", name, status, made)
		}
	}
	right := body(k, rest, rest)
	if status, made := u.ask(right); status != 201 || made.Capability.Bound != "key" {
		t.Fatalf("%d %+v", status, made)
	}
	for range 2 {
		if status, made := u.ask(right); status != 400 {
			t.Errorf("the same proof again: %d %+v", status, made)
		}
		s.stop(t)
		s = start(t, c)
		u.service = s
	}
}

// canonicalJWK returns a public key with its members in order.
func canonicalJWK(k prooftest.Key) string {
	var members map[string]string
	if err := json.Unmarshal(k.JWK(), &members); err != nil {
		panic(err)
	}
	text, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return string(text)
}
