package main_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// Each file of testdata is a conversation over WebSockets. The name of a block says what happens:
//
//	agent-a joins TOPIC      its welcome is the block
//	agent-a sends            the block
//	agent-a receives         the block, as its next message
//	agent-a receives nothing
//	store/entities.json      a file of the store: as it is from the start, or as it is now
//	policy-service ARGS      a command of an operator
//	the capability ID ends
//	a proof for OWNER:TOOL   over $TOKEN_ID and the block, which are arguments: $TIMESTAMP, $NONCE, $SIGNATURE
//	the room is killed       and is started again, with nobody in it
//	the PDP is killed
//	the PDP is started
//
// $NAME_ID is the id in a token $NAME.
// Lines that begin with # are comments. A value "$NAME" in a received block takes what is there, and stands for it in later blocks. "$_" takes
// anything. Members id and ts that a block does not have are the room's. $IN_1H is a time.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newConversation(t, archive).follow(archive)
		})
	}
}

// A conversation follows a transcript.
type conversation struct {
	*house
	key prooftest.Key // of a holder: $KEY_X
	at  string        // the block that is followed
}

func newConversation(t *testing.T, archive *txtar.Archive) *conversation {
	files := make(map[string]string)
	for _, f := range archive.Files {
		if !isFile(f.Name) {
			break
		}
		files[f.Name] = string(f.Data)
	}
	c := &conversation{house: newHouse(t, files)}
	c.key = prooftest.Ed25519()
	var jwk struct {
		X string `json:"x"`
	}
	if err := json.Unmarshal(c.key.JWK(), &jwk); err != nil {
		t.Fatal(err)
	}
	c.values["$KEY_X"] = jwk.X
	for name, ahead := range map[string]time.Duration{"$IN_5M": 5 * time.Minute, "$IN_1H": time.Hour, "$AGO_1H": -time.Hour} {
		c.values[name] = time.Now().UTC().Add(ahead).Format(time.RFC3339)
	}
	return c
}

func (c *conversation) follow(archive *txtar.Archive) {
	c.Helper()
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("at %s", c.at)
		}
	})
	begun := false
	for i, block := range archive.Files {
		if begun = begun || !isFile(block.Name); !begun {
			continue // is there from the start
		}
		c.at = fmt.Sprintf("block %d: %s", i, block.Name)
		if c.step(block.Name, comment.ReplaceAllString(string(block.Data), "")); c.Failed() {
			return
		}
	}
	for _, g := range c.guests {
		g.idle()
	}
	for _, name := range []string{"$NONCE", "$SIGNATURE"} {
		c.nowhere(c.values[name])
	}
}

// nowhere fails the test if a secret is in clear in any file or log of the programs.
func (c *conversation) nowhere(secret string) {
	c.Helper()
	if secret == "" {
		return
	}
	texts := map[string]string{"log of the room": c.room.output.String(), "log of the PDP": c.pdp.output.String()}
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	for where, text := range texts {
		if strings.Contains(text, secret) {
			c.Errorf("%q is in clear in %s", secret, where)
		}
	}
}

func (c *conversation) step(name, text string) {
	c.Helper()
	who, what, _ := strings.Cut(name, " ")
	switch {
	case isFile(name):
		c.write(name, text)
	case who == "policy-service":
		c.operate(strings.Fields(c.filled(what))...)
	case name == "the room is killed":
		c.room.kill()
		clear(c.guests)
		c.startRoom()
	case name == "the PDP is killed":
		c.pdp.kill()
	case name == "the PDP is started":
		c.startPDP()
	case strings.HasPrefix(name, "a proof for "):
		c.prove(strings.TrimPrefix(name, "a proof for "), strings.TrimSpace(text))
	case strings.HasPrefix(name, "the capability "):
		c.ends(strings.Fields(c.filled(name))[2])
	case strings.HasPrefix(what, "joins "):
		c.guests[who] = c.join(strings.TrimPrefix(what, "joins "), who)
		if strings.TrimSpace(text) == "" {
			text = `{"protocol":"mcp-x/v0","from":"gateway","to":["` + who + `"],"kind":"system","payload":{"type":"welcome","tokenType":"$_","participantId":"` + who + `"}}`
		}
		c.matches(who, text)
	case what == "sends":
		c.guests[who].send(c.filled(text))
	case what == "receives":
		c.matches(who, text)
	case what == "receives nothing":
		c.guests[who].idle()
	default:
		c.Fatalf("unknown step %q", name)
	}
}

// comment matches a line that explains what follows.
var comment = regexp.MustCompile(`(?m)^# .*\n`)

// The conversation of the README is one that happens. Each line has who does what, and the message.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```text\n")
	block, _, _ = strings.Cut(block, "```")
	archive := new(txtar.Archive)
	for line := range strings.Lines(block) {
		if words := strings.Fields(line); len(words) > 1 && words[1] == "joins" {
			archive.Files = append(archive.Files, txtar.File{Name: strings.Join(words, " ")})
		} else if len(words) > 2 && !strings.HasPrefix(line, " ") {
			archive.Files = append(archive.Files, txtar.File{Name: words[0] + " " + words[1], Data: []byte(strings.Replace(strings.Join(words[2:], " "), "{", `{"protocol":"mcp-x/v0",`, 1))})
		} else {
			last := &archive.Files[len(archive.Files)-1]
			last.Data = append(last.Data, line...)
		}
	}
	newConversation(t, archive).follow(archive)
}

// isFile reports whether a block is a file of the store.
func isFile(name string) bool { return strings.HasPrefix(name, "store/") }

// operate carries out a command of an operator.
func (c *conversation) operate(args ...string) {
	c.Helper()
	bin, err := programs()
	if err != nil {
		c.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(bin, "policy-service"), append(args, "--admin", c.desk)...).CombinedOutput()
	if err != nil {
		c.Fatalf("policy-service %s: %v\n%s", args, err, out)
	}
}

// prove makes a proof of a call.
func (c *conversation) prove(tool, arguments string) {
	proof := c.key.Proof(prooftest.Call{Arguments: arguments, Capability: c.values["$TOKEN_ID"], Tool: tool})
	c.values["$TIMESTAMP"], c.values["$NONCE"], c.values["$SIGNATURE"] = proof.Timestamp, proof.Nonce, proof.Signature
}

// ends waits until a capability has ended by itself.
func (c *conversation) ends(id string) {
	c.Helper()
	pdp := client.New(c.pdpURL, client.Config{})
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if now, err := pdp.Capability(c.Context(), id, 0); err == nil && now.Capability.Status == "expired" {
			return
		}
	}
	c.Fatalf("the capability %s does not end", id)
}

// value matches the name of a captured value.
var value = regexp.MustCompile(`\$[A-Z_0-9]+`)

// filled returns a text with what was captured.
func (c *conversation) filled(text string) string {
	return value.ReplaceAllStringFunc(text, func(name string) string {
		if v, ok := c.values[name]; ok {
			return v
		}
		return name
	})
}

// matches compares the next message of a guest with a block.
func (c *conversation) matches(who, block string) {
	c.Helper()
	got, want := c.guests[who].next(), any(nil)
	if err := json.Unmarshal([]byte(c.filled(block)), &want); err != nil {
		c.Fatalf("%s\n%s", err, block)
	}
	var message map[string]any
	if err := json.Unmarshal(got, &message); err != nil {
		c.Fatalf("%s: %v", got, err)
	}
	wanted := want.(map[string]any)
	for _, name := range []string{"id", "ts"} {
		if wanted[name] == nil {
			delete(message, name)
		}
	}
	if diff := cmp.Diff(c.captured(wanted, message), any(message)); diff != "" {
		c.Errorf("%s received %s\n(-want +got):\n%s", who, got, diff)
	}
}

// capabilityOf returns the id of the capability that a token is about, or "".
func capabilityOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		ID string `json:"jti"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.ID
}

// captured returns what is wanted, with the values that are captured now.
func (c *conversation) captured(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for name := range want {
			if _, ok := object[name]; ok {
				want[name] = c.captured(want[name], object[name])
			}
		}
	case []any:
		list, _ := got.([]any)
		for i := range min(len(want), len(list)) {
			want[i] = c.captured(want[i], list[i])
		}
	case string:
		if value.FindString(want) == want && want != "" {
			if want != "$_" {
				c.values[want] = fmt.Sprint(got)
				c.values[want+"_ID"] = capabilityOf(fmt.Sprint(got))
			}
			return got
		}
	}
	return want
}
