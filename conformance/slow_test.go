package conformance_test

import (
	"context"
	"flag"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
)

var slowDuration = flag.Duration("slow.duration", 3*time.Second, "how long TestSlowClients has clients that do not go on")

const (
	// enoughSlow is from how long on there are thousands of them, and the figures
	// have to be those promised.
	enoughSlow    = 20 * time.Second
	maxSlowFactor = 1.5
	slowRate      = 300 // requests a second of the others
	slowPace      = 500 * time.Millisecond
	ownFiles      = 100 // that the service has open beside connections
)

// Clients that do not go on: each sends its beginning and then, from time to
// time, a byte of the rest, and reads nothing.
var slowClients = []struct {
	name        string
	share       int // of six
	begin, rest string
}{
	{"half a header", 4, "POST /access/v1/evaluation HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a"},
	{"half a body", 1, "POST /access/v1/evaluation HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", " "},
	{"an answer that is not read", 1, strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n", 100), "\r\n"},
}

// stall has so many clients come one after the other within a time, and not go
// on until ctx ends; who is cut off comes again.
func stall(ctx context.Context, address string, clients int, within time.Duration) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, c := range slowClients {
		of := clients * c.share / 6
		for n := range of {
			all.Go(func() {
				select {
				case <-time.After(within * time.Duration(n) / time.Duration(of)):
				case <-ctx.Done():
				}
				for ctx.Err() == nil {
					dawdle(ctx, address, c.begin, c.rest)
				}
			})
		}
	}
	return &all
}

// dawdle is one connection of such a client.
func dawdle(ctx context.Context, address, begin, rest string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	pace := time.NewTicker(slowPace)
	defer pace.Stop()
	for send := begin; ; send = rest {
		if err := conn.SetWriteDeadline(time.Now().Add(slowPace)); err != nil {
			return
		}
		if _, err := conn.Write([]byte(send)); err != nil && !isTimeout(err) {
			return // cut off
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
	}
}

// beset asks a service at a steady rate, without and then with clients that do
// not go on, and returns what became of the requests.
func beset(t *testing.T, s *server, clients int) (quiet, during *flow, files float64) {
	t.Helper()
	steady := newStream(s, "", slowRate)
	steady.peps = 64
	quiet = steady.run(*slowDuration) // as long, since a disk stalls now and then
	ctx, cancel := context.WithCancel(t.Context())
	attack := stall(ctx, steady.address, clients, *slowDuration/3)
	during = steady.run(*slowDuration)
	files = s.metrics(t)["process_open_fds"]
	cancel()
	attack.Wait()
	t.Logf("quiet:            %v", quiet)
	t.Logf("%d slow clients: %v; %.0f files are open", clients, during, files)
	return quiet, during, files
}

// L3: clients that do not go on take no more than their connections, and those
// for a while; the others are answered as ever. In the control they take all
// connections that there are.
func TestSlowClients(t *testing.T) {
	underLoad(t)
	clients := 300
	if *slowDuration >= enoughSlow {
		clients = 3000
	}
	s := serve(t, "certification")
	before := s.metrics(t)["process_open_fds"]
	quiet, during, files := beset(t, s, clients)
	during.clean(t)
	if during.failed() > during.due/100 && *slowDuration >= enoughSlow {
		t.Errorf("%d of %d requests were not answered", during.failed(), during.due)
	}
	if files > float64(clients+64+ownFiles) {
		t.Errorf("%.0f files are open", files)
	}
	process.Eventually(t, "their connections are closed", func() bool { return s.metrics(t)["process_open_fds"] <= before+ownFiles })
	factor := float64(during.p(99)) / float64(quiet.p(99))
	t.Logf("p99 is %.2f of the quiet one", factor)
	if factor > maxSlowFactor && *slowDuration >= enoughSlow {
		t.Errorf("p99 is more than %.1f of the quiet one", maxSlowFactor)
	}

	_, starved, _ := beset(t, serve(t, "certification", "--max-connections", "20"), clients)
	if starved.failed() <= max(starved.due/100, during.failed()) {
		t.Errorf("with 20 connections %d of %d requests were not answered beside %d slow clients, and %d without that limit",
			starved.failed(), starved.due, clients, during.failed())
	}
}
