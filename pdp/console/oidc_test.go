package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
)

// The scopes of a person of a group of every tenant are those of such groups: the scopes of their other groups
// are not for every tenant.
func TestScopesOfEveryTenant(t *testing.T) {
	settings := byTenant()
	settings.Scopes["staff"], settings.Scopes["owners"] = []callers.Scope{callers.ScopeApprove}, []callers.Scope{callers.ScopeAdmin}
	settings.AllTenantsGroups = []string{"sre", "owners"}
	for groups, want := range map[string]string{
		"staff": "[acme] [approve]", "sre": "[] [audit]", "sre staff": "[] [audit]", "staff sre": "[] [audit]", "staff owners sre": "[] [admin audit]",
	} {
		claims := callers.Claims{"sub": "u1", "email": "erin@example.com", "email_verified": true, "org": "acme", "groups": []any{}}
		for _, group := range strings.Fields(groups) {
			claims["groups"] = append(claims["groups"].([]any), group)
		}
		who, err := console.Person(settings, claims)
		if got := fmt.Sprint(who.Tenants, " ", who.Scopes); err != nil || got != want {
			t.Errorf("%s: %s, want %s (%v)", groups, got, want, err)
		}
	}
}

// byTenant are settings by which people see the tenants of a claim, and one group sees every tenant.
func byTenant() *console.OIDC {
	return &console.OIDC{
		Issuer: "https://idp.example.com", ClientID: "console", TenantClaim: "org",
		Scopes:           map[string][]callers.Scope{"sre": {callers.ScopeAudit}, "staff": {callers.ScopeAudit}},
		AllTenantsGroups: []string{"sre"},
	}
}

// A person sees every tenant by a group that the settings name, exactly as they name it, and by nothing
// else: no value of the tenant claim, no missing claim and no name that is nearly the group's.
func TestAllTenantsComeFromAGroup(t *testing.T) {
	const everything, nobody = "every tenant", "nobody"
	texts := func(of ...any) []any { return of }
	for name, c := range map[string]struct {
		groups, org any    // nil is no claim
		want        string // a list of tenants, everything or nobody
	}{
		"the group":                          {groups: texts("sre"), org: "acme", want: everything},
		"the group as a text":                {groups: "sre", org: "acme", want: everything},
		"the group among others":             {groups: texts("staff", "sre"), org: "acme", want: everything},
		"the group without a tenant":         {groups: texts("sre"), want: everything},
		"another group":                      {groups: texts("staff"), org: "acme", want: "[acme]"},
		"another group, two tenants":         {groups: texts("staff"), org: texts("acme", "globex"), want: "[acme globex]"},
		"another group without a tenant":     {groups: texts("staff"), want: nobody},
		"another group, no tenant":           {groups: texts("staff"), org: "", want: nobody},
		"another group, an empty list":       {groups: texts("staff"), org: texts(), want: nobody},
		"a star as the tenant":               {groups: texts("staff"), org: "*", want: nobody},
		"all as the tenant":                  {groups: texts("staff"), org: "all", want: "[all]"},
		"the group as the tenant":            {groups: texts("staff"), org: "sre", want: "[sre]"},
		"the group in another letter case":   {groups: texts("SRE", "staff"), org: "acme", want: "[acme]"},
		"the group with a blank":             {groups: texts("sre ", "staff"), org: "acme", want: "[acme]"},
		"the group with an unseen character": {groups: texts("sre\u200b", "staff"), org: "acme", want: "[acme]"},
		"the group in look-alikes":           {groups: texts("ѕre", "staff"), org: "acme", want: "[acme]"},
		"the beginning of the group":         {groups: texts("sr", "staff"), org: "acme", want: "[acme]"},
		"more than the group":                {groups: texts("sre-readers", "staff"), org: "acme", want: "[acme]"},
		"the group in a path":                {groups: texts("/sre", "staff"), org: "acme", want: "[acme]"},
		"a text with several groups":         {groups: "staff,sre", org: "acme", want: nobody},
		"the group in a list of lists":       {groups: texts(texts("sre")), org: "acme", want: nobody},
		"the group beside a number":          {groups: texts("sre", 1.0), org: "acme", want: nobody},
		"the group as a name":                {groups: map[string]any{"sre": true}, org: "acme", want: nobody},
		"true":                               {groups: true, org: "acme", want: nobody},
		"no group":                           {groups: texts(), org: "acme", want: nobody},
		"an empty group":                     {groups: "", org: "acme", want: nobody},
		"no claim of groups":                 {org: "acme", want: nobody},
		"nothing":                            {want: nobody},
	} {
		claims := callers.Claims{"sub": "u1", "email": "erin@example.com", "email_verified": true}
		for claim, value := range map[string]any{"groups": c.groups, "org": c.org} {
			if value != nil {
				claims[claim] = value
			}
		}
		got := nobody
		if who, err := console.Person(byTenant(), claims); err == nil {
			if got = fmt.Sprint(who.Tenants); who.Tenants == nil {
				got = everything
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Groups of every tenant that somebody misspelled, or that would change nothing, are faults.
func TestGroupsOfAllTenantsAreChecked(t *testing.T) {
	if err := byTenant().Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*console.OIDC){
		`did you mean "sre"?`:        func(o *console.OIDC) { o.AllTenantsGroups = []string{"srre"} },
		`"SRE" is none`:              func(o *console.OIDC) { o.AllTenantsGroups = []string{"SRE"} },
		`"" is none`:                 func(o *console.OIDC) { o.AllTenantsGroups = []string{"sre", ""} },
		`"*" is none`:                func(o *console.OIDC) { o.AllTenantsGroups = []string{"*"} },
		"is empty":                   func(o *console.OIDC) { o.AllTenantsGroups = []string{} },
		"goes together with tenant_": func(o *console.OIDC) { o.TenantClaim = "" },
	} {
		o := byTenant()
		change(o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "all_tenants_groups") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
