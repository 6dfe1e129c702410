package capability_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// renewal returns the terms of a refresh of a capability by its holder.
func (s *store) renewal(old *capability.Capability, change func(*capability.Terms)) (capability.Terms, error) {
	asked := capability.Terms{Holder: old.Holder, Tools: old.Tools, Duration: old.Duration, Refreshes: old.ID}
	asked.Constraints.MaxUses = old.Constraints.MaxUses
	if change != nil {
		change(&asked)
	}
	terms, _, err := s.Refresh(gateway, asked, capability.Handover{By: old.Holder})
	return terms, err
}

func (s *store) refresh(t testing.TB, old *capability.Capability, change func(*capability.Terms)) (*capability.Capability, error) {
	t.Helper()
	terms, err := s.renewal(old, change)
	if err != nil {
		return nil, err
	}
	return s.Issue(t.Context(), gateway, "", terms, capability.Grant{})
}

// denies returns why a capability does not cover a call of a tool by its holder, or "".
func (s *store) denies(t testing.TB, c *capability.Capability, tool string) authzen.CapabilityReason {
	t.Helper()
	return s.find(t, s.callBy(c.Holder, tool, `{"target":"staging"}`, claim(c.ID, true))).Denied
}

// A refreshed capability is at most the old one, apart from its end.
func TestRefreshIsNeverLarger(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*capability.Terms)
		path   string // of the fault; "" for none
	}{
		"the same":      {nil, ""},
		"a tool less":   {func(c *capability.Terms) { c.Tools = c.Tools[:1] }, ""},
		"a tool more":   {func(c *capability.Terms) { c.Tools = []string{"files:write", "files:delete"} }, "/tools/1"},
		"a minute less": {func(c *capability.Terms) { c.Duration = lasting(59 * time.Minute) }, ""},
		"a second more": {func(c *capability.Terms) { c.Duration = lasting(time.Hour + time.Second) }, "/duration"},
		"an end": {func(c *capability.Terms) {
			c.Duration, c.Constraints.ValidUntil = lasting(0), morning.Add(90*time.Minute)
		}, ""},
		"too late an end": {func(c *capability.Terms) {
			c.Duration, c.Constraints.ValidUntil = lasting(0), morning.Add(91*time.Minute)
		}, "/duration"},
		"a use less":         {func(c *capability.Terms) { c.Constraints.MaxUses = 2 }, ""},
		"a use more":         {func(c *capability.Terms) { c.Constraints.MaxUses = 4 }, "/constraints/maxUses"},
		"any number of uses": {func(c *capability.Terms) { c.Constraints.MaxUses = 0 }, "/constraints/maxUses"},
		"another value": {func(c *capability.Terms) {
			c.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(`"production"`)}
		}, "/constraints/arguments"},
		"another schema":  {func(c *capability.Terms) { c.Constraints.ArgumentsSchema = jsontext.Value(`true`) }, "/constraints/arguments_schema"},
		"no session":      {func(c *capability.Terms) { c.Session = "" }, "/session"},
		"another session": {func(c *capability.Terms) { c.Session = "other" }, "/session"},
		"another's":       {func(c *capability.Terms) { c.Refreshes = "cap_OTHER" }, "/refreshes"},
	} {
		s := open(t)
		old := s.issue(t, terms(func(t *capability.Terms) {
			t.Constraints.MaxUses, t.Session = 3, "s"
			t.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(`"staging"`)}
			t.Constraints.ArgumentsSchema = jsontext.Value(`{"type":"object"}`)
		}, "files:write", "mail:*"))
		s.pass(30 * time.Minute)
		made, err := s.refresh(t, old, func(c *capability.Terms) {
			c.Session = "s"
			if test.change != nil {
				test.change(c)
			}
		})
		var invalid *authzen.ValidationError
		switch {
		case test.path == "" && err != nil, test.path != "" && (!errors.As(err, &invalid) || invalid.Path != test.path):
			t.Errorf("%s: %v, want %q", name, err, test.path)
		case err == nil && (made.Refreshes != old.ID || made.Depth != 0 || string(made.Constraints.Arguments["target"]) != `"staging"` || made.Constraints.ArgumentsSchema == nil):
			t.Errorf("%s: %+v", name, made)
		}
	}
}

// The old capability ends with the issue of the new one, in one transaction, and is refreshed once.
func TestRefreshEndsTheOldOne(t *testing.T) {
	s := open(t)
	old := s.issue(t, terms(nil, "files:write"))
	below := s.mustHandOn(t, old, func(c *capability.Terms) { c.Duration = lasting(time.Hour) })
	s.pass(30 * time.Minute)
	again, err := s.renewal(old, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.refresh(t, old, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := [...]authzen.CapabilityReason{s.denies(t, old, "files:write"), s.denies(t, made, "files:write")}
		if want := [...]authzen.CapabilityReason{"revoked", ""}; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		s.reopen(t)
	}
	if got := s.find(t, s.callBy(child, "files:write", "", claim(below.ID, true))).Denied; got != "revoked" {
		t.Errorf("what was handed on from the old one: %q", got)
	}
	if !made.Constraints.ValidUntil.Equal(morning.Add(90 * time.Minute)) {
		t.Errorf("it ends at %s", made.Constraints.ValidUntil)
	}
	if ended, err := s.Get(t.Context(), old.ID); err != nil || ended.State != capability.Revoked || !strings.Contains(ended.EndReason, made.ID) {
		t.Errorf("%+v, %v", ended, err)
	}
	if _, err := s.Issue(t.Context(), gateway, "", again, capability.Grant{}); !errors.Is(err, capability.ErrRefreshed) {
		t.Errorf("a second refresh that was under way: %v", err)
	}
	if _, err := s.refresh(t, old, nil); err == nil {
		t.Error("it is refreshed twice")
	}
	if got := s.events(t); !strings.HasSuffix(got, "issue/active revoke/revoked") {
		t.Errorf("the log has %s", got)
	}
}

// A pending refresh leaves the old capability as it is. Its issue cannot undo a revocation.
func TestRefreshThatPeopleDecide(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(s *store, old string) error
		err       error // of the issue
	}{
		"nothing": {func(*store, string) error { return nil }, nil},
		"its end": {func(s *store, _ string) error { s.pass(5 * time.Minute); return s.Sweep(t.Context()) }, nil},
		"its revocation": {func(s *store, old string) error {
			_, err := s.Revoke(t.Context(), old, admin, "")
			return err
		}, capability.ErrRefreshed},
	} {
		s := open(t)
		old := s.issue(t, terms(nil, "files:write"))
		s.pass(58 * time.Minute)
		asked, err := s.renewal(old, nil)
		if err != nil {
			t.Fatal(err)
		}
		made := s.request(t, asked, "arq_1")
		if got := s.denies(t, old, "files:write"); got != "" {
			t.Errorf("%s: the old one is %s before the issue", name, got)
		}
		if err := test.meanwhile(s, old.ID); err != nil {
			t.Fatal(err)
		}
		s.reopen(t)
		if _, err := s.Activate(t.Context(), made.ID, capability.Actor{}, capability.Grant{}); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
		if got := s.denies(t, made, "files:write"); (got == "") != (test.err == nil) {
			t.Errorf("%s: the new one: %q", name, got)
		}
		if s.denies(t, old, "files:write") == "" {
			t.Errorf("%s: the old one is active", name)
		}
	}
}

// Only the holder refreshes, before the end. One that was handed on stays below its parent.
func TestWhoRefreshes(t *testing.T) {
	s := open(t)
	old := s.issue(t, uses(1))
	by := func(who authzen.Subject, tenant string) error {
		_, _, err := s.Refresh(capability.Caller{Tenant: tenant}, capability.Terms{Holder: who, Tools: old.Tools, Duration: lasting(time.Minute), Refreshes: old.ID, Constraints: old.Constraints}, capability.Handover{By: who})
		return err
	}
	if by(child, gateway.Tenant) == nil || by(agent, "globex") == nil {
		t.Error("another refreshes it")
	}
	if !s.decide(t, s.call("files:read_file", "", claim(old.ID, true))) {
		t.Fatal("the use is denied")
	}
	if _, err := s.refresh(t, old, nil); err == nil {
		t.Error("an exhausted one is refreshed")
	}
	outer := s.issue(t, terms(nil, "files:write"))
	inner := s.mustHandOn(t, outer, nil)
	renewed, err := s.refresh(t, inner, nil)
	if err != nil || renewed.Parent != outer.ID || renewed.Depth != 1 {
		t.Fatalf("%+v, %v", renewed, err)
	}
	s.pass(55 * time.Minute)
	renewed.Duration = lasting(10 * time.Minute)
	if _, err := s.refresh(t, renewed, nil); err == nil {
		t.Error("it outlives its parent")
	}
	s.pass(5 * time.Minute)
	if _, err := s.refresh(t, outer, nil); err == nil {
		t.Error("an expired one is refreshed")
	}
}

// Who has the identity of a holder without its key refreshes nothing, and nobody gets rid of the key.
func TestAKeyRefreshesWithAProof(t *testing.T) {
	s, k, other := open(t), prooftest.Ed25519(), prooftest.Ed25519()
	old := s.issue(t, bound(t, k, "files:write"))
	digest := prooftest.Digest("the request")
	refresh := func(k prooftest.Key, key *capability.Key) (capability.Terms, error) {
		proof := k.Proof(prooftest.Call{Arguments: "the request", Capability: old.ID, Method: "capabilities/request", Timestamp: s.time().Format(time.RFC3339)})
		terms, _, err := s.Refresh(gateway, capability.Terms{Holder: agent, Tools: []string{"files:write"}, Duration: lasting(time.Minute), Refreshes: old.ID, Key: key}, capability.Handover{By: agent, Proof: proof, Digest: digest})
		return terms, err
	}
	if _, err := s.renewal(old, nil); err == nil {
		t.Error("it is refreshed without a proof")
	}
	if _, err := refresh(other, nil); err == nil {
		t.Error("another key proves it")
	}
	if _, err := refresh(k, bound(t, other, "files:write").Key); err == nil {
		t.Error("another key takes the place of its key")
	}
	if terms, err := refresh(k, nil); err != nil || terms.Key == nil || terms.Key.JKT != old.Key.JKT {
		t.Errorf("%+v, %v", terms.Key, err)
	}
}
