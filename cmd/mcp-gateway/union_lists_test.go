package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// A page of a union is a page of each server that has one. Names that are too long
// for models are cut, and lead to the whole name.
func TestUnionPages(t *testing.T) {
	long := strings.Repeat("long_name_", 8)
	tool := func(name string) string { return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name) }
	a := &scripted{
		result: map[string]string{
			"tools/list":   `{"tools":[` + tool("one") + `],"nextCursor":"2"}`,
			"tools/list 2": `{"tools":[` + tool(long+"x") + `,` + tool(long+"y") + `]}`,
		},
		calls: func(string) []string { return []string{`{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`} },
	}
	b := &scripted{result: map[string]string{"tools/list": `{"tools":[` + tool("one") + `]}`}}
	client := newRawClient(t, united(t, deniesAll(t), "", newScripted(t, a), newScripted(t, b)))
	page := func(method, cursor string) (names []string, next string) {
		body := client.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, cursor))
		for _, found := range regexp.MustCompile(`"name":"([^"]*)"`).FindAllStringSubmatch(body, -1) {
			names = append(names, found[1])
		}
		if found := regexp.MustCompile(`"nextCursor":"([^"]*)"`).FindStringSubmatch(body); found != nil {
			next = found[1]
		}
		if strings.Contains(body, `"error"`) {
			names = append(names, body)
		}
		return names, next
	}
	first, next := page("tools/list", "")
	if fmt.Sprint(first) != "[a__one b__one]" || next == "" || strings.Contains(next, "2\"") {
		t.Fatalf("the first page: %s, %s", first, next)
	}
	second, end := page("tools/list", `"cursor":"`+next+`"`)
	if len(second) != 2 || end != "" || len(second[0]) > 64 || len(second[1]) > 64 || second[0] == second[1] {
		t.Fatalf("the second page: %s, %s", second, end)
	}
	for _, wrong := range []string{`"cursor":"2"`, `"cursor":"` + next[:len(next)-1] + `"`} {
		if names, _ := page("tools/list", wrong); !strings.Contains(fmt.Sprint(names), "the cursor is not known") {
			t.Errorf("a cursor of nobody: %s", names)
		}
	}
	if names, _ := page("prompts/list", `"cursor":"`+next+`"`); !strings.Contains(fmt.Sprint(names), "the cursor is not known") {
		t.Errorf("a cursor of another list: %s", names)
	}
	client.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, second[1]))
	if got := a.got.String(); !strings.Contains(got, `"name":"`+long+`y"`) {
		t.Errorf("the server got %s", got)
	}
}

// The endpoint is a protected resource of its own (RFC 9728).
func TestUnionIsResource(t *testing.T) {
	url := strings.TrimSuffix(gatewayOf(t, fmt.Sprintf(`pdp: {url: %q}
identity: {resource: "http://127.0.0.1:1", issuers: [{issuer: "http://127.0.0.1:2", jwks_url: "http://127.0.0.1:2/keys"}]}
endpoints: [{path: /mcp, servers: [a]}]
servers: [{name: a, url: %q}]
`, deniesAll(t), named(t, "a", false))), "/")
	response, err := http.Get(url + "/.well-known/oauth-protected-resource/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), `"resource":"http://127.0.0.1:1/mcp"`) {
		t.Errorf("the metadata: %s, %v", body, err)
	}
	refused, err := http.Post(url+"/mcp", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Body.Close()
	if got := refused.Header.Get("WWW-Authenticate"); refused.StatusCode != http.StatusUnauthorized || !strings.Contains(got, "/.well-known/oauth-protected-resource/mcp") {
		t.Errorf("without a token: %s, %s", refused.Status, got)
	}
}
