package endpoint_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
)

// Events are passed on with what they have, whatever ends their lines (WHATWG
// HTML, "Server-sent events").
func TestEvents(t *testing.T) {
	for _, test := range []struct{ stream, want string }{
		{"data: a\n\n", "data: a\n\n"},
		{"data:a\r\n\r\n", "data: a\n\n"},
		{"data: a\r\r", "data: a\n\n"},
		{"event: message\nid: 1\nretry: 10\ndata: {}\n\n", "event: message\nid: 1\nretry: 10\ndata: {}\n\n"},
		{"id: 1\ndata\n\n", "id: 1\ndata: \n\n"},
		{"retry: soon\nid: a\x00b\nfoo: bar\ndata: a\n\n", "data: a\n\n"},
		{": hello\n\ndata: a\n\n", ":\n\ndata: a\n\n"},
		{"data: a\n: hello\n\n", "data: a\n\n"},
		{"\n\n\ndata: a\n\n\n\n", "data: a\n\n"},
		{"data: a\n\ndata: b\n", "data: a\n\n"},
		{"data: a", ""},
	} {
		for _, r := range []io.Reader{strings.NewReader(test.stream), iotest.OneByteReader(strings.NewReader(test.stream))} {
			got, err := endpoint.Rewrite(r, 1<<10)
			if string(got) != test.want || !errors.Is(err, io.EOF) {
				t.Errorf("%q becomes %q, %v", test.stream, got, err)
			}
		}
	}
	for _, large := range []string{"data: " + strings.Repeat("x", 100) + "\n\n", strings.Repeat("data: x\n", 100), strings.Repeat("x", 1000)} {
		if got, err := endpoint.Rewrite(strings.NewReader(large), 50); len(got) > 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%.20q… becomes %q, %v", large, got, err)
		}
	}
}

// A server that sends a long event byte by byte takes time in proportion to its length. The
// bound is about a hundred times of that.
func TestEventInSmallPieces(t *testing.T) {
	const size = 256 << 10
	begun := time.Now()
	stream := endpoint.NewEventReader(iotest.OneByteReader(strings.NewReader("data: "+strings.Repeat("x", size)+"\n\n")), 1<<20)
	e, err := stream.Next()
	if err != nil || len(e.Data) != size {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("an event of %d bytes took %s", size, took)
	}
}

// What was written is read as what was read.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: message\r\nid: 1\rretry: 10\ndata: {}\n\n: x\n\n"))
	f.Add([]byte("data\n\nid\n\nid:\n\nevent\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		once, _ := endpoint.Rewrite(bytes.NewReader(stream), 1<<16)
		twice, err := endpoint.Rewrite(bytes.NewReader(once), 1<<16)
		if !bytes.Equal(once, twice) || !errors.Is(err, io.EOF) {
			t.Errorf("%q becomes %q, and that %q, %v", stream, once, twice, err)
		}
	})
}
