package console_test

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// A cable carries TCP connections between browsers and a server, and can be cut.
type cable struct {
	url string // by which browsers reach the server

	to   string
	mu   sync.Mutex
	cut  bool
	open map[net.Conn]*bool // ends of connections, and whether they carry nothing any more
}

// newCable lays a cable to a URL.
func newCable(t testing.TB, url string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{url: "http://" + l.Addr().String(), to: strings.TrimPrefix(url, "http://"), open: make(map[net.Conn]*bool)}
	t.Cleanup(func() { l.Close(); c.drop() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(from)
		}
	}()
	return c
}

// carry carries one connection.
func (c *cable) carry(from net.Conn) {
	to, err := net.Dial("tcp", c.to)
	if err != nil {
		from.Close()
		return
	}
	lost := new(bool)
	c.mu.Lock()
	cut := c.cut
	c.open[from], c.open[to] = lost, lost
	c.mu.Unlock()
	var both sync.WaitGroup
	if !cut {
		both.Go(func() { c.copy(to, from, lost) })
		both.Go(func() { c.copy(from, to, lost) })
	} else {
		from.Close()
		to.Close()
	}
	both.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, from)
	delete(c.open, to)
}

// copy carries what comes from one end to the other, until an end is closed.
func (c *cable) copy(to, from net.Conn, lost *bool) {
	defer to.Close()
	part := make([]byte, 1<<16)
	for {
		n, err := from.Read(part)
		if err != nil {
			return
		}
		c.mu.Lock()
		gone := *lost
		c.mu.Unlock()
		if gone {
			continue
		}
		if _, err := to.Write(part[:n]); err != nil {
			return
		}
	}
}

// drop ends all connections, and refuses further ones until [cable.mend].
func (c *cable) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for end := range c.open {
		end.Close()
	}
}

// hush has connections carry nothing any more without their ends knowing, and refuses further ones.
func (c *cable) hush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, lost := range c.open {
		*lost = true
	}
}

// mend lets further connections through.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}
