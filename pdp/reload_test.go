package pdp_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A reload of valid settings changes the callers. Invalid settings change nothing.
func TestReloadChangesCallers(t *testing.T) {
	for way, reload := range map[string]func(*testing.T, *service, chan<- os.Signal){
		"SIGHUP": func(_ *testing.T, _ *service, signals chan<- os.Signal) {
			for range 2 { // when the second is received, the first has been processed
				signals <- syscall.SIGHUP
			}
		},
		"POST": func(t *testing.T, s *service, _ chan<- os.Signal) {
			ask(t, http.DefaultClient, "POST", s.admin+pdp.PathReload, "Bearer k-operator", "")
		},
	} {
		t.Run(way, func(t *testing.T) { testCallersAreReadAgain(t, reload) })
	}
}

func testCallersAreReadAgain(t *testing.T, reload func(*testing.T, *service, chan<- os.Signal)) {
	provider := jwkstest.New(t)
	operator := pdp.APIKey{ID: "operator", SHA256: digest("k-operator"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin}}}
	key := func(id string) pdp.APIKey { return pdp.APIKey{ID: id, SHA256: digest("k-" + id)} }
	issuer := pdp.Issuer{Issuer: "https://idp.example.com", Audience: "pdp", JWKSURL: provider.URL}
	first := pdp.Settings{Auth: pdp.Auth{APIKeys: []pdp.APIKey{operator, key("old")}, JWT: []pdp.Issuer{issuer}}}
	var program output
	var now *pdp.Settings
	var fault error
	signals := make(chan os.Signal)
	s := start(t, pdp.Config{
		Auth: first.Auth, Reload: signals, Log: slog.New(slog.NewTextHandler(&program, nil)),
		Settings: func() (*pdp.Settings, error) { return now, fault },
	})
	for _, test := range []struct {
		name     string
		now      pdp.Settings
		fault    error
		old, new int
		said     string
	}{
		{"the same", first, nil, 200, 401, "settings read again"},
		{"a file with a fault", first, errors.New("a fault"), 200, 401, `error="a fault"`},
		{"a key that is none", pdp.Settings{Auth: pdp.Auth{APIKeys: []pdp.APIKey{{ID: "new", SHA256: "k-new"}}}}, nil, 200, 401, "auth.api_keys.0.sha256: must be 64 hexadecimal digits"},
		{"nobody has to say who asks", pdp.Settings{}, nil, 200, 401, "needs a restart"},
		{"certificates of callers", pdp.Settings{Auth: pdp.Auth{MTLS: &pdp.MTLS{CA: "ca.pem"}}}, nil, 200, 401, "needs a restart"},
		{"a second key", pdp.Settings{Auth: pdp.Auth{APIKeys: []pdp.APIKey{operator, key("old"), key("new")}}}, nil, 200, 200, "api_keys=3"},
		{"the first is taken away", pdp.Settings{Auth: pdp.Auth{APIKeys: []pdp.APIKey{operator, key("new")}}, Restart: []string{"listen"}}, nil, 401, 200, "keys=[listen]"},
	} {
		now, fault = &test.now, test.fault
		reload(t, s, signals)
		for id, want := range map[string]int{"old": test.old, "new": test.new} {
			if got := ask(t, http.DefaultClient, "POST", s.main+authzen.PathEvaluation, "Bearer k-"+id, aliceReads).StatusCode; got != want {
				t.Errorf("%s: %s: %d, want %d", test.name, id, got, want)
			}
		}
		if !strings.Contains(program.String(), test.said) {
			t.Errorf("%s: the service's own log does not say %q:\n%s", test.name, test.said, program.String())
		}
	}
}

// A reload changes the issuers of client certificates for new connections.
func TestReloadChangesAuthorities(t *testing.T) {
	cert, key := writeCertificate(t)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(cert, err)
	}
	old, next := newAuthority(t), newAuthority(t)
	var now atomic.Pointer[pdp.Settings]
	now.Store(&pdp.Settings{Auth: pdp.Auth{MTLS: &pdp.MTLS{CA: old.file}}})
	signals := make(chan os.Signal)
	s := start(t, pdp.Config{TLSCert: cert, TLSKey: key, Auth: now.Load().Auth, Reload: signals, Settings: func() (*pdp.Settings, error) { return now.Load(), nil }})
	status := func(by *authority) int {
		issued := by.issue(t, "spiffe://example.com/gateway")
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &issued, nil }}}
		defer transport.CloseIdleConnections()
		response, _, err := send(t.Context(), &http.Client{Transport: transport}, "POST", s.main+authzen.PathEvaluation, aliceReads)
		if err != nil {
			return 0
		}
		return response.StatusCode
	}
	if status(old) != 200 || status(next) != 0 {
		t.Fatal("the first authority is not the one")
	}
	renewed, err := os.ReadFile(next.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old.file, renewed, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		signals <- syscall.SIGHUP
	}
	if status(old) != 0 || status(next) != 200 {
		t.Error("the second authority is not the one")
	}
	now.Store(&pdp.Settings{Auth: pdp.Auth{MTLS: &pdp.MTLS{CA: newAuthority(t).file}, APIKeys: []pdp.APIKey{{ID: "none"}}}})
	for range 2 {
		signals <- syscall.SIGHUP
	}
	if status(next) != 200 {
		t.Error("settings with a fault have changed the authority")
	}
}

// Start and reload log tenants of credentials that the policy store lacks, with a suggestion.
func TestUnknownTenantsOfCredentialsAreLogged(t *testing.T) {
	auth := func(tenant string) pdp.Auth {
		return pdp.Auth{APIKeys: []pdp.APIKey{
			{ID: "operator", SHA256: digest("k-operator"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin}}},
			{ID: "a", SHA256: digest("k"), Grant: pdp.Grant{Tenants: []string{"acme", tenant}}},
		}}
	}
	var program output
	now := &pdp.Settings{Auth: auth("beat")}
	s := start(t, pdp.Config{
		Policies: twoTenants(), Auth: auth("acne"), Log: slog.New(slog.NewTextHandler(&program, nil)),
		Settings: func() (*pdp.Settings, error) { return now, nil },
	})
	const warning = `level=WARN msg="a credential is for a tenant that the policy store lacks" setting=auth.api_keys.1.tenants.1 tenant=`
	for _, name := range [][2]string{{"acne", "acme"}, {"beat", "beta"}} {
		tenant, meant := name[0], name[1]
		if tenant == "beat" {
			ask(t, http.DefaultClient, "POST", s.admin+pdp.PathReload, "Bearer k-operator", "")
		}
		if want := warning + tenant + ` hint="did you mean \"` + meant + `\"?"`; strings.Count(program.String(), want) != 1 {
			t.Errorf("no %s:\n%s", want, program.String())
		}
	}
	if strings.Contains(program.String(), "tenant=acme") {
		t.Errorf("a tenant that there is:\n%s", program.String())
	}
}

// A revision without a tenant that a credential names, or with a policy that never applies, is logged
// once when it comes into force.
func TestRevisionsAreLoggedWithWarnings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const never = `@id("never") permit (principal, action, resource) when { false };`
	write("tenants/acme/all.cedar", `@id("all") permit (principal, action, resource is doc);`)
	write("tenants/beta/all.cedar", `@id("all") permit (principal, action, resource is doc);`)
	var program output
	s := start(t, pdp.Config{PolicyDir: dir, Log: slog.New(slog.NewTextHandler(&program, nil)), Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "operator", SHA256: digest("k-operator"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin}}},
		{ID: "b", SHA256: digest("k"), Grant: pdp.Grant{Tenants: []string{"beta"}}},
	}}})
	if text := program.String(); strings.Contains(text, "level=WARN") {
		t.Errorf("warnings at start:\n%s", text)
	}
	write("tenants/acme/never.cedar", never)
	if err := os.RemoveAll(filepath.Join(dir, "tenants/beta")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ask(t, http.DefaultClient, "POST", s.admin+pdp.PathReload, "Bearer k-operator", "")
	}
	for _, want := range []string{
		`level=WARN msg="a credential is for a tenant that the policy store lacks" setting=auth.api_keys.1.tenants.0 tenant=beta`,
		`level=WARN msg="policies: tenants/acme/never.cedar:1`,
	} {
		if n := strings.Count(program.String(), want); n != 1 {
			t.Errorf("%d times %s:\n%s", n, want, program.String())
		}
	}
}
