package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// TestAddedLatency measures, in one run, what the gateway adds to a call, and what a
// thousand calls that wait cost it.
func TestAddedLatency(t *testing.T) {
	if !*others {
		t.Skip("it measures, which takes a while: make mcp")
	}
	address := docpage.FreeAddress(t)
	background(t, exec.Command("desk", address), address)
	s := set(t, "write", server("desk", "http://"+address))
	content, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.config, strings.Replace(string(content), "{hold: 30s}", "{hold: 0s, pending_per_caller: 2000, pending: 2000}", 1))
	gateway := exec.Command("mcp-gateway", "serve", "--config", s.config)
	background(t, gateway, s.gateway)

	direct, through := "http://"+address, "http://"+s.gateway+"/desk/mcp"
	post := func(url, tool, text string) (string, time.Duration) {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, text)
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
		}
		begun := time.Now()
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer), time.Since(begun)
	}
	const calls = 1000
	took := map[string][]time.Duration{}
	for i := range calls + 50 { // the first ones warm up
		for _, url := range []string{direct, through} {
			answer, d := post(url, "read", "x")
			if !strings.Contains(answer, "nothing is written") {
				t.Fatal(answer)
			}
			if i >= 50 {
				took[url] = append(took[url], d)
			}
		}
	}
	for _, url := range []string{direct, through} {
		slices.Sort(took[url])
	}
	for _, p := range []int{50, 99} {
		at := calls * p / 100
		t.Logf("p%d: %v direct, %v through the gateway: %v added", p, took[direct][at], took[through][at], took[through][at]-took[direct][at])
	}

	before := resident(t, gateway)
	for i := range calls {
		answer, _ := post(through, "write", fmt.Sprintf("%d %s", i, strings.Repeat("x", 10_000)))
		if !strings.Contains(answer, `"reason_code":"approval_pending"`) {
			t.Fatalf("%d: %s", i, answer)
		}
	}
	after := resident(t, gateway)
	t.Logf("%d calls of 10 kB wait: %d MiB resident before, %d MiB after", calls, before>>20, after>>20)
	if after-before > 100<<20 {
		t.Errorf("they take %d MiB of memory", (after-before)>>20)
	}
}

// resident is the memory of a process, in bytes, but for what is of files.
func resident(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	if err != nil {
		t.Skip(err)
	}
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("the kernel does not tell")
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
