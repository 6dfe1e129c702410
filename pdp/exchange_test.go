package pdp_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

var update = flag.Bool("update", false, "write the wanted responses of testdata/*.txtar")

// TestExchanges compares the responses of a running service with testdata/*.txtar, byte for byte.
//
// The comment of a file may configure the service with lines "key: value": policies (an embedded
// set), listener (main or admin), public-url, max-body. A case has two sections, "NAME/request" and
// "NAME/response". A request has a line with method and target, header lines, an empty line, and
// the body without its last line feed. With the header "Body: assembled", which is not sent, each
// line of the body is a Go string and may be repeated: "[" x 33. A response has its status, the
// headers, and the body with an extra line feed.
//
// ${NAME/pointer} in a request is the string at that JSON Pointer in the body of the response to
// NAME. ${NAME/@Decision-ID} is that header. With the header "Listener: admin", which is not sent,
// a request goes to the admin listener. Sections that begin with "store/" are the files of a policy
// store.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no exchanges in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testExchanges(t, file)
		})
	}
}

func testExchanges(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	store, first := storeOf(archive)
	s, base := serveFor(t, string(archive.Comment), store)
	var decisions []string
	answers := make(map[string]string)
	for i := first; i < len(archive.Files); i += 2 {
		request := archive.Files[i]
		name, ok := strings.CutSuffix(request.Name, "/request")
		if !ok || i+1 == len(archive.Files) || archive.Files[i+1].Name != name+"/response" {
			t.Fatalf("%s: section %q is not followed by its response", file, request.Name)
		}
		response := &archive.Files[i+1]
		t.Run(name, func(t *testing.T) {
			to, data := base, filled(t, request.Data, answers)
			if head, body, found := strings.Cut(data, "Listener: admin\n"); found {
				to, data = strings.TrimPrefix(s.admin, "http://"), head+body
			}
			got := exchange(t, to, parseRequest(t, []byte(data)))
			answers[name], answers[name+"/@Decision-ID"] = got.body, got.decisionID
			if got.decisionID != "" {
				decisions = append(decisions, got.decisionID)
			}
			if *update {
				response.Data = []byte(got.text)
			}
			if diff := cmp.Diff(string(response.Data), got.text); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.stop(t)
	if diff := cmp.Diff(decisions, ids(decided(t, s.state))); diff != "" {
		t.Errorf("ids of the decisions (-answered +recorded):\n%s", diff)
	}
}

// storeOf returns the policy store in a file, or nil, and the index of the first exchange.
func storeOf(archive *txtar.Archive) (store fs.FS, first int) {
	files := fstest.MapFS{}
	for _, file := range archive.Files {
		name, ok := strings.CutPrefix(file.Name, "store/")
		if !ok {
			break
		}
		files[name] = &fstest.MapFile{Data: file.Data}
	}
	if len(files) == 0 {
		return nil, 0
	}
	return files, len(files)
}

var reference = regexp.MustCompile(`\$\{([^/}]+)(/[^}]+)\}`)

// filled replaces ${…} in a request by values of earlier answers.
func filled(t *testing.T, request []byte, answers map[string]string) string {
	t.Helper()
	return reference.ReplaceAllStringFunc(string(request), func(text string) string {
		m := reference.FindStringSubmatch(text)
		if id, ok := answers[m[1]+m[2]]; ok {
			return id
		}
		var value any
		if err := json.Unmarshal([]byte(answers[m[1]]), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for name := range strings.SplitSeq(m[2][1:], "/") {
			if list, ok := value.([]any); ok {
				n, err := strconv.Atoi(name)
				if err != nil || n >= len(list) {
					t.Fatalf("%s leads nowhere", text)
				}
				value = list[n]
				continue
			}
			object, _ := value.(map[string]any)
			value = object[name]
		}
		found, ok := value.(string)
		if !ok {
			t.Fatalf("%s is %v", text, value)
		}
		u, err := url.Parse(found)
		if err == nil && u.Host == "pdp.example.com" { // use the path of an absolute link
			return u.Path
		}
		return found
	})
}

// serveFor starts the service that a file's comment describes, with the store if not nil. It
// returns the address of the listener for the requests.
func serveFor(t *testing.T, comment string, store fs.FS) (s *service, address string) {
	t.Helper()
	settings := map[string]string{"policies": "certification", "listener": "main", "public-url": "https://pdp.example.com", "max-body": "0"}
	for line := range strings.Lines(comment) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); settings[key] != "" {
			settings[key] = value
		}
	}
	maxBody, err := strconv.ParseInt(settings["max-body"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if store == nil {
		store = policySet(t, settings["policies"])
	}
	s = start(t, pdp.Config{Policies: store, PublicURL: settings["public-url"], MaxBody: maxBody})
	if settings["listener"] == "admin" {
		return s, strings.TrimPrefix(s.admin, "http://")
	}
	return s, strings.TrimPrefix(s.main, "http://")
}

// A rawRequest is sent unchanged, valid or not.
type rawRequest struct {
	method, target string
	headers        []string
	id             string // X-Request-ID
	body           string
}

func parseRequest(t *testing.T, text []byte) rawRequest {
	t.Helper()
	head, body, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n\n")
	first, rest, _ := strings.Cut(head, "\n")
	method, target, ok := strings.Cut(first, " ")
	if !ok {
		t.Fatalf("%q is not a method and a target", first)
	}
	r := rawRequest{method: method, target: target, body: body}
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if line == "Body: assembled" {
			r.body = assemble(t, body)
			continue
		}
		if id, ok := strings.CutPrefix(line, "X-Request-ID: "); ok {
			r.id = id
		}
		r.headers = append(r.headers, line)
	}
	return r
}

var repeated = regexp.MustCompile(`^(.*["` + "`" + `]) x (\d+)$`)

// assemble joins the Go strings of the lines of text.
func assemble(t *testing.T, text string) string {
	t.Helper()
	var body strings.Builder
	for line := range strings.Lines(text) {
		line, times := strings.TrimSuffix(line, "\n"), 1
		if m := repeated.FindStringSubmatch(line); m != nil {
			line = m[1]
			times, _ = strconv.Atoi(m[2])
		}
		part, err := strconv.Unquote(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		body.WriteString(strings.Repeat(part, times))
	}
	return body.String()
}

// A rawResponse is a received response.
type rawResponse struct {
	text       string // in the format of the files
	body       string
	decisionID string
}

// exchange sends a request over a new connection and checks what holds for every response.
func exchange(t *testing.T, address string, r rawRequest) rawResponse {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", r.method, r.target, address)
	if r.method == http.MethodPost {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(r.body))
	}
	for _, header := range r.headers {
		head += header + "\r\n"
	}
	go io.WriteString(conn, head+"\r\n"+r.body) // the server may answer before it has read the complete body
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	checkResponse(t, r, response, body)
	return rawResponse{render(response, body), string(body), response.Header.Get("Decision-ID")}
}

// decisionBodies maps paths to the schemas of decisions.
var decisionBodies = map[string]string{
	authzen.PathEvaluation:     "Decision",
	authzen.PathEvaluations:    "EvaluationsResponse",
	"/v1/authorize":            "AuthorizeResponse",
	authzen.PathSearchSubject:  "EntitySearchResponse",
	authzen.PathSearchResource: "EntitySearchResponse",
	authzen.PathSearchAction:   "ActionSearchResponse",
}

var (
	uuidV7     = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	tenantBase = regexp.MustCompile(`^/tenants/[^/]+`)
	sayTrue    = regexp.MustCompile(`"(decision|allow)"\s*:\s*true`)
)

func checkResponse(t *testing.T, r rawRequest, response *http.Response, body []byte) {
	t.Helper()
	if got := response.Header.Get("X-Request-ID"); got != r.id {
		t.Errorf("AZ-48: X-Request-ID is %q, the request's %q", got, r.id)
	}
	path, _, _ := strings.Cut(r.target, "?")
	schema, decides := decisionBodies[tenantBase.ReplaceAllString(path, "")]
	decided := decides && response.StatusCode == http.StatusOK
	if id := response.Header.Get("Decision-ID"); decided != uuidV7.MatchString(id) || !decided && id != "" {
		t.Errorf("Decision-ID is %q with status %d", id, response.StatusCode)
	}
	if decides && response.Header.Get("Cache-Control") != "no-store" && response.StatusCode != http.StatusNoContent {
		t.Errorf("Cache-Control is %q", response.Header.Get("Cache-Control"))
	}
	if !decided && sayTrue.Match(body) {
		t.Errorf("AZ-14: status %d with %s", response.StatusCode, body)
	}
	if response.Header.Get("Content-Type") == "application/problem+json" {
		schematest.Check(t, "Problem", body)
		return
	}
	if response.Header.Get("Content-Type") != "application/json" || len(body) == 0 {
		if decides && r.method != http.MethodHead && response.StatusCode != http.StatusNoContent {
			t.Errorf("AZ-38, AZ-42: Content-Type %q, %d bytes", response.Header.Get("Content-Type"), len(body))
		}
		return
	}
	task := strings.Contains(path, authzen.PathRequests) || path == authzen.PathApprovals
	switch {
	case decided:
		schematest.Check(t, schema, body)
	case task && response.StatusCode < http.StatusBadRequest && !strings.HasPrefix(path, "/admin/"):
		schematest.Check(t, "TaskResponse", body)
	case response.StatusCode != http.StatusOK:
		schematest.Check(t, "ErrorResponse", body)
	case strings.HasPrefix(r.target, authzen.PathMetadata):
		schematest.Check(t, "Metadata", body)
	}
}

// variable lists the parts of a response that differ in each run.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`arq_[A-Z2-7]{26}`), "<task>"},
	{regexp.MustCompile(`apr_[A-Z2-7]{26}`), "<approval>"},
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "<jws>"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "<revision>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
	{regexp.MustCompile(`(?m)^Etag: W/"[0-9a-f]{16}"$`), "Etag: <tag>"},
}

// render returns a response in the format of the files, without connection headers.
func render(response *http.Response, body []byte) string {
	var out bytes.Buffer
	fmt.Fprintln(&out, response.Status)
	for _, name := range []string{"Date", "Connection", "Content-Length"} {
		response.Header.Del(name)
	}
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(response.Header[name], ", "))
	}
	fmt.Fprintf(&out, "\n%s\n", body)
	text := out.String()
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}
