package main

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire/wiretest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// letters are messages that a server may take for another call than who decides
// on them: the tool danger is denied.
var letters = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"a":1}}}`,
	` {"params":{"arguments":{"a":1},"name":"take"},"method":"tools/call","id":"x","jsonrpc":"2.0"} `,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{"a":1}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","name":"danger"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","name":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","n\u0061me":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","Name":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","NAME":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","ńame":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"a":1},"arguments":{"a":2}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"a":1},"Arguments":{"a":2}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"key":1,"` + "\u212a" + `ey":2}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take"},"params":{"name":"danger"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"},"Params":{"name":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"danger"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"ping","params":{"name":"danger"}}`,
	`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take"}}{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger"}}`,
	`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}]`,
	"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"a":[1.0,1e2,-0,0.1]}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":{"a":9007199254740993}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","x":9007199254740993}}`,
	`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"take"}}`,
}

// stateless is what a message of 2026-07-28 has besides.
const stateless = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// messages returns the letters, letters that are changed, and calls of either era
// with the texts of the corpus, and n times two that are made of it, as arguments.
func messages(n int) (all [][]byte) {
	for _, text := range wiretest.Texts(n) {
		for _, meta := range []string{"", stateless} {
			all = append(all, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","arguments":%s%s}}`, text, meta))
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		all = append(all, wiretest.Mutate(r, []byte(letters[i%len(letters)])))
	}
	for _, letter := range letters {
		all = append(all, []byte(letter))
	}
	return all
}

// A decider is a PDP that tells what it permitted: all but the tool danger.
type decider struct {
	mu        sync.Mutex
	permitted map[string][]jsontext.Value // by server
}

func (d *decider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request authzen.EvaluationRequest
	var context struct {
		Gateway struct {
			Server string `json:"server"`
		} `json:"gateway"`
		Params jsontext.Value `json:"params"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = authzen.Unmarshal(body, &request)
	}
	if err == nil {
		err = authzen.Unmarshal(request.Context, &context)
	}
	params, unread := number.Read(context.Params, func(text string) (any, error) { return stdjson.Number(text), nil })
	if err != nil || unread != nil {
		http.Error(w, fmt.Sprint(err, unread), http.StatusBadRequest)
		return
	}
	permit := request.Resource.ID != "danger"
	if permit {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.permitted[context.Gateway.Server] = append(d.permitted[context.Gateway.Server], wiretest.Told(map[string]any{"method": request.Action.Name, "params": params}))
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"decision":%t}`, permit)
}

// take returns what was permitted since it was called last.
func (d *decider) take(server string) []jsontext.Value {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.permitted[server]
	delete(d.permitted, server)
	return taken
}

// TestParsers sends messages that parsers differ about through the gateway to
// servers that read them with JSON.parse and with Python. What a server reads is
// what the PDP permitted, all of it and nothing else. The control is who decides
// on what encoding/json reads and passes on the bytes that came (CZ-61).
func TestParsers(t *testing.T) {
	n := 100
	if *others {
		n = 4000
	}
	pdp := &decider{permitted: make(map[string][]jsontext.Value)}
	decides := httptest.NewServer(pdp)
	defer decides.Close()
	var servers []string
	upstreams := make([]string, len(wiretest.Parsers))
	for i, parser := range wiretest.Parsers {
		upstreams[i] = serving(t, parser.Command(t, "serve"))
		servers = append(servers, fmt.Sprintf("  - {name: s%d, url: %q, tools: {take: {mapping: *all}, danger: {mapping: *all}}}", i, upstreams[i]))
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, config, fmt.Sprintf(`
listen: 127.0.0.1:0
state: %s
pdp: {url: %q, timeout: 10s}
identity: {local: {type: user, id: alice}}
servers:
`, filepath.Join(t.TempDir(), "state"), decides.URL)+strings.ReplaceAll(strings.Join(servers, "\n"), "*all", `'{"evaluation":{"action":{"name":"tools/call"},"resource":{"type":"tool","id":"$params.name"},"context":{"params":"$params"}}}'`)+"\n")
	gateway := serving(t, exec.Command("mcp-gateway", "serve", "--config", config))
	for i, parser := range wiretest.Parsers {
		t.Run(parser.Name, func(t *testing.T) {
			passed := 0
			for _, m := range messages(n) {
				answer := send(t, fmt.Sprintf("%s/s%d/mcp", gateway, i), m)
				permitted, read := pdp.take(fmt.Sprintf("s%d", i)), told(t, upstreams[i])
				if len(permitted) != len(read) || len(read) > 1 || len(read) == 1 && !wiretest.Same(permitted[0], read[0]) {
					t.Errorf("%q: the PDP permitted %s, the server reads %s; the client got %s", m, permitted, read, answer)
				}
				passed += len(read)
			}
			if passed < n/2 || passed > 4*n {
				t.Errorf("%d messages were let through", passed)
			}
			t.Logf("%d messages, %d let through", len(messages(n)), passed)
		})
		t.Run(parser.Name+", passed on as they came", func(t *testing.T) {
			wrong := 0
			for _, letter := range letters {
				var call struct {
					Params struct {
						Name string `json:"name"`
					} `json:"params"`
				}
				if stdjson.NewDecoder(strings.NewReader(letter)).Decode(&call) != nil || call.Params.Name == "danger" {
					continue
				}
				send(t, upstreams[i], []byte(letter))
				for _, read := range told(t, upstreams[i]) {
					if bytes.Contains(read, wiretest.Told("danger")) {
						wrong++
					}
				}
			}
			if wrong == 0 {
				t.Error("the servers do nothing that was denied")
			}
		})
	}
}

// serving runs a program until the test ends, and returns the URL that it says.
func serving(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	url, _ := listeners(t, c)
	return url
}

// listeners runs a program until the test ends, and returns the URL that it says,
// and that of its admin listener.
func listeners(t *testing.T, c *exec.Cmd) (url, admin string) {
	t.Helper()
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if urls := listening.FindStringSubmatch(lines.Text() + "\n"); urls != nil {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return urls[1], urls[2]
		}
	}
	t.Fatalf("%s has ended:\n%s", c.Path, &said)
	return "", ""
}

// send posts a message, and returns what is answered.
func send(t *testing.T, url string, message []byte) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if bytes.Contains(message, []byte(stateless)) {
		for name, value := range map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "take"} {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// told returns what a server has read since it was asked last.
func told(t *testing.T, server string) (all []jsontext.Value) {
	t.Helper()
	if err := stdjson.Unmarshal([]byte(send(t, server+"/told", nil)), &all); err != nil {
		t.Fatal(err)
	}
	return all
}
