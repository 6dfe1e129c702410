package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func configured(t *testing.T, text string) (*config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, text)
	return readConfig(file)
}

// Every fault of a configuration is reported, at once.
func TestConfigFaults(t *testing.T) {
	_, err := configured(t, `
listen: 0.0.0.0:8090
admin_listen: ":8091"
tls_cert: cert.pem
pdp: {url: pdp.example.com, timeout: 0s}
denial: {http_status: 418}
approval: {page: "https://console.example.com/", hold: -1s}
obligations: {notification_url: mail}
identity: {local: {type: user}, mtls: {callers: [{name: a}]}}
catalog: {ttl: -1s}
servers:
  - {name: Files, url: "file:///srv"}
  - {name: a, path: mcp}
  - {name: a, path: /b}
  - {name: b, path: /b}
  - {name: c, pages: ["https://auth.example.com/"]}
`)
	if err == nil {
		t.Fatal("it is read")
	}
	for _, want := range []string{
		"listen: other hosts can reach", "hosts: there are none", "admin_listen:", "tls_cert and tls_key go together", "pdp.url: there is no URL", "pdp: timeout, pause",
		"denial.http_status: 418", "approval.page:", "gateway.yaml:7:56: approval.hold: must be a duration with a unit", "obligations.notification_url:", "identity.local: it has an id", "identity.mtls: tls_client_ca",
		"gateway.yaml:10:16: catalog.ttl: must be a duration with a unit", `the name "Files"`, `"file:///srv" is no URL`, `"mcp" is no path`, `the name "a" is taken`, "the path /b is taken", `pages: "https://auth.example.com/"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported", want)
		}
	}
	t.Log(err)
	for text, want := range map[string]string{
		"pdp: {url: http://127.0.0.1:1}\nservres: []\n": "servres",
		"pdp: {timeout: soon}\n":                        `gateway.yaml:1:16: pdp.timeout: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "soon"`,
		"pdp: {timeout: 500}\n":                         "gateway.yaml:1:16: pdp.timeout: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not 500",
		"denial: {code: low}\n":                         `gateway.yaml:1:16: denial.code: must be a whole number, not "low"`,
		"pdp: {url: http://127.0.0.1:1}\n":              "servers: there are none",
	} {
		if _, err := configured(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What --help teaches works.
func TestTaught(t *testing.T) {
	_, example, _ := strings.Cut(about, "serve it:\n\n")
	example, _, _ = strings.Cut(example, "\n\n  mcp-gateway check")
	c, err := configured(t, strings.ReplaceAll(example, "\n  ", "\n")[2:])
	if err != nil {
		t.Fatalf("%v\n%s", err, example)
	}
	if len(c.Servers) != 1 || c.Servers[0].path() != "/files/mcp" || c.Identity.Local.ID != "alice" {
		t.Errorf("%+v", c)
	}
	err = kong.Visit(newParser(t.Context()).Model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Flag:
			if n.Help == "" {
				t.Errorf("--%s is not explained", n.Name)
			}
		case *kong.Node:
			if n.Help == "" {
				t.Errorf("%s is not explained", n.FullPath())
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Error(err)
	}
}

// Requests may be addressed to this host where it alone is listened on, and
// elsewhere to what the configuration names.
func TestHosts(t *testing.T) {
	for _, test := range []struct {
		address string
		hosts   []string
		want    string
	}{
		{"127.0.0.1:8090", nil, "localhost:8090 127.0.0.1:8090 [::1]:8090"},
		{"[::1]:8090", []string{"Gateway"}, "gateway localhost:8090 127.0.0.1:8090 [::1]:8090"},
		{"10.0.0.1:8443", []string{"gateway.example.com:8443"}, "gateway.example.com:8443"},
	} {
		if got := strings.Join(hosts(test.hosts, test.address), " "); got != test.want {
			t.Errorf("%s: %s", test.address, got)
		}
	}
}
