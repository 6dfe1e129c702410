package capability_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/capability"
)

// A revocation is listed for its tenant as long as a token may be valid, also over restarts, and then no
// longer.
func TestRevocationsAreListedUntilTheEnd(t *testing.T) {
	s := openWith(t, unsigned)
	days := func(n int) capability.Terms {
		return terms(func(t *capability.Terms) { t.Duration = lasting(time.Duration(n) * 24 * time.Hour) }, "files:write")
	}
	short, long, active := s.issue(t, days(30)), s.issue(t, days(366)), s.issue(t, days(366))
	below := s.mustHandOn(t, short, func(c *capability.Terms) { c.Duration = lasting(20 * 24 * time.Hour) })
	for _, c := range []*capability.Capability{short, long} {
		if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		day  int
		want map[string]bool
	}{
		{0, map[string]bool{short.ID: true, long.ID: true, below.ID: true}},
		{2, map[string]bool{short.ID: true, long.ID: true, below.ID: true}},
		{20, map[string]bool{short.ID: true, long.ID: true}},
		{30, map[string]bool{long.ID: true}},
		{89, map[string]bool{long.ID: true}},
		{90, map[string]bool{}}, // no token is valid for longer
	} {
		s.pass(morning.Add(time.Duration(step.day) * 24 * time.Hour).Sub(s.time()))
		s.sweep(t)
		s.reopen(t)
		for tenant, want := range map[string]map[string]bool{gateway.Tenant: step.want, "globex": {}, "": {}} {
			if diff := cmp.Diff(want, s.listedAsRevoked(t, tenant)); diff != "" {
				t.Errorf("%q on day %d (-want +got):\n%s", tenant, step.day, diff)
			}
		}
	}
	if _, err := s.Get(t.Context(), active.ID); err != nil {
		t.Error(err)
	}
}

// What a refresh ends is revoked for servers that know its token.
func TestRefreshedCapabilitiesAreListed(t *testing.T) {
	s := openWith(t, unsigned)
	old := s.issue(t, terms(nil, "files:write"))
	if _, err := s.refresh(t, old, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{old.ID: true}, s.listedAsRevoked(t, gateway.Tenant)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// unsigned has the service write claims as they are, in place of tokens.
func unsigned(c *capability.Config) {
	c.BaseURL = func(tenant string) string { return "https://pdp/" + tenant }
	c.SignToken = func(_ string, claims any) (string, error) {
		text, err := json.Marshal(claims)
		return string(text), err
	}
}

// listedAsRevoked returns the ids in the list of a tenant.
func (s *store) listedAsRevoked(t testing.TB, tenant string) map[string]bool {
	t.Helper()
	text, err := s.Revocations(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Audience string `json:"aud"`
		Revoked  []struct {
			ID string `json:"id"`
		} `json:"revoked"`
	}
	if err := json.Unmarshal([]byte(text), &claims); err != nil || claims.Audience != "https://pdp/"+tenant {
		t.Fatalf("%s: %v", text, err)
	}
	ids := map[string]bool{}
	for _, one := range claims.Revoked {
		ids[one.ID] = true
	}
	return ids
}
