package decisionlog_test

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var fileBacked = regexp.MustCompile(`(?m)^RssFile:\s+(\d+) kB$`)

// fileMemory returns the bytes of files in the memory of the process.
func fileMemory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseInt(string(fileBacked.FindSubmatch(status)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// Written and read pages do not stay in the memory of the process.
func TestMapsAreReleased(t *testing.T) {
	const entries, bytes, most = 60, 900_000, 24 << 20
	before := fileMemory(t)
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	request := []byte(`{"context":{"text":"` + strings.Repeat("x", bytes) + `"}}`)
	for range entries {
		if err := l.Append(t.Context(), &decisionlog.Entry{Kind: decisionlog.KindEvaluation, Request: request, Result: &decisionlog.Result{}}); err != nil {
			t.Fatal(err)
		}
	}
	if grown := fileMemory(t) - before; grown > most {
		t.Errorf("%d MiB of files after %d MB were written", grown>>20, entries*bytes/1_000_000)
	}
	if n, err := l.Export(t.Context(), io.Discard, 0, -1); n != entries || err != nil {
		t.Fatal(n, err)
	}
	if grown := fileMemory(t) - before; grown > most {
		t.Errorf("%d MiB of files after %d MB were read", grown>>20, entries*bytes/1_000_000)
	}
	if _, err := l.Last(t.Context(), decisionlog.Filter{Subject: "user:nobody"}, 1, 0); err != nil {
		t.Fatal(err)
	}
	if grown := fileMemory(t) - before; grown > most {
		t.Errorf("%d MiB of files after %d MB were searched", grown>>20, entries*bytes/1_000_000)
	}
}
