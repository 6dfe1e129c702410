package pdp_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

// An unsafe or invalid configuration ends Run before the first answer.
func TestRefusesToStart(t *testing.T) {
	cert, key := writeCertificate(t)
	for _, test := range []struct {
		name   string
		config pdp.Config
		want   string
	}{
		{"every address", pdp.Config{Listen: "0.0.0.0:0"}, "--insecure"},
		{"every address, TLS alone", pdp.Config{Listen: "0.0.0.0:0", TLSCert: cert, TLSKey: key}, "--insecure"},
		{"the admin listener on every address", pdp.Config{AdminListen: "0.0.0.0:0"}, "--admin-insecure"},
		{"the admin listener on every address, to anybody", pdp.Config{AdminListen: "0.0.0.0:0", AdminInsecure: true}, "--admin-insecure"},
		{"the admin listener on every address, where the main one may be", pdp.Config{AdminListen: "0.0.0.0:0", Insecure: true}, "--admin-insecure"},
		{"both on every address, to anybody", pdp.Config{Listen: "0.0.0.0:0", AdminListen: "0.0.0.0:0", Insecure: true, AdminInsecure: true}, "--admin-insecure"},
		{"the admin listener on every address, to callers, where the main one may be", pdp.Config{AdminListen: "0.0.0.0:0", Insecure: true,
			Auth: pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: digest("k")}}}}, "--admin-insecure"},
		{"a name of the admin listener that has a port", pdp.Config{AdminHosts: []string{"pdp.internal:8081"}}, "without scheme and port"},
		{"a name of the main listener that has a port", pdp.Config{Hosts: []string{"pdp.internal:8080"}}, `hosts.0: "pdp.internal:8080" is not`},
		{"a name of the admin listener that is every name", pdp.Config{AdminHosts: []string{"*"}}, "without scheme and port"},
		{"every address, but for the admin listener", pdp.Config{Listen: "0.0.0.0:0", AdminInsecure: true}, "--insecure"},
		{"a certificate without its key", pdp.Config{TLSCert: cert}, "give both or neither"},
		{"a key without its certificate", pdp.Config{TLSKey: key}, "give both or neither"},
		{"a certificate that is not there", pdp.Config{TLSCert: cert + "x", TLSKey: key}, "no such file"},
		{"a certificate that is a key", pdp.Config{TLSCert: key, TLSKey: key}, "TLS certificate"},
		{"an address that is none", pdp.Config{Listen: "nowhere"}, "main listener"},
		{"an admin address that is none", pdp.Config{AdminListen: "127.0.0.1:http:80"}, "admin listener"},
		{"a public URL that is relative", pdp.Config{PublicURL: "pdp.example.com"}, "write https://host"},
		{"a public URL with a slash at the end", pdp.Config{PublicURL: "https://pdp.example.com/"}, "without a slash"},
		{"AZ-72 a public URL with a query", pdp.Config{PublicURL: "https://pdp.example.com/a?b=c"}, "write https://host"},
		{"AZ-72 a public URL with an empty query", pdp.Config{PublicURL: "https://pdp.example.com?"}, "write https://host"},
		{"AZ-72 a public URL with an empty fragment", pdp.Config{PublicURL: "https://pdp.example.com#"}, "write https://host"},
		{"AZ-72 a public URL of another scheme", pdp.Config{PublicURL: "ftp://pdp.example.com"}, "write https://host"},
		{"AZ-72, AR-2 a public URL of another host without TLS", pdp.Config{PublicURL: "http://pdp.example.com"}, "need https"},
		{"a public URL with credentials", pdp.Config{PublicURL: "https://me:secret@pdp.example.com"}, "write https://host"},
		{"a public URL with a parameter of a router", pdp.Config{PublicURL: "https://pdp.example.com/:tenant"}, "write https://host"},
		{"a public URL that ends no URL", pdp.Config{PublicURL: "https://pdp.example.com/\x7f"}, "public URL"},
		{"policies that do not compile", pdp.Config{Policies: fstest.MapFS{"a.cedar": {Data: []byte("permit (")}}}, "a.cedar:1:"},
		{"a state that is a file", pdp.Config{State: cert}, "open decision log"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := launch(t, test.config)
			if s.main != "" {
				t.Fatalf("it answers on %s", s.main)
			}
			if s.err == nil || !strings.Contains(s.err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", s.err, test.want)
			}
			if strings.Contains(test.want, "insecure") != errors.Is(s.err, pdp.ErrInsecure) {
				t.Errorf("%v is ErrInsecure, or not", s.err)
			}
		})
	}
}

func TestFaultsComeThroughRun(t *testing.T) {
	s := launch(t, pdp.Config{Policies: fstest.MapFS{"a.cedar": {Data: []byte("permit (")}, "b.cedar": {Data: []byte("forbid")}}})
	var faults faults.List
	if !errors.As(s.err, &faults) || len(faults) != 2 {
		t.Errorf("got %v, want one fault in each file", s.err)
	}
}

func TestInsecureListensBeyondThisHost(t *testing.T) {
	s := start(t, pdp.Config{Listen: "0.0.0.0:0", Insecure: true, PublicURL: "http://pdp.internal"})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.main, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if response, body := post(t, http.DefaultClient, "http://127.0.0.1:"+port+authzen.PathEvaluation, aliceReads); body != `{"decision":true}` {
		t.Errorf("%s %s", response.Status, body)
	}
}

// The admin listener beyond this host requires credentials, except for health.
func TestInsecureAdmin(t *testing.T) {
	s := start(t, pdp.Config{AdminListen: "0.0.0.0:0", AdminInsecure: true, Auth: pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: digest("k")}}}})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.admin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/readyz": 200, pdp.PathLogExport: 401} {
		if response, _ := get(t, "http://127.0.0.1:"+port+path); response.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, response.Status, want)
		}
	}
}

func TestOneServiceOnAState(t *testing.T) {
	first := start(t, pdp.Config{})
	second := launch(t, pdp.Config{State: first.state})
	if !errors.Is(second.err, decisionlog.ErrLocked) {
		t.Errorf("the second ended with %v", second.err)
	}
	published := filepath.Join(first.state, pdp.AdminURLFile)
	if url, err := os.ReadFile(published); err != nil || string(url) != first.admin+"\n" {
		t.Errorf("the admin URL on disk is %q, %v", url, err)
	}
	first.stop(t)
	if _, err := os.Stat(published); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the admin URL is still on disk: %v", err)
	}
	start(t, pdp.Config{State: first.state})
}

// TLS works with a certificate for an address (AuthZEN 1.0: AZ-86, AZ-107, AZ-80h).
func TestTLS(t *testing.T) {
	cert, key := writeCertificate(t)
	s := start(t, pdp.Config{TLSCert: cert, TLSKey: key})
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(authority)
	for name, transport := range map[string]*http.Transport{
		"HTTP/1.1": {TLSClientConfig: &tls.Config{RootCAs: roots}},
		"HTTP/2.0": {TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
	} {
		client := &http.Client{Transport: transport}
		response, body := post(t, client, s.main+authzen.PathEvaluation, aliceReads)
		if response.Proto != name || body != `{"decision":true}` || response.Header.Get("X-Request-ID") != "request-1" {
			t.Errorf("%s: %s %s %s", name, response.Proto, response.Status, body)
		}
		response, body, err := send(t.Context(), client, http.MethodGet, s.main+authzen.PathMetadata, "")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s.main, "https://127.0.0.1:") || !strings.Contains(body, `"policy_decision_point":"`+s.main+`"`) {
			t.Errorf("%s: metadata of %s: %s %s", name, s.main, response.Status, body)
		}
		transport.CloseIdleConnections()
	}
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}}}
	if _, _, err := send(t.Context(), old, http.MethodGet, s.main+authzen.PathMetadata, ""); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if response, _, err := send(t.Context(), http.DefaultClient, http.MethodPost, strings.Replace(s.main, "https", "http", 1)+authzen.PathEvaluation, aliceReads); err == nil && response.StatusCode == http.StatusOK {
		t.Error("plain HTTP is spoken where TLS is configured")
	}
}

// writeCertificate writes a certificate for 127.0.0.1 and its key.
func writeCertificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "pdp"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: certificate}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Requests that were received before shutdown are answered.
func TestRequestsInFlightAreAnswered(t *testing.T) {
	s := start(t, pdp.Config{})
	address := strings.TrimPrefix(s.main, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		authzen.PathEvaluation, len(aliceReads))
	from := bufio.NewReader(conn)
	if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("the handler does not read: %q, %v", line, err)
	}
	if _, err := from.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	s.cancel()
	for refused := false; !refused; { // until the listener is closed
		other, err := net.Dial("tcp", address)
		if refused = err != nil; !refused {
			other.Close()
		}
	}
	if _, err := io.WriteString(conn, aliceReads); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != `{"decision":true}` || !response.Close {
		t.Errorf("%s %s, %v", response.Status, body, err)
	}
	s.stop(t)
	if diff := cmp.Diff([]string{response.Header.Get("Decision-ID")}, ids(decided(t, s.state))); diff != "" {
		t.Errorf("decisions (-answered +recorded):\n%s", diff)
	}
}

// Metadata are served at the path of the public URL, for every Host (AuthZEN 1.0: AZ-80e).
func TestMetadataAgreesWithItsPath(t *testing.T) {
	for public, path := range map[string]string{
		"https://pdp.example.com":              "",
		"https://pdp.example.com:8443/tenant1": "/tenant1",
		"http://127.0.0.1:9/a/b":               "/a/b",
		"http://[::1]:9":                       "",
		"http://localhost:9/c":                 "/c",
		"":                                     "",
	} {
		s := start(t, pdp.Config{PublicURL: public, Hosts: []string{"evil.example.org"}})
		if public == "" {
			public = s.main
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.main+authzen.PathMetadata+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "evil.example.org"
		request.Header.Set("X-Forwarded-Host", "evil.example.org")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"policy_decision_point":"`+public+`"`) {
			t.Errorf("%s: %s %s", public, response.Status, body)
		}
		schematest.Check(t, "Metadata", body)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	s := start(t, pdp.Config{})
	response, body := get(t, s.main+"/openapi.yaml")
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/yaml" || body != string(schemas.OpenAPI()) {
		t.Errorf("%s, Content-Type %q, %d bytes", response.Status, response.Header.Get("Content-Type"), len(body))
	}
}

// The log has the members of a request that are not in its body.
func TestEntries(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools")})
	for _, path := range slices.Sorted(maps.Keys(permitted)) {
		post(t, http.DefaultClient, s.main+path, permitted[path])
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+authzen.PathEvaluation, strings.NewReader(aliceReads))
	if err != nil {
		t.Fatal(err)
	}
	const latin1 = "r\xe9sum\xe9"
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-ID", latin1)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Header.Get("X-Request-ID") != latin1 {
		t.Errorf("AZ-48: %s, X-Request-ID %q", response.Status, response.Header.Get("X-Request-ID"))
	}
	s.stop(t)
	got := decided(t, s.state)
	for i := range got {
		got[i].ID, got[i].Index = "", 0
	}
	want := []entry{
		{Kind: "evaluation", RequestID: "request-1"},
		{Kind: "evaluations", RequestID: "request-1"},
		{Kind: "evaluation", RequestID: "request-1", Tenant: "t"},
		{Kind: "evaluation", RequestID: "r\uFFFDsum\uFFFD"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// A running service exports its answers, completely and in parts, and the export verifies against
// the checkpoint.
func TestExport(t *testing.T) {
	s := start(t, pdp.Config{})
	var given []string
	for range 5 {
		response, _ := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
		given = append(given, response.Header.Get("Decision-ID"))
	}
	_, lines := get(t, s.admin+pdp.PathLogExport)
	all := ids(readEntries(t, []byte(lines)))
	if diff := cmp.Diff(given, all[len(all)-len(given):]); diff != "" {
		t.Fatalf("ids (-answered +exported):\n%s", diff)
	}
	size := len(all)
	for query, want := range map[string][]string{
		"?from=0&until=5":                  all[:5],
		"?from=2":                          all[2:],
		"?until=2":                         all[:2],
		"?from=1&until=4":                  all[1:4],
		"?from=4&until=4":                  nil,
		"?from=4&until=2":                  nil,
		fmt.Sprintf("?from=%d", size):      nil,
		fmt.Sprintf("?from=%d", size-1):    all[size-1:],
		fmt.Sprintf("?until=%d", size):     all,
		fmt.Sprintf("?until=%d", size+1):   all,
		fmt.Sprintf("?from=%d", size+1000): nil,
		"?from=&until=":                    all,
	} {
		response, body := get(t, s.admin+pdp.PathLogExport+query)
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/jsonl" {
			t.Errorf("%s: %s, Content-Type %q", query, response.Status, response.Header.Get("Content-Type"))
		}
		if diff := cmp.Diff(want, ids(readEntries(t, []byte(body)))); diff != "" {
			t.Errorf("%s: ids (-want +got):\n%s", query, diff)
		}
	}
	_, checkpoint := get(t, s.admin+pdp.PathLogCheckpoint)
	var head decisionlog.Head
	if err := json.Unmarshal([]byte(checkpoint), &head); err != nil {
		t.Fatal(err)
	}
	if root := rootOf(t, lines); head.Size != int64(size) || head.Root != root {
		t.Errorf("the head is of %d entries with root %s; %d were exported, with root %s", head.Size, head.Root, size, root)
	}
	if _, body := get(t, s.admin+"/readyz?verbose"); !strings.Contains(body, fmt.Sprintf("log entries %d\n", size)) {
		t.Errorf("readyz: %q", body)
	}
}

// rootOf returns the Merkle root of lines.
func rootOf(t *testing.T, lines string) tlog.Hash {
	t.Helper()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	var size int64
	for line := range strings.Lines(lines) {
		hashes, err := tlog.StoredHashes(size, []byte(strings.TrimSuffix(line, "\n")), reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		size++
	}
	root, err := tlog.TreeHash(size, reader)
	if err != nil {
		t.Fatal(err)
	}
	return root
}
