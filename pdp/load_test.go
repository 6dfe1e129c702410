package pdp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// numbered returns a store of n policies, one for each of n users.
func numbered(n int) fs.FS {
	var policies, entities strings.Builder
	for i := range n {
		fmt.Fprintf(&policies, "@id(\"user-%d-reads\")\npermit (principal == user::\"user-%[1]d\", action == Action::\"read\", resource in folder::\"records\");\n", i)
		fmt.Fprintf(&entities, "{\"uid\":{\"type\":\"user\",\"id\":\"user-%d\"},\"attrs\":{},\"parents\":[]},\n", i)
	}
	entities.WriteString(`{"uid":{"type":"folder","id":"records"},"attrs":{},"parents":[]},
{"uid":{"type":"record","id":"record-1"},"attrs":{"status":"active"},"parents":[{"type":"folder","id":"records"}]}`)
	return fstest.MapFS{
		"users.cedar":   {Data: []byte(policies.String())},
		"entities.json": {Data: []byte("[" + entities.String() + "]")},
		"schema.cedarschema": {Data: []byte(`entity user { role?: String };
entity folder;
entity record in [folder] { status?: String };
action read appliesTo { principal: [user], resource: [record], context: { time?: String } };
`)},
	}
}

// benchBody is a request that one of the numbered policies permits.
const benchBody = `{"subject":{"type":"user","id":"user-3","properties":{"role":"editor"}},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"},"context":{"time":"2026-11-20T09:30:00Z"}}`

// A load is a number of connections that ask as fast as they are answered.
type load struct {
	connections []*connection
	latencies   []time.Duration
	elapsed     time.Duration
}

func newLoad(address string, clients int, a asked) *load {
	l := new(load)
	for range clients {
		l.connections = append(l.connections, &connection{address: address, answer: a.answer, request: fmt.Appendf(nil,
			"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", a.path, len(a.body), a.body)})
	}
	return l
}

// run asks for so long.
func (l *load) run(t testing.TB, duration time.Duration) {
	t.Helper()
	started := time.Now()
	var clients sync.WaitGroup
	for _, c := range l.connections {
		clients.Go(func() {
			c.latencies = c.latencies[:0]
			for before := time.Now(); before.Sub(started) < duration; {
				if c.err = c.ask(); c.err != nil {
					return
				}
				after := time.Now()
				c.latencies = append(c.latencies, after.Sub(before))
				before = after
			}
		})
	}
	clients.Wait()
	l.elapsed += time.Since(started)
	for _, c := range l.connections {
		if c.err != nil {
			t.Fatal(c.err)
		}
		l.latencies = append(l.latencies, c.latencies...)
	}
}

func (l *load) rate() float64 { return float64(len(l.latencies)) / l.elapsed.Seconds() }

// A connection is a client that costs next to nothing: it knows of HTTP what
// the two servers make use of.
type connection struct {
	address   string
	conn      net.Conn // nil before the first request
	reader    *bufio.Reader
	request   []byte
	answer    string
	latencies []time.Duration
	err       error
}

func (c *connection) ask() error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	status, err := c.reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answered %q", status)
	}
	length := -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value[:len(value)-2])); err != nil {
				return err
			}
		}
	}
	if length != len(c.answer) {
		return fmt.Errorf("answered a body of %d bytes, not of %d", length, len(c.answer))
	}
	body, err := c.reader.Peek(length)
	if err == nil && string(body) != c.answer {
		err = fmt.Errorf("answered %s", body)
	}
	if err == nil {
		_, err = c.reader.Discard(length)
	}
	return err
}

// quantile returns the latency that the share q of all does not exceed.
func quantile(latencies []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[int(q*float64(len(sorted)-1))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
