//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/labstack/echo/v4"
)

// evaluationPath is where every server answers but OPA, which has paths of its own.
const evaluationPath = "/access/v1/evaluation"

// floorCommand is the first argument of this program when it serves a floor.
const floorCommand = "serve-floor"

const maxBody = 1 << 20

// floors are servers that do less than a PDP. Each runs in a process of its own.
var floors = map[string]func(dir string) (http.Handler, error){
	"net/http":   func(string) (http.Handler, error) { return decoded(func([]byte) error { return nil }), nil },
	"durability": newDurabilityFloor,
	"echo":       func(string) (http.Handler, error) { return bareEcho(), nil },
	"cedar-go":   newCedarLoop,
}

// serveFloor serves a floor until the process ends. It prints its address as
// policy-service does.
func serveFloor(name, dir string) error {
	start, ok := floors[name]
	if !ok {
		return fmt.Errorf("no floor is named %q", name)
	}
	handler, err := start(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listening on http://%s\n", listener.Addr())
	return http.Serve(listener, handler)
}

// decoded reads and decodes a request, has its body recorded, and answers what
// depends on neither.
func decoded(record func(body []byte) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "read the body", http.StatusBadRequest)
			return
		}
		var asked request
		if err := json.Unmarshal(body, &asked); err != nil {
			http.Error(w, "decode the body", http.StatusBadRequest)
			return
		}
		if err := record(body); err != nil {
			http.Error(w, "record the body", http.StatusServiceUnavailable)
			return
		}
		answer(w, true)
	})
}

func answer(w http.ResponseWriter, decision bool) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"decision":%t}`, decision)
}

// bareEcho reads the body, decodes nothing and answers a constant: the router
// that policy-service has, and nothing else.
func bareEcho() http.Handler {
	router := echo.New()
	router.POST(evaluationPath, func(c echo.Context) error {
		if _, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(`{"decision":true}`))
	})
	return router
}

// A groupCommit writes and flushes together the bodies that callers have at the
// same time: no index, no hashes, no reader.
type groupCommit struct {
	file *os.File
	wake chan struct{} // holds one token while next has bodies
	mu   sync.Mutex
	next *group
	at   int64
}

// A group is what one fdatasync puts on disk.
type group struct {
	bodies []byte
	done   chan struct{} // closed after the flush
	err    error         // set before done is closed
}

// groupBytes is where the file begins again. It is written in full at the start,
// so that no flush has to record a new length.
const groupBytes = 4 << 20

func newDurabilityFloor(dir string) (http.Handler, error) {
	file, err := os.Create(filepath.Join(dir, "bodies"))
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(make([]byte, groupBytes+maxBody)); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	g := &groupCommit{file: file, wake: make(chan struct{}, 1), next: newGroup()}
	go g.commit()
	return decoded(g.append), nil
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// append returns when the body is on disk.
func (g *groupCommit) append(body []byte) error {
	g.mu.Lock()
	current := g.next
	current.bodies = append(append(current.bodies, body...), '\n')
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	<-current.done
	return current.err
}

// commit runs for as long as the process does.
func (g *groupCommit) commit() {
	for range g.wake {
		g.mu.Lock()
		current := g.next
		g.next = newGroup()
		g.mu.Unlock()
		current.err = g.flush(current.bodies)
		close(current.done)
	}
}

func (g *groupCommit) flush(bodies []byte) error {
	if g.at > groupBytes {
		g.at = 0
	}
	n, err := g.file.WriteAt(bodies, g.at)
	if err != nil {
		return err
	}
	g.at += int64(n)
	return syscall.Fdatasync(int(g.file.Fd()))
}
