package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	const calls = 1000
	took := map[string][]time.Duration{}
	for i := range calls + 50 { // the first ones warm up
		for _, url := range []string{direct, through} {
			begun := time.Now()
			read(t, url)
			if i >= 50 {
				took[url] = append(took[url], time.Since(begun))
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
	flush := flushTime(t, filepath.Dir(s.config))
	t.Logf("a flush of the disk takes %v; a call through the gateway waits for two: of the PDP's decision and of the call", flush)
	for _, clients := range []int{1, 16, 64} {
		alone, used := throughput(t, direct, clients), processorTime(t, gateway)
		guarded := throughput(t, through, clients)
		used = processorTime(t, gateway) - used
		t.Logf("%d clients: %.0f calls/s direct, %.0f through the gateway: %.0f %%; it takes %v of processor time a call",
			clients, alone, guarded, 100*guarded/alone, (used / time.Duration(guarded*throughputTime.Seconds())).Round(time.Microsecond))
	}

	before := resident(t, gateway)
	for i := range calls {
		answer := post(t, through, "write", fmt.Sprintf("%d %s", i, strings.Repeat("x", 10_000)))
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

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// post calls a tool with a text, and returns the answer.
func post(t *testing.T, url, tool, text string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, text)
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
	}
	response, err := client.Do(request)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return string(answer)
}

// read calls the tool read.
func read(t *testing.T, url string) {
	t.Helper()
	if answer := post(t, url, "read", "x"); !strings.Contains(answer, "nothing is written") {
		t.Errorf("the answer is %s", answer)
	}
}

const throughputTime = 3 * time.Second

// throughput returns the calls per second of some clients that each call again once
// they are answered.
func throughput(t *testing.T, url string, clients int) float64 {
	t.Helper()
	var group sync.WaitGroup
	var calls atomic.Int64
	begun := time.Now()
	for range clients {
		group.Go(func() {
			for time.Since(begun) < throughputTime && !t.Failed() {
				read(t, url)
				calls.Add(1)
			}
		})
	}
	group.Wait()
	return float64(calls.Load()) / time.Since(begun).Seconds()
}

// flushTime returns the median time to append an entry of the usual size to a file
// and to flush it.
func flushTime(t *testing.T, dir string) time.Duration {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "flushed"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var took []time.Duration
	for range 200 {
		begun := time.Now()
		_, err := file.Write(make([]byte, 800))
		if err := errors.Join(err, file.Sync()); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// processorTime is what a process has used, also in the kernel.
func processorTime(t *testing.T, c *exec.Cmd) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // of a tick
}

// resident is the memory of a process, in bytes, but for what is of files.
func resident(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	bytes, err := residentOf(c.Process.Pid)
	if err != nil {
		t.Skip(err)
	}
	return bytes
}

// residentOf returns the memory of a process. It fails for one that has ended, and
// where the kernel does not tell.
func residentOf(pid int) (bytes int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return 0, errors.New("the kernel does not tell")
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	return kilobytes << 10, err
}
