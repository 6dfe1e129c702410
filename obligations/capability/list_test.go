package capability_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// listed returns all that a query selects, in pages of 7.
func (s *store) listed(t testing.TB, q capability.Query) (all []*capability.Capability) {
	t.Helper()
	for {
		n := 0
		for c, err := range s.List(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c.Capability)
			if n++; n == 7 {
				q.After = c.Token
				break
			}
		}
		if n < 7 {
			return all
		}
	}
}

func ids(all []*capability.Capability) (found []string) {
	for _, c := range all {
		found = append(found, c.ID)
	}
	return found
}

func TestList(t *testing.T) {
	n := 0
	s := openWith(t, func(c *capability.Config) {
		c.NewID = func() string { n++; return fmt.Sprintf("%03d", n) }
	})
	gateway2 := "gateway-2"
	add := func(tenant, caller, holder, tool string) string {
		c, err := s.Issue(t.Context(), capability.Caller{Tenant: tenant, ID: caller, AnyTool: true}, "", terms(func(t *capability.Terms) { t.Holder.ID = holder }, tool), capability.Grant{})
		if err != nil {
			t.Fatal(err)
		}
		s.pass(time.Second)
		return c.ID
	}
	a := add("acme", "gateway-1", "agent-a", "files:write")
	b := add("acme", gateway2, "agent-b", "mail:send")
	c := add("other", "gateway-1", "agent-a", "files:*")
	d := add("", "gateway-1", "agent-a", "*")
	if _, err := s.Revoke(t.Context(), a, admin, ""); err != nil {
		t.Fatal(err)
	}
	p := s.request(t, terms(nil, "files:write"), "task-1").ID
	for _, test := range []struct {
		name string
		q    capability.Query
		want []string
	}{
		{"all", capability.Query{}, []string{a, b, c, d, p}},
		{"a tenant", capability.Query{Tenants: []string{"acme"}}, []string{a, b, p}},
		{"no tenant", capability.Query{Tenants: []string{}}, nil},
		{"the default tenant", capability.Query{Tenants: []string{""}}, []string{d}},
		{"tenants, one twice", capability.Query{Tenants: []string{"other", "acme", "other"}}, []string{a, b, c, p}},
		{"a holder", capability.Query{Holder: &agent}, []string{a, c, d, p}},
		{"a holder of a tenant", capability.Query{Holder: &agent, Tenants: []string{"other"}}, []string{c}},
		{"a user of that name", capability.Query{Holder: &authzen.Subject{Type: "user", ID: "agent-a"}}, nil},
		{"a server", capability.Query{Server: "files"}, []string{a, c, d, p}},
		{"another server", capability.Query{Server: "mail"}, []string{b, d}},
		{"active", capability.Query{State: capability.Active}, []string{b, c, d}},
		{"revoked", capability.Query{State: capability.Revoked}, []string{a}},
		{"a caller", capability.Query{Caller: &gateway2}, []string{b}},
		{"all together", capability.Query{Holder: &agent, Tenants: []string{"acme"}, State: capability.Pending, Server: "files"}, []string{p}},
	} {
		if diff := cmp.Diff(test.want, ids(s.listed(t, test.q))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	for _, token := range []string{"?", "AAAA"} {
		for _, err := range s.List(t.Context(), capability.Query{After: token}) {
			if !errors.Is(err, capability.ErrPage) {
				t.Errorf("page %s: %v", token, err)
			}
		}
	}
}

// Pages are complete and in order, also over more than one transaction.
func TestListPages(t *testing.T) {
	s := openWith(t, func(c *capability.Config) { c.MaxActive = 300 })
	var want []string
	for i := range 130 {
		want = append(want, s.issue(t, terms(nil, "files:write")).ID)
		if i%2 == 0 {
			if _, err := s.Revoke(t.Context(), want[i], admin, ""); err != nil {
				t.Fatal(err)
			}
		}
		s.pass(time.Second)
	}
	if diff := cmp.Diff(want, ids(s.listed(t, capability.Query{}))); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if got := s.listed(t, capability.Query{State: capability.Active}); len(got) != 65 {
		t.Errorf("%d are active", len(got))
	}
}
