package pdp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// page stands for the metrics page.
var page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metrics") })

// visit sends a request with a Host header and others, as a browser may for a page.
func visit(t *testing.T, method, base, path, host string, header map[string]string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		request.Host = host
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// After DNS rebinding a page can neither read nor change anything, with and without authentication,
// on every path of the admin listener.
func TestAdminListenerChecksHost(t *testing.T) {
	hosts := []string{"pdp.internal", "*.replicas.svc", "192.0.2.7"}
	for name, auth := range map[string]pdp.Auth{"open": {}, "auth": {APIKeys: []pdp.APIKey{{ID: "a", SHA256: digest("k"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin, pdp.ScopeAudit}}}}}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pdp.Config{Auth: auth, AdminHosts: hosts, Telemetry: pdp.Telemetry{Page: page}})
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.admin, "http://"))
			for _, path := range []string{"/livez", "/readyz", "/readyz?verbose", "/metrics", pdp.PathLogExport, pdp.PathRequests} {
				for host, passes := range map[string]bool{
					"": true, "127.0.0.1": true, "127.0.0.1:80": true, "localhost:" + port: true, "LOCALHOST": true, "localhost.": true, "[::1]:" + port: true,
					"pdp.internal:8081": true, "PDP.Internal.": true, "a.b.replicas.svc.:8081": true, "192.0.2.7": true,
					"evil.example": false, "evil.example:" + port: false, "127.0.0.1.evil.example": false, "replicas.svc": false, "evilreplicas.svc": false,
					"192.0.2.8:8081": false, "0.0.0.0:" + port: false, "pdp.internal.evil.example": false, "a.localhost": false,
				} {
					got := visit(t, "GET", s.admin, path, host, map[string]string{"Authorization": "Bearer k"})
					if passes != (got == 200) || !passes && got != 421 {
						t.Errorf("%s of %q: %d", path, host, got)
					}
				}
			}
		})
	}
}

// A probe may use the pod's address, which is not configured.
func TestAdminListenerAcceptsItsAddress(t *testing.T) {
	s := start(t, pdp.Config{AdminListen: "0.0.0.0:0", AdminInsecure: true, Auth: pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: digest("k")}}}})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.admin, "http://"))
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.To4() == nil || ip.IsLoopback() {
			continue
		}
		base := "http://" + net.JoinHostPort(ip.String(), port)
		if got := visit(t, "GET", base, "/readyz", "", nil); got != 200 {
			t.Errorf("%s: %d", base, got)
		}
		if got := visit(t, "GET", s.own(t), "/readyz", ip.String(), nil); got != 421 {
			t.Errorf("%s by a connection to another address: %d", ip, got)
		}
	}
	if got := visit(t, "GET", s.own(t), "/readyz", "", nil); got != 200 {
		t.Errorf("by the URL of the state directory: %d", got)
	}
}

// own returns the URL of the admin listener in the state directory.
func (s *service) own(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.state, pdp.AdminURLFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Without authentication, a page can send nothing to the main listener after DNS rebinding.
func TestMainListenerChecksHost(t *testing.T) {
	key := pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: digest("k")}}}
	cross := map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
	for _, test := range []struct {
		name   string
		config pdp.Config
		host   string
		header map[string]string
		want   int
	}{
		{"its address", pdp.Config{}, "", nil, 400},
		{"this host", pdp.Config{}, "localhost:8080", nil, 400},
		{"a name of the settings", pdp.Config{Hosts: []string{"*.svc"}}, "pdp.svc:8080", nil, 400},
		{"the public name", pdp.Config{PublicURL: "https://PDP.example.com/x"}, "pdp.example.com", nil, 400},
		{"a name that was led here", pdp.Config{PublicURL: "https://pdp.example.com"}, "evil.example", nil, 421},
		{"a page of such a name", pdp.Config{}, "evil.example", map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 421},
		{"a page of another site", pdp.Config{}, "", cross, 403},
		{"one under a name that was led here", pdp.Config{}, "evil.example", cross, 403},
		{"a page in an old browser", pdp.Config{}, "", map[string]string{"Origin": "https://evil.example"}, 403},
		{"beyond this host, any name", pdp.Config{Listen: "0.0.0.0:0", Insecure: true, PublicURL: "http://pdp"}, "policy-service:8080", nil, 400},
		{"beyond this host, a page of another site", pdp.Config{Listen: "0.0.0.0:0", Insecure: true, PublicURL: "http://pdp"}, "policy-service:8080", cross, 403},
		{"where callers are authenticated, any name", pdp.Config{Auth: key}, "evil.example", map[string]string{"Authorization": "Bearer k"}, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, test.config)
			base := strings.Replace(s.main, "[::]", "127.0.0.1", 1)
			for _, path := range []string{authzen.PathEvaluation, authzen.PathRequests} {
				if got := visit(t, "POST", base, path, test.host, test.header); got != test.want {
					t.Errorf("%s: %d, want %d", path, got, test.want)
				}
			}
		})
	}
}

// A form or script of another site can neither change nor read anything, for any set of headers
// that browsers send.
func TestAdminListenerRefusesOtherSites(t *testing.T) {
	s := start(t, pdp.Config{Telemetry: pdp.Telemetry{Page: page}})
	same := s.admin
	for _, test := range []struct {
		name   string
		header map[string]string
		passes bool
	}{
		{"no browser", nil, true},
		{"the listener's own page", map[string]string{"Origin": same, "Sec-Fetch-Site": "same-origin"}, true},
		{"its own page, in an old browser", map[string]string{"Origin": same}, true},
		{"typed by a person", map[string]string{"Sec-Fetch-Site": "none"}, true},
		{"another site", map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, false},
		{"another site, without Origin", map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
		{"another site, in an old browser", map[string]string{"Origin": "https://evil.example"}, false},
		{"a page without an origin", map[string]string{"Origin": "null"}, false},
		{"another port of this host", map[string]string{"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}, false},
		{"a form", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, false},
	} {
		for _, route := range []struct{ method, path string }{
			{"GET", "/livez"}, {"GET", "/readyz"}, {"GET", "/metrics"}, {"GET", pdp.PathLogExport}, {"POST", pdp.PathLogRotateKey}, {"GET", pdp.PathRequests},
		} {
			got := visit(t, route.method, s.admin, route.path, "", test.header)
			if test.passes != (got == 200) || !test.passes && got != 403 {
				t.Errorf("%s: %s %s: %d", test.name, route.method, route.path, got)
			}
		}
	}
}

// Both listeners refuse a body in another character set.
func TestCharset(t *testing.T) {
	s := start(t, pdp.Config{})
	verdict := s.admin + pdp.PathRequests + "/arq_1/decision"
	for contentType, want := range map[string][2]int{
		"application/json":                           {200, 404},
		"application/json; charset=utf-8":            {200, 404},
		`application/json; charset="UTF-8"`:          {200, 404},
		"application/json; profile=x":                {200, 404},
		"application/json; charset=utf-16":           {415, 415},
		"application/json; charset=utf-7":            {415, 415},
		"application/json; charset=iso-8859-1":       {415, 415},
		"application/json; charset=":                 {400, 400},
		"application/json; charset=utf-8; charset=x": {400, 400},
		"text/plain; charset=utf-8":                  {400, 400},
	} {
		for i, to := range []struct{ url, body string }{
			{s.main + authzen.PathEvaluation, aliceReads},
			{verdict, `{"decision":"approve","approver":{"type":"user","id":"carol"}}`},
		} {
			request, err := http.NewRequestWithContext(t.Context(), "POST", to.url, strings.NewReader(to.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", contentType)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want[i] {
				t.Errorf("%q to %s: %d, want %d", contentType, to.url, response.StatusCode, want[i])
			}
		}
	}
}

// A request that may end elsewhere for another server ends its connection. One with only a
// Content-Length does not.
func TestAmbiguousRequestsEndTheConnection(t *testing.T) {
	endAmbiguous(t, start(t, pdp.Config{}))
}

// A valid key does not change that.
func TestAmbiguousRequestsOfCallersEndTheConnection(t *testing.T) {
	endAmbiguous(t, start(t, pdp.Config{Auth: pdp.Auth{APIKeys: []pdp.APIKey{{ID: "pep", SHA256: digest("k-pep")}}}}))
}

func endAmbiguous(t *testing.T, s *service) {
	t.Helper()
	const head = "POST /access/v1/evaluation HTTP/1.%d\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer k-pep\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(aliceReads), aliceReads)
	smuggled := "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, test := range []struct {
		name, rest string
		minor      int
		ends       bool
	}{
		{"a length", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(aliceReads), aliceReads), 1, false},
		{"a length and chunks", fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%s", len(chunked), chunked), 1, true},
		{"chunks and a length", fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n%s", chunked), 1, true},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n" + chunked, 1, true},
		{"a length and chunks that HTTP/1.0 does not have", fmt.Sprintf("Connection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n%s", len(aliceReads), aliceReads), 0, true},
	} {
		for _, base := range []string{s.main, s.admin} {
			address := strings.TrimPrefix(base, "http://")
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, head+"%s%s", test.minor, address, test.rest, smuggled); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(conn)
			first, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, first.Body); err != nil {
				t.Fatal(err)
			}
			second, err := http.ReadResponse(answers, nil)
			if ended := err != nil; ended != test.ends {
				t.Errorf("%s: the connection to %s goes on with %v", test.name, base, second)
			}
		}
	}
}

// HTTP/1.0 requests may lack a Host, as probes do. A Host that is present is checked.
func TestProbesWithoutHost(t *testing.T) {
	s := start(t, pdp.Config{})
	for request, want := range map[string]string{
		"GET /readyz HTTP/1.0\r\n\r\n":                       "HTTP/1.0 200 OK",
		"GET /livez HTTP/1.0\r\n\r\n":                        "HTTP/1.0 200 OK",
		"GET /readyz HTTP/1.0\r\nHost: evil.example\r\n\r\n": "HTTP/1.0 421 Misdirected Request",
		"GET /readyz HTTP/1.1\r\n\r\n":                       "HTTP/1.1 400 Bad Request: missing required Host header",
		"GET /readyz HTTP/1.1\r\nHost:\r\n\r\n":              "HTTP/1.1 421 Misdirected Request",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.admin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if got := strings.TrimSpace(line); err != nil || got != want {
			t.Errorf("%q: %q, want %q", request, got, want)
		}
		conn.Close()
	}
}
