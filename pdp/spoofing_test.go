package pdp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// acmeOnly is a service with a caller of one tenant and a caller of all.
func acmeOnly(t *testing.T) *service {
	return start(t, pdp.Config{Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "acme", SHA256: digest("k-acme"), Grant: pdp.Grant{Tenants: []string{"acme"}}},
		{ID: "any", SHA256: digest("k-any")},
	}}})
}

// A caller of one tenant has no access to another, however its name is written. Valid names are the
// control.
func TestTenantTraversal(t *testing.T) {
	s := acmeOnly(t)
	for _, test := range []struct {
		tenant     string // as in the path
		acme, anyb int    // status for the caller of acme, and for the other
	}{
		{"acme", 200, 200},
		{"other", 403, 200},
		{"acme%2f..%2fother", 403, 404},
		{"..%2fother", 403, 404},
		{"%2e%2e%2fother", 403, 404},
		{"..%5cother", 403, 404},
		{"acme%00", 403, 404},
		{"acme%20", 403, 404},
		{"acme%0a", 403, 404},
		{"ACME", 403, 404},
		{"acme%2eother", 403, 404},
		{"acme;other", 403, 404},
		{"acme,other", 403, 404},
		{"%c0%ae%c0%ae%2fother", 403, 404},
		{"%ef%bc%8e%ef%bc%8e", 403, 404},
		{"%252e%252e%252fother", 403, 404},
		{"-acme", 403, 404},
		{"*", 403, 404},
		{strings.Repeat("a", 64), 403, 404},
		{"acme/../other", 404, 404},
		{"acme//", 404, 404},
	} {
		for key, want := range map[string]int{"k-acme": test.acme, "k-any": test.anyb} {
			if got := ask(t, http.DefaultClient, "POST", s.main+"/tenants/"+test.tenant+authzen.PathEvaluation, "Bearer "+key, aliceReads).StatusCode; got != want {
				t.Errorf("%s: %s: %d, want %d", test.tenant, key, got, want)
			}
		}
	}
	for _, tenant := range []string{"other", "acme/../other", "ACME", "acme ", "acme\\u0000", "", "*"} {
		body := strings.Replace(aliceInAcme, "acme", tenant, 1)
		if got := ask(t, http.DefaultClient, "POST", s.main+authzen.PathAuthorize, "Bearer k-acme", body).StatusCode; got != 403 && got != 400 {
			t.Errorf("%q in the body: %d", tenant, got)
		}
	}
}

// Only the credential determines caller and tenant. A request without the header is the control.
func TestHeaderSpoofing(t *testing.T) {
	s := acmeOnly(t)
	for _, header := range []string{
		"X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1", "Forwarded: for=127.0.0.1;proto=https", "X-Forwarded-User: any", "Remote-User: any",
		"X-Tenant: acme", "X-Tenant-Id: other", "X-Original-Url: /tenants/acme" + authzen.PathEvaluation, "X-Rewrite-Url: /livez",
		"X-Forwarded-Uri: /livez", "X-Forwarded-Prefix: /tenants/acme", "X-Http-Method-Override: GET", "X-Forwarded-Client-Cert: URI=spiffe://example.com/any",
		"X-Ssl-Client-Verify: SUCCESS", "Proxy-Authorization: Bearer k-any", "Cookie: Authorization=Bearer k-any", "X-Api-Key: k-any", "User-Agent: kube-probe/1.30",
		"X-Request-Id: k-any", "Host: 127.0.0.1", "Te: trailers",
	} {
		name, value, _ := strings.Cut(header, ": ")
		for _, test := range []struct {
			authorization, path string
			want                int
		}{
			{"", "/tenants/acme", 401},
			{"Bearer k-acme", "/tenants/other", 403},
			{"Bearer k-acme", "/tenants/acme", 200},
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+test.path+authzen.PathEvaluation, strings.NewReader(aliceReads))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set(name, value)
			if name == "Host" {
				request.Host = value
			}
			if test.authorization != "" {
				request.Header.Set("Authorization", test.authorization)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != test.want {
				t.Errorf("%s: %s with %q: %d, want %d", header, test.path, test.authorization, response.StatusCode, test.want)
			}
		}
	}
}

// Two credentials in a request grant no more than one.
func TestTwoCredentials(t *testing.T) {
	s := acmeOnly(t)
	for _, values := range [][]string{{"Bearer k-acme", "Bearer k-any"}, {"Bearer k-acme, Bearer k-any"}, {"Bearer k-acme Bearer k-any"}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+"/tenants/other"+authzen.PathEvaluation, strings.NewReader(aliceReads))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header["Authorization"] = values
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 401 && response.StatusCode != 403 {
			t.Errorf("%q: %s", values, response.Status)
		}
	}
}

// A callback follows no redirect. The allowed address is the control.
func TestCallbackRedirects(t *testing.T) {
	reached := make(chan string, 10)
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	defer inside.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		pep := httptest.NewServer(http.RedirectHandler(inside.URL+"/latest/meta-data", status))
		call, err := pdp.NewCall([]string{pep.URL}, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), pep.URL+"/done", []byte(`{}`)); err == nil {
			t.Errorf("%d is a success", status)
		}
		pep.Close()
	}
	call, err := pdp.NewCall([]string{inside.URL}, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := call(t.Context(), inside.URL+"/done", []byte(`{}`)); err != nil {
		t.Error(err)
	}
	if got := <-reached; got != "/done" {
		t.Errorf("a redirect leads to %s", got)
	}
}
