package capability_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

var child = authzen.Subject{Type: "agent", ID: "agent-b"}

// handOn hands a capability of its holder on to agent b.
func (s *store) handOn(t testing.TB, parent *capability.Capability, change func(*capability.Terms)) (*capability.Capability, error) {
	t.Helper()
	asked := capability.Terms{Holder: child, Tools: parent.Tools, Duration: lasting(10 * time.Minute), Parent: parent.ID}
	asked.Constraints.MaxUses = parent.Constraints.MaxUses
	if change != nil {
		change(&asked)
	}
	within, _, err := s.HandOn(gateway, asked, capability.Handover{By: parent.Holder})
	if err != nil {
		return nil, err
	}
	return s.Issue(t.Context(), gateway, "", within, capability.Grant{})
}

func (s *store) mustHandOn(t testing.TB, parent *capability.Capability, change func(*capability.Terms)) *capability.Capability {
	t.Helper()
	made, err := s.handOn(t, parent, change)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// callBy is call of another subject.
func (s *store) callBy(who authzen.Subject, tool, arguments string, claim *authzen.CapabilityClaim) *authzen.CapabilityQuestion {
	q := s.call(tool, arguments, claim)
	q.Request.Subject = who
	return q
}

// What is handed on is at most what there is.
func TestHandOn(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*capability.Terms)
		path   string // of the fault; "" for none
	}{
		"the same":             {func(*capability.Terms) {}, ""},
		"a tool less":          {func(c *capability.Terms) { c.Tools = c.Tools[:1] }, ""},
		"a tool of the server": {func(c *capability.Terms) { c.Tools = []string{"mail:send"} }, ""},
		"a tool more":          {func(c *capability.Terms) { c.Tools = append(slices.Clone(c.Tools), "files:delete") }, "/tools/2"},
		"a server more":        {func(c *capability.Terms) { c.Tools = []string{"files:*"} }, "/tools/0"},
		"the whole time":       {func(c *capability.Terms) { c.Duration = lasting(time.Hour) }, ""},
		"an hour more":         {func(c *capability.Terms) { c.Duration = lasting(2 * time.Hour) }, "/duration"},
		"a second more":        {func(c *capability.Terms) { c.Duration = lasting(time.Hour + time.Second) }, "/duration"},
		"a later end":          {func(c *capability.Terms) { c.Duration, c.Constraints.ValidUntil = lasting(0), morning.Add(2*time.Hour) }, "/constraints/validUntil"},
		"a use less":           {func(c *capability.Terms) { c.Constraints.MaxUses = 2 }, ""},
		"a use more":           {func(c *capability.Terms) { c.Constraints.MaxUses = 4 }, "/constraints/maxUses"},
		"any number of uses":   {func(c *capability.Terms) { c.Constraints.MaxUses = 0 }, "/constraints/maxUses"},
		"another argument": {func(c *capability.Terms) {
			c.Constraints.Arguments = jsonobject.Object{"more": jsontext.Value("1")}
		}, ""},
		"another value": {func(c *capability.Terms) {
			c.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(`"production"`)}
		}, "/constraints/arguments"},
		"another's":       {func(c *capability.Terms) { c.Parent = "cap_OTHER" }, "/parent"},
		"another session": {func(c *capability.Terms) { c.Session = "s" }, ""},
	} {
		s := open(t)
		outer := terms(func(t *capability.Terms) {
			t.Constraints.MaxUses = 3
			t.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(`"staging"`)}
		}, "files:write", "mail:*")
		made, err := s.handOn(t, s.issue(t, outer), test.change)
		var invalid *authzen.ValidationError
		switch {
		case test.path == "" && err != nil, test.path != "" && (!errors.As(err, &invalid) || invalid.Path != test.path):
			t.Errorf("%s: %v, want %q", name, err, test.path)
		case err == nil && (made.Depth != 1 || string(made.Constraints.Arguments["target"]) != `"staging"` || made.Constraints.ValidUntil.After(morning.Add(time.Hour))):
			t.Errorf("%s: %+v", name, made)
		}
	}
}

// Only the holder hands on, and not what has ended, has a session or was handed on four times.
func TestWhoHandsOn(t *testing.T) {
	s := open(t)
	outer := s.issue(t, terms(nil, "files:write"))
	hand := func(parent *capability.Capability, by authzen.Subject, tenant string) error {
		_, _, err := s.HandOn(capability.Caller{Tenant: tenant}, capability.Terms{Holder: child, Tools: []string{"files:write"}, Duration: lasting(time.Minute), Parent: parent.ID}, capability.Handover{By: by})
		return err
	}
	for name, err := range map[string]error{"another": hand(outer, child, gateway.Tenant), "another tenant": hand(outer, agent, "globex")} {
		if err == nil {
			t.Errorf("%s hands it on", name)
		}
	}
	deep := outer
	for range 4 {
		deep = s.mustHandOn(t, deep, nil)
	}
	if err := hand(deep, child, gateway.Tenant); err == nil || deep.Depth != 4 {
		t.Errorf("at depth %d: %v", deep.Depth, err)
	}
	got := s.find(t, s.callBy(child, "files:write", "", claim(deep.ID, true)))
	if got.Capability == nil || got.Capability.Depth != 4 {
		t.Errorf("the deepest: %+v", got)
	}
	inSession := s.issue(t, terms(func(t *capability.Terms) { t.Session = "s" }, "files:write"))
	if err := hand(inSession, agent, gateway.Tenant); err == nil {
		t.Error("one that is bound to a session is handed on")
	}
	if _, err := s.Revoke(t.Context(), outer.ID, admin, ""); err != nil {
		t.Fatal(err)
	}
	if err := hand(outer, agent, gateway.Tenant); err == nil {
		t.Error("a revoked one is handed on")
	}
}

// What ends a capability ends what was handed on from it, at any depth and at once.
func TestRevocationFallsThrough(t *testing.T) {
	s := open(t)
	outer := s.issue(t, terms(nil, "files:write"))
	middle := s.mustHandOn(t, outer, nil)
	inner := s.mustHandOn(t, middle, nil)
	other := s.mustHandOn(t, outer, nil)
	denied := func(c *capability.Capability) authzen.CapabilityReason {
		return s.find(t, s.callBy(child, "files:write", "", claim(c.ID, true))).Denied
	}
	for _, step := range []struct {
		ends                          *capability.Capability
		outer, middle, inner, sibling authzen.CapabilityReason
	}{
		{nil, "unknown", "", "", ""}, // the outer one is another's
		{middle, "unknown", "revoked", "revoked", ""},
		{outer, "unknown", "revoked", "revoked", "revoked"},
	} {
		if step.ends != nil {
			if _, err := s.Revoke(t.Context(), step.ends.ID, admin, ""); err != nil {
				t.Fatal(err)
			}
		}
		got := [...]authzen.CapabilityReason{denied(outer), denied(middle), denied(inner), denied(other)}
		if want := [...]authzen.CapabilityReason{step.outer, step.middle, step.inner, step.sibling}; got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if _, err := s.Usable(t.Context(), gateway.Tenant, other.ID); !errors.Is(err, capability.ErrUnknown) {
		t.Errorf("what was handed on can be used: %v", err)
	}
	s.reopen(t)
	if got := denied(other); got != "revoked" {
		t.Errorf("after a restart: %q", got)
	}
}

// A use of what was handed on is a use of all before it: together they give no more than the first.
func TestUsesOfAChain(t *testing.T) {
	for _, restart := range []func(*store, testing.TB){func(*store, testing.TB) {}, (*store).crash, (*store).reopen} {
		s := open(t)
		outer := s.issue(t, uses(5))
		left := s.mustHandOn(t, outer, func(c *capability.Terms) { c.Constraints.MaxUses = 4 })
		right := s.mustHandOn(t, outer, func(c *capability.Terms) { c.Constraints.MaxUses = 5 })
		answered := map[string]int{}
		for n := range 12 {
			for _, c := range []*capability.Capability{left, right} {
				if s.decide(t, requested(s.callBy(child, "files:read_file", "", claim(c.ID, true)), fmt.Sprint(n))) {
					answered[c.ID]++
				}
			}
			restart(s, t)
		}
		if answered[left.ID]+answered[right.ID] != 5 || answered[left.ID] != 3 {
			t.Errorf("%v", answered)
		}
		s.sweep(t)
		if got, err := s.Get(t.Context(), outer.ID); err != nil || got.State != capability.Exhausted || got.Used != 5 {
			t.Errorf("the first: %+v, %v", got, err)
		}
	}
}

// Who has the identity of a holder without its key hands nothing on.
func TestAKeyHandsOnWithAProof(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	outer := s.issue(t, bound(t, k, "files:write"))
	asked := capability.Terms{Holder: child, Tools: []string{"files:write"}, Duration: lasting(time.Minute), Parent: outer.ID}
	digest := prooftest.Digest("the request")
	hand := func(p *authzen.CapabilityProof, digest string) error {
		_, _, err := s.HandOn(gateway, asked, capability.Handover{By: agent, Proof: p, Digest: digest})
		return err
	}
	proof := func(method, text string) *authzen.CapabilityProof {
		return k.Proof(prooftest.Call{Arguments: text, Capability: outer.ID, Method: method, Timestamp: s.time().Format(time.RFC3339)})
	}
	for name, err := range map[string]error{
		"none":            hand(nil, digest),
		"of a call":       hand(proof("tools/call", "the request"), digest),
		"another request": hand(proof("capabilities/request", "another"), digest),
	} {
		if err == nil {
			t.Errorf("%s is a proof", name)
		}
	}
	right := proof("capabilities/request", "the request")
	if err := hand(right, digest); err != nil {
		t.Error(err)
	}
	if err := hand(right, digest); err == nil {
		t.Error("the proof is good twice")
	}
}

// FuzzAttenuate holds that no capability covers what its parent does not.
func FuzzAttenuate(f *testing.F) {
	f.Add("files:*", "files:read", "files:read", `{"a":1}`, `{"a":1,"b":2}`, `{"a":1,"b":2}`, uint8(3), uint8(2), uint16(60), uint16(30))
	f.Add("files:read", "files:*", "files:write", `{}`, `{}`, `{}`, uint8(0), uint8(0), uint16(60), uint16(90))
	f.Add("*", "mail:*", "mail:a:b", `{"a":1.0}`, `{"a":1}`, `{"a":10e-1}`, uint8(1), uint8(0), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, outerTool, innerTool, tool, outerArguments, innerArguments, arguments string, outerUses, innerUses uint8, outerTime, innerTime uint16) {
		limits := func(text string, uses uint8) (c capability.Constraints) {
			object, err := jsonobject.Parse(jsontext.Value(text))
			if err != nil {
				t.Skip()
			}
			c.Arguments, c.MaxUses = object, int(uses)
			return c
		}
		s := open(t)
		outer, err := s.Issue(t.Context(), capability.Caller{Tenant: gateway.Tenant, AnyTool: true}, "", capability.Terms{
			Holder: agent, Tools: []string{outerTool}, Duration: lasting(time.Duration(outerTime) * time.Second), Constraints: limits(outerArguments, outerUses),
		}, capability.Grant{})
		if err != nil {
			t.Skip()
		}
		inner, err := s.handOn(t, outer, func(c *capability.Terms) {
			c.Tools, c.Duration, c.Constraints = []string{innerTool}, lasting(time.Duration(innerTime)*time.Second), limits(innerArguments, innerUses)
		})
		if err != nil {
			t.Skip()
		}
		for range 3 {
			of := s.find(t, s.callBy(child, tool, arguments, claim(inner.ID, true)))
			from := s.find(t, s.callBy(agent, tool, arguments, claim(outer.ID, true)))
			if of.Capability != nil && from.Capability == nil {
				t.Fatalf("%+v covers what %+v does not: %s", inner, outer, from.Denied)
			}
			if of.Capability == nil {
				return
			}
			if outer.Constraints.MaxUses > 0 && of.Capability.UsesLeft > from.Capability.UsesLeft || of.Capability.Until.After(from.Capability.Until) {
				t.Fatalf("%+v is larger than %+v", of.Capability, from.Capability)
			}
			s.pass(time.Duration(outerTime/2) * time.Second)
		}
	})
}
