package pdp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// largeRequest is a request whose log entry has about 480 kB.
func largeRequest() string {
	var members []string
	for i := range 60 {
		members = append(members, fmt.Sprintf(`"m%d":%q`, i, strings.Repeat("x", 8000)))
	}
	return strings.TrimSuffix(aliceReads, "}") + `,"context":{` + strings.Join(members, ",") + "}}"
}

// stalledQuery asks for a whole log, and reads the status of the answer only.
func stalledQuery(t *testing.T, admin, key string) int {
	t.Helper()
	address := strings.TrimPrefix(admin, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", pdp.PathLogExport, address, key)
	var status int
	if _, err := fmt.Fscanf(bufio.NewReaderSize(conn, 16), "HTTP/1.1 %d", &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// TestStalledLogQueries holds that clients that do not read a large answer have a part of the memory
// budget, and that decisions and the queries of other callers go on meanwhile.
func TestStalledLogQueries(t *testing.T) {
	const budget, clients, admitted = 16 << 20, 40, 4
	s := start(t, pdp.Config{Limits: pdp.Limits{BodyMemory: budget}, Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "pep", SHA256: digest("k-pep"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeEvaluate}}},
		{ID: "stalled", SHA256: digest("k-stalled"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAudit}}},
		{ID: "auditor", SHA256: digest("k-auditor"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAudit}}},
	}}})
	decide := func() {
		t.Helper()
		if response := ask(t, http.DefaultClient, http.MethodPost, s.main+authzen.PathEvaluation, "Bearer k-pep", largeRequest()); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
	}
	const entries = 48
	for range entries {
		decide()
	}
	before := heap()
	begun := 0
	for range clients {
		switch status := stalledQuery(t, s.admin, "k-stalled"); status {
		case http.StatusOK:
			begun++
		case http.StatusServiceUnavailable:
		default:
			t.Errorf("status %d", status)
		}
	}
	if begun != admitted {
		t.Errorf("%d of %d queries of one caller run, want %d: a half of the budget", begun, clients, admitted)
	}
	decide()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin+pdp.PathLogExport, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer k-auditor")
	response, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if lines := bytes.Count(body, []byte("\n")); err != nil || lines != entries+2 {
		t.Errorf("another caller reads %d entries of %d: %v", lines, entries+2, err)
	}
	body = nil // it counts otherwise
	if more := int64(heap()) - int64(before); more > budget {
		t.Errorf("%d stalled queries take %d MiB, more than the whole budget", clients, more>>20)
	}
}
