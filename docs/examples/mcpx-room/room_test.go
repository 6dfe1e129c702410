package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/conformance/docpage"
)

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// builds is the directory of the programs that the tests have built.
var builds string

// programs builds the room and the PDP once, and returns the directory that they are in.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mcpx-room-")
	if err != nil {
		return "", err
	}
	builds = dir
	for program, flags := range map[string][]string{".": buildFlags, "../../../cmd/policy-service": nil} {
		out, err := exec.Command("go", slices.Concat([]string{"build"}, flags, []string{"-o", dir + "/", program})...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	return dir, nil
})

// A program that a test has started.
type program struct {
	*exec.Cmd
	output *output
}

// output is what a program has written to standard error.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan string // each line, while somebody reads them
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs a program until it says that it listens.
func start(t *testing.T, dir, name string, args ...string) *program {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{exec.Command(filepath.Join(bin, name), args...), &output{line: make(chan string, 1)}}
	p.Dir = dir
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go p.output.read(stderr)
	t.Cleanup(func() {
		p.kill()
		if strings.Contains(p.output.String(), "DATA RACE") {
			t.Error("there is a data race")
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.output)
		}
	})
	select {
	case line, ok := <-p.output.line:
		if !ok {
			t.Fatalf("%s has ended:\n%s", name, p.output)
		}
		_ = line
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not listen:\n%s", name, p.output)
	}
	return p
}

func (o *output) read(r io.Reader) {
	told := false
	for s := bufio.NewScanner(r); s.Scan(); {
		o.mu.Lock()
		fmt.Fprintln(&o.text, s.Text())
		o.mu.Unlock()
		if !told && strings.HasPrefix(s.Text(), "listening on ") {
			o.line <- s.Text()
			told = true
		}
	}
	close(o.line)
}

// kill ends a program as a crash does.
func (p *program) kill() {
	p.Process.Kill()
	p.Wait()
}

// A house has a PDP and a room.
type house struct {
	*testing.T
	dir          string
	pdpURL, desk string
	roomAddress  string
	pdp, room    *program
	guests       map[string]*guest // by topic and name
	values       map[string]string // what a transcript has captured
}

// tokenOf is the token of a participant.
func tokenOf(name string) string { return name + "-token" }

func hashOf(name string) string {
	sum := sha256.Sum256([]byte(tokenOf(name)))
	return hex.EncodeToString(sum[:])
}

// newHouse starts a PDP with the example's policies, and a room. Files replace those of the example.
func newHouse(t *testing.T, files map[string]string) *house {
	t.Helper()
	h := &house{T: t, dir: t.TempDir(), guests: make(map[string]*guest), values: make(map[string]string)}
	if err := os.CopyFS(filepath.Join(h.dir, "store"), os.DirFS("store")); err != nil {
		t.Fatal(err)
	}
	h.pdpURL, h.desk, h.roomAddress = "http://"+docpage.FreeAddress(t), "http://"+docpage.FreeAddress(t), docpage.FreeAddress(t)
	config, err := os.ReadFile("room.yaml")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("http://127.0.0.1:8080", h.pdpURL, "http://127.0.0.1:8081", h.desk, "127.0.0.1:8090", h.roomAddress)
	h.write("room.yaml", here.Replace(string(config)))
	for name, text := range files {
		h.write(name, text)
	}
	h.startPDP()
	h.startRoom()
	return h
}

func (h *house) write(name, text string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h *house) startPDP() {
	h.Helper()
	h.pdp = start(h.T, h.dir, "policy-service", "serve", "--policies", "store", "--state", "state", "--listen", strings.TrimPrefix(h.pdpURL, "http://"), "--admin-listen", strings.TrimPrefix(h.desk, "http://"))
}

func (h *house) startRoom() {
	h.Helper()
	h.room = start(h.T, h.dir, "mcpx-room", "--config", "room.yaml")
}

// A guest is a participant's connection.
type guest struct {
	*house
	name string
	conn *websocket.Conn
}

// patience bounds the wait for a message that has to come.
const patience = 20 * time.Second

func (h *house) dial(topic, token string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	return websocket.Dial(ctx, "ws://"+h.roomAddress+"/topics/"+topic, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
}

// join connects a participant. Its welcome is the next message.
func (h *house) join(topic, name string) *guest {
	h.Helper()
	conn, _, err := h.dial(topic, tokenOf(name))
	if err != nil {
		h.Fatalf("%s: %v", name, err)
	}
	h.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(-1)
	return &guest{h, name, conn}
}

// send sends a text as it is.
func (g *guest) send(text string) {
	g.Helper()
	if err := g.conn.Write(g.Context(), websocket.MessageText, []byte(text)); err != nil {
		g.Fatalf("%s: %v", g.name, err)
	}
}

// next returns the next message that tells of no presence.
func (g *guest) next() jsontext.Value {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	for {
		_, text, err := g.conn.Read(ctx)
		if err != nil {
			g.Fatalf("%s waits for a message: %v", g.name, err)
		}
		if !bytes.Contains(text, []byte(`"type":"presence"`)) {
			return text
		}
	}
}

// idle fails the test if a message has come that nobody has read. What the room says to nonsense comes
// after all that it has sent before.
func (g *guest) idle() {
	g.Helper()
	g.send(`{"id":"idle"}`)
	var said struct {
		Payload struct {
			About string `json:"about"`
		} `json:"payload"`
	}
	text := g.next()
	if err := json.Unmarshal(text, &said); err != nil || said.Payload.About != "idle" {
		g.Errorf("%s got a message that was not expected: %s", g.name, text)
	}
}
