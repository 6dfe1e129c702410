package main_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Each file of testdata is a conversation over WebSockets. The name of a block says what happens:
//
//	agent-a joins TOPIC      its welcome is the block
//	agent-a sends            the block
//	agent-a receives         the block, as its next message
//	FILE                     of the house, such as store/entities.json: before the programs start
//	the room is killed       and started again; everybody joins again and is welcomed
//	the PDP stops, starts
//
// A value "$NAME" in a received block takes what is there, and stands for it in later blocks. "$_" takes
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
			newConversation(t).follow(archive)
		})
	}
}

// A conversation follows a transcript.
type conversation struct {
	*house
	topic string
}

func newConversation(t *testing.T) *conversation {
	c := &conversation{house: newHouse(t)}
	for name, ahead := range map[string]time.Duration{"$IN_5M": 5 * time.Minute, "$IN_1H": time.Hour, "$AGO_1H": -time.Hour} {
		c.values[name] = time.Now().UTC().Add(ahead).Format(time.RFC3339)
	}
	return c
}

func (c *conversation) follow(archive *txtar.Archive) {
	c.Helper()
	for i, block := range archive.Files {
		c.step(block.Name, string(block.Data))
		if c.Failed() {
			c.Fatalf("at block %d: %s", i, block.Name)
		}
	}
	for _, g := range c.guests {
		g.idle()
	}
}

func (c *conversation) step(name, text string) {
	c.Helper()
	who, what, _ := strings.Cut(name, " ")
	switch {
	case strings.HasPrefix(what, "joins "):
		c.topic = strings.TrimPrefix(what, "joins ")
		c.guests[who] = c.join(c.topic, who)
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
			}
			return got
		}
	}
	return want
}
