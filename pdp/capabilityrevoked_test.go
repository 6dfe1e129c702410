package pdp_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A revocationList is the payload of a signed list.
type revocationList struct {
	jwt.Claims
	Revoked []struct {
		ID string `json:"id"`
		At int64  `json:"at"`
	} `json:"revoked"`
}

// revoked returns the list of revoked capabilities of a caller's tenant, verified with the keys of the
// service, and as it was sent.
func (s *service) revoked(t testing.TB, key string) (list revocationList, sent string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.main+authzen.PathRevoked, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/jwt" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%v %d %v %s", err, response.StatusCode, response.Header, body)
	}
	signed, err := jwt.ParseSigned(string(body), []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	if typ := signed.Headers[0].ExtraHeaders["typ"]; typ != "capability-revocations+jwt" {
		t.Errorf("typ %v", typ)
	}
	if err := signed.Claims(s.keys(t).Keys[0].Key, &list); err != nil {
		t.Fatal(err)
	}
	return list, string(body)
}

// Servers that verify tokens themselves read who is revoked, of their tenant alone. What was handed on is
// in the list with its parent.
func TestRevokedCapabilitiesAreListed(t *testing.T) {
	c := handOnStore()
	c.State = t.TempDir()
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	if list, _ := s.revoked(t, u.key); list.Revoked == nil || len(list.Revoked) > 0 {
		t.Errorf("at first: %+v", list)
	}
	outer, other := u.issue(`"reason":"one"`), u.issue(`"reason":"two"`)
	status, inner := u.ask(`{"subject":{"type":"agent","id":"a"},"holder":{"type":"sub","id":"s"},"parent":"` + outer.ID + `","tools":["files:write"],"duration":60}`)
	if status != 201 {
		t.Fatalf("%d %+v", status, inner)
	}
	if got := askAs(t, "k-olga", "POST", u.admin+pdp.PathCapabilities+"/"+outer.ID+"/revoke", `{}`, nil); got != 200 {
		t.Fatal(got)
	}
	want := []string{outer.ID, inner.Capability.ID}
	slices.Sort(want)
	for range 2 {
		list, sent := s.revoked(t, u.key)
		var got []string
		for _, one := range list.Revoked {
			got = append(got, one.ID)
			if at := time.Unix(one.At, 0); time.Since(at) > time.Minute || time.Until(at) > 0 {
				t.Errorf("%s was revoked at %s", one.ID, at)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v and not %s", got, want, other.ID)
		}
		if lasts := list.Expiry.Time().Sub(list.IssuedAt.Time()); lasts != 5*time.Minute || list.Issuer != s.main || !list.Audience.Contains(s.main+"/tenants/acme") {
			t.Errorf("%+v lasts %s", list, lasts)
		}
		if d := u.call("a", "files:write", "the list", `{"token":"`+sent+`","use":true}`); d.Decision || d.Context.CapabilityDenied != "unknown" {
			t.Errorf("the list is a capability: %+v", d.Context)
		}
		s.stop(t)
		s = start(t, c)
		u.service = s
	}
	list, _ := s.revoked(t, "k-gateway-globex")
	if len(list.Revoked) > 0 || !list.Audience.Contains(s.main+"/tenants/globex") {
		t.Errorf("another tenant reads %+v", list)
	}
	for path, want := range map[string]int{
		authzen.PathRevoked + "?since=1":        http.StatusBadRequest,
		"/tenants/globex" + authzen.PathRevoked: http.StatusForbidden,
	} {
		if got := askAs(t, u.key, "GET", s.main+path, "", nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := askAs(t, "k-olga", "GET", s.main+authzen.PathRevoked, "", nil); got != http.StatusForbidden {
		t.Errorf("without the scope: %d", got)
	}
}
