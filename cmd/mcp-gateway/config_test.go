package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
)

func configured(t *testing.T, text string) (*gateway.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, text)
	return readConfig(file, "", true)
}

// Every fault of a configuration is reported, at once, with its place, its key,
// its value and what it should be; one of a key that nobody knows hides no other.
func TestConfigFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, `
listen: 0.0.0.0:8090
admin_listen: ":8091"
tls_cert: cert.pem
pdp: {url: pdp.example.com, timeout: 0s, failures: 0}
denial: {http_status: 418, codes: coax}
approval: {page: "https://console.example.com/", hold: -1s, hodl: 3s}
obligations: {notification_url: mail}
identity: {local: {type: user}, mtls: {callers: [{name: a}]}}
catalog: {ttl: -1s, arguments: yes!}
servers:
  - {name: Files, url: "file:///srv"}
  - {name: a, path: mcp}
  - {name: a, path: /b}
  - {name: b, path: /b}
  - {name: c, pages: ["https://auth.example.com/"]}
  - {name: d, mapping_trust: full, mapping_profile: coax, arguments: ask, annotations: true, extra_methods: [ping], tools: {t: {mapping: "{}"}}}
  - {name: e, mode: off}
mode: watch
access: {requests_per_minute: 0}
`)
	_, err := readConfig(file, "", true)
	if err == nil {
		t.Fatal("it is read")
	}
	want := `2:1: listen: other hosts can reach 0.0.0.0:8090: it needs tls_cert and tls_key, and no identity.local, or insecure: true
2:1: hosts: is required beside listen: the names by which other hosts address the gateway, such as [gateway.example.com:8090]
3:1: admin_listen: must be HOST:PORT that only this host can reach, such as 127.0.0.1:8091, not ":8091"
4:1: tls_key: is required beside tls_cert: the file of its key
5:7: pdp.url: must be the URL of a policy decision point, such as http://127.0.0.1:8080, not "pdp.example.com"
5:29: pdp.timeout: must be more than 0, not 0s
5:42: pdp.failures: must be a whole number from 1, not 0
6:10: denial.http_status: must be 200 or 403, not 418
6:28: denial.codes: must be application, coaz or mcpx, not "coax"
7:12: approval.page: must be a URL with {task} in it, not "https://console.example.com/"
7:56: approval.hold: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "-1s"
7:61: unknown field "hodl" (did you mean "hold"?)
8:15: obligations.notification_url: must be a URL, not "mail"
9:12: identity.local.id: is required: it must be the id of who calls from this host
9:33: tls_client_ca: is required beside identity.mtls: the file of the authorities of clients' certificates
10:16: catalog.ttl: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "-1s"
10:21: catalog.arguments: must be tell, enforce or pass, not "yes!"
12:6: servers.0.name: must be a name of a-z, 0-9, _ and -, which begins with a letter or a digit and has 63 characters at most, not "Files"
12:19: servers.0.url: must be the URL of a server, such as http://127.0.0.1:3001/mcp, not "file:///srv"
13:15: servers.1.path: must be a path, such as /files/mcp, not "mcp"
14:6: servers.2.name: must be another: servers.1 is called "a", too
15:15: servers.3.path: must be another: servers.2 has /b, too
16:23: servers.4.pages.0: must be an origin, such as https://auth.example.com, not "https://auth.example.com/"
17:15: servers.5.mapping_trust: must be declared_tighten, declared or default_only, not "full"
17:36: servers.5.mapping_profile: must be mcp, tool.invoke or coaz, not "coax"
17:59: servers.5.arguments: must be tell, enforce or pass, not "ask"
17:88: servers.5.annotations: must be text, not true (put it in quotes)
17:110: servers.5.extra_methods.0: must be one of resources/templates/list, server/discover, subscriptions/listen, tasks/update, not "ping"
17:129: servers.5.tools.t.mapping: the mapping must have one member, evaluation or evaluations, and has 0
18:15: servers.6.mode: must be enforce or observe, not "off"
19:1: mode: must be enforce or observe, not "watch"
20:10: access.requests_per_minute: must be a whole number from 1 to 10000, not 0`
	if diff := cmp.Diff(want, strings.ReplaceAll(err.Error(), file+":", "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"pdp: {url: http://127.0.0.1:1}\nservres: []\n": `gateway.yaml:2:1: unknown field "servres" (did you mean "servers"?)`,
		"pdp: {timeout: soon}\n":                        `gateway.yaml:1:16: pdp.timeout: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "soon"`,
		"pdp: {timeout: 500}\n":                         "gateway.yaml:1:16: pdp.timeout: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not 500",
		"identity: {local: {id: a}}\nservers: [{name: a, public_url: https://x.example.com}]\n":                                                     "gateway.yaml:2:21: identity.resource: is required beside servers.0.public_url: the URL of the gateway as its clients know it",
		"identity: {resource: https://x.example.com, process: {id: a}}\nservers: [{name: a, public_url: http://y.example.com}]\n":                   `gateway.yaml:2:21: servers.0.public_url: must be an https URL, not "http://y.example.com"`,
		"identity: {resource: https://x.example.com, process: {id: a}}\nservers: [{name: a, public_url: https://y.example.com/b/mcp}, {name: b}]\n": `gateway.yaml:2:64: servers.1.public_url: must have another path than that of servers.0`,
		"pdp: {url: http://127.0.0.1:1, capabilities: false}\nservers: [{name: a, proof: true}]\n":                                                  "gateway.yaml:2:21: servers.0.proof: must be false beside pdp.capabilities: false",
		"servers: [{name: a, proof: always}]\n": "gateway.yaml:1:28: servers.0.proof: must be true or false, not \"always\"",
		"denial: {code: low}\n":                 `gateway.yaml:1:16: denial.code: must be a whole number, not "low"`,
		"pdp: {url: http://127.0.0.1:1}\n":      "gateway.yaml: servers: is required: a list of servers, each with a name and a url",
		"servers: [{name: a}]\n":                "gateway.yaml: pdp.url: is required: it must be the URL of a policy decision point",
		"pdp: {timeout: 3s}\n":                  "gateway.yaml:1:1: pdp.url: is required: it must be the URL of a policy decision point",
	} {
		if _, err := configured(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Who may call is checked with the rest, and each issuer for itself; the files
// that the settings name are opened.
func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	write(t, filepath.Join(dir, "two"), "a\nb\n")
	write(t, file, `
tls_cert: `+dir+`/no.pem
tls_key: `+dir+`/no.key
tls_client_ca: `+dir+`/two
pdp: {url: "http://127.0.0.1:1", key_file: `+dir+`/none, timeout: soon}
catalog: {accepted_file: `+dir+`/none}
identity:
  resource: http://gateway.example.com
  issuers:
    - {issuer: "https://a.example.com", jwks_url: "http://a.example.com/keys", tenants: []}
    - {issuer: "https://b.example.com", jwks_url: "https://b.example.com/keys", algorithms: [HS256]}
  mtls: {callers: [{tenant: "../x"}]}
servers:
  - {name: a, url: "http://127.0.0.1:1", bearer_file: `+dir+`/two}
`)
	_, err := readConfig(file, "0.0.0.0", true)
	if err == nil {
		t.Fatal("it is read")
	}
	got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), file+":", ""), dir, "DIR")
	for _, want := range []string{
		` --listen: must be HOST:PORT, such as 127.0.0.1:8090, not "0.0.0.0"`,
		"2:1: tls_cert: cannot be used: open DIR/no.pem: no such file or directory",
		"4:1: tls_client_ca: cannot be used: DIR/two holds no certificate",
		"5:34: pdp.key_file: cannot be used: open DIR/none: no such file or directory",
		`: pdp.timeout: must be a duration with a unit`,
		"6:11: catalog.accepted_file: cannot be used: stat DIR/none: no such file or directory",
		`8:3: identity.resource: must be an https URL, not "http://gateway.example.com"`,
		"10:80: identity.issuers.0.tenants: is an empty list (leave the key out, or name some)",
		"10:41: identity.issuers.0.jwks_url: must be an https URL",
		`11:94: identity.issuers.1.algorithms.0: algorithm "HS256" is not one of `,
		"12:21: identity.mtls.callers.0.name: is required: a URI or DNS name of a certificate",
		`12:21: identity.mtls.callers.0.tenant: "../x" is not a valid name of a tenant`,
		"14:42: servers.0.bearer_file: cannot be used: DIR/two does not hold one line",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not reported", want)
		}
	}
	t.Log(got)
}

// What --help teaches works.
func TestHelpIsTrue(t *testing.T) {
	_, example, _ := strings.Cut(about, "serve it:\n\n")
	example, _, _ = strings.Cut(example, "\n\n  mcp-gateway check")
	c, err := configured(t, strings.ReplaceAll(example, "\n  ", "\n")[2:])
	if err != nil {
		t.Fatalf("%v\n%s", err, example)
	}
	if len(c.Servers) != 1 || c.Servers[0].Endpoint() != "/files/mcp" || c.Identity.Local.ID != "alice" {
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
