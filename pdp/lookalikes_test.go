package pdp_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp"
)

// similar starts a service with two tenants, of which acme has approved a call of alice and has the user roberta.
func similar(t *testing.T) (acme, globex *staff, b *browser) {
	t.Helper()
	store := fstest.MapFS{"tenants/acme/entities.json": {Data: []byte(`[{"uid":{"type":"user","id":"roberta"},"attrs":{},"parents":[]},{"uid":{"type":"bot","id":"charlotte"},"attrs":{},"parents":[]}]`)}}
	for _, tenant := range []string{"acme", "globex"} {
		store["tenants/"+tenant+"/policies.cedar"] = anybodyApproves["policies.cedar"]
		store["tenants/"+tenant+"/config.yaml"] = anybodyApproves["config.yaml"]
	}
	s, b := startConsole(t, pdp.Config{Policies: store})
	b = b.signInAs(s, "carol")
	of := func(tenant string) *staff {
		one := *s
		one.main += "/tenants/" + tenant
		return &staff{service: &one, t: t}
	}
	acme, globex = of("acme"), of("globex")
	page := b.open(acme.asked("", "call", "alice-7", ""))
	if status := page.decide(page.form("approve")).status; status != 200 {
		t.Fatalf("approve: %d", status)
	}
	return acme, globex, b
}

// A name that differs by one letter from one that the tenant knows has a warning with both names.
func TestLookAlikes(t *testing.T) {
	acme, globex, b := similar(t)
	for subject, known := range map[string]string{
		"alise-7": "alice-7", "alce-7": "alice-7", "aliice-7": "alice-7", "alicé-7": "alice-7", "Alice-7": "alice-7", "a1ice-7": "alice-7", // approved
		"robertа": "roberta",                                        // a stored entity; the last letter is Cyrillic
		"alice-7": "", "roberta": "", "alice-8": "", "alice-17": "", // known, or another number
		"alixe": "", "bob": "", "charlottes": "", // two letters, and another type
	} {
		task := acme.asked("", "call", subject, "")
		want := []pdp.LookAlike{{Type: "user", ID: subject, Known: known}}
		if known == "" {
			want = nil
		}
		if diff := cmp.Diff(want, acme.read(task).LookAlikes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", subject, diff)
		}
		if warns := strings.Contains(b.open(task).words(), subject+" is not "+known+". The names differ by one letter."); warns != (known != "") {
			t.Errorf("%s: the page warns: %t", subject, warns)
		}
	}
	for _, subject := range []string{"alise-7", "robertо"} {
		if got := globex.read(globex.asked("", "call", subject, "")).LookAlikes; got != nil {
			t.Errorf("globex learns names of acme: %v", got)
		}
	}
}
