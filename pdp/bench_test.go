package pdp_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	throughputDuration = flag.Duration("throughput.duration", 2*time.Second, "how long BenchmarkThroughput measures, all together")
	throughputClients  = flag.Int("throughput.clients", 32, "keep-alive connections of BenchmarkThroughput")
	throughputPolicies = flag.Int("throughput.policies", 10, "policies that decide in BenchmarkThroughput")
	throughputBatched  = flag.Bool("throughput.batched", false, "have the log of BenchmarkThroughput batched, not strict")
)

// BenchmarkThroughput measures the service beside a bare echo handler that
// reads the same body and answers a constant: over loopback HTTP, with the
// same cheap client, in rounds that take turns, so that what else the machine
// does meets both. It reports requests a second and latencies of both, their
// ratio, and beside them how long a lone commit of the log takes.
func BenchmarkThroughput(b *testing.B) {
	durability := decisionlog.Strict
	if *throughputBatched {
		durability = decisionlog.Batched
	}
	program := slog.New(slog.DiscardHandler)
	s := start(b, pdp.Config{Policies: numbered(*throughputPolicies), Durability: durability, Log: program})
	floor := newLoad(b, bareEcho(b, program))
	service := newLoad(b, strings.TrimPrefix(s.main, "http://"))
	commits := newCommits(b)
	for b.Loop() {
		const rounds = 5
		slice := *throughputDuration / (rounds * 21) // 10 parts for each, 1 for the commits
		for range rounds {
			floor.run(b, 10*slice)
			service.run(b, 10*slice)
			commits.run(b, slice)
		}
	}
	b.ReportMetric(0, "ns/op") // means nothing here
	b.ReportMetric(floor.rate(), "echo-req/s")
	b.ReportMetric(service.rate(), "pdp-req/s")
	b.ReportMetric(service.rate()/floor.rate(), "ratio")
	for name, l := range map[string]*load{"echo": floor, "pdp": service} {
		b.ReportMetric(milliseconds(quantile(l.latencies, 0.50)), name+"-p50-ms")
		b.ReportMetric(milliseconds(quantile(l.latencies, 0.99)), name+"-p99-ms")
	}
	b.ReportMetric(milliseconds(quantile(commits.latencies, 0.50)), "commit-p50-ms")
	b.ReportMetric(milliseconds(quantile(commits.latencies, 0.99)), "commit-p99-ms")
}

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

// bareEcho serves what nothing that reads a body over echo can be faster than.
func bareEcho(b *testing.B, program *slog.Logger) (address string) {
	b.Helper()
	router := echo.New()
	router.POST(authzen.PathEvaluation, func(c echo.Context) error {
		if _, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, 1<<20)); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(`{"decision":true}`))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := pdp.NewServer(router, program)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with Close
	}()
	b.Cleanup(func() {
		server.Close()
		<-ended
	})
	return listener.Addr().String()
}

// A load is a number of connections that ask as fast as they are answered.
type load struct {
	connections []*connection
	latencies   []time.Duration
	elapsed     time.Duration
}

func newLoad(b *testing.B, address string) *load {
	b.Helper()
	l := new(load)
	for range *throughputClients {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		l.connections = append(l.connections, &connection{conn: conn, reader: bufio.NewReader(conn), request: fmt.Appendf(nil,
			"POST %s HTTP/1.1\r\nHost: pdp\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", authzen.PathEvaluation, len(benchBody), benchBody)})
	}
	return l
}

// run asks for so long.
func (l *load) run(b *testing.B, duration time.Duration) {
	b.Helper()
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
			b.Fatal(c.err)
		}
		l.latencies = append(l.latencies, c.latencies...)
	}
}

func (l *load) rate() float64 { return float64(len(l.latencies)) / l.elapsed.Seconds() }

// A connection is a client that costs next to nothing: it knows of HTTP what
// the two servers make use of.
type connection struct {
	conn      net.Conn
	reader    *bufio.Reader
	request   []byte
	latencies []time.Duration
	err       error
}

func (c *connection) ask() error {
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
	if length != len(`{"decision":true}`) {
		return fmt.Errorf("answered a body of %d bytes", length)
	}
	_, err = c.reader.Discard(length)
	return err
}

// commits are appends to a strict log of their own, one after the other.
type commits struct {
	log       *decisionlog.Log
	latencies []time.Duration
}

func newCommits(b *testing.B) *commits {
	b.Helper()
	log, err := decisionlog.Open(b.TempDir(), decisionlog.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return &commits{log: log}
}

func (c *commits) run(b *testing.B, duration time.Duration) {
	b.Helper()
	for started, before := time.Now(), time.Now(); before.Sub(started) < duration; before = time.Now() {
		err := c.log.Append(context.Background(), &decisionlog.Entry{
			ID: "commit", Time: before, Kind: decisionlog.KindEvaluation, Request: jsontext.Value(benchBody), Result: new(decisionlog.Result),
		})
		if err != nil {
			b.Fatal(err)
		}
		c.latencies = append(c.latencies, time.Since(before))
	}
}

// quantile returns the latency that the share q of all does not exceed.
func quantile(latencies []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[int(q*float64(len(sorted)-1))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
