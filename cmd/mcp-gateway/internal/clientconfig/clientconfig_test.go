package clientconfig_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/clientconfig"
)

// guard wraps and points all servers of a file.
func guard(f *clientconfig.File) {
	for _, s := range f.Servers {
		switch {
		case s.Unsupported != "":
		case s.Command != "":
			s.Wrap("/bin/gw", "stdio", "--")
		default:
			s.Point("http://127.0.0.1:8090/x")
		}
	}
}

func isGuarded(s *clientconfig.Server) bool {
	return s.Command == "/bin/gw" || s.URL == "http://127.0.0.1:8090/x"
}

// Each edit changes the members that it must, in the form of the file, and nothing
// else. Restore gives back every byte.
func TestEdit(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"one line": {
			`{"mcpServers":{"a":{"command":"srv"}}}`,
			`{"mcpServers":{"a":{"command":"/bin/gw", "args": ["stdio", "--", "srv"]}}}`,
		},
		"one line with arguments": {
			`{"mcpServers": {"a": {"command": "srv", "args": ["x"], "env": {"K": "v"}}}, "b": 1.0e0}`,
			`{"mcpServers": {"a": {"command": "/bin/gw", "args": ["stdio", "--", "srv", "x"], "env": {"K": "v"}}}, "b": 1.0e0}`,
		},
		"no arguments": {
			`{"servers": {"a": {"args": [], "command": "srv"}}}`,
			`{"servers": {"a": {"args": ["stdio", "--", "srv"], "command": "/bin/gw"}}}`,
		},
		"lines": {
			"{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\r\n\t\t\t\"command\": \"srv\",\r\n\t\t\t\"args\": [\r\n\t\t\t\t\"x\"\r\n\t\t\t]\r\n\t\t}\r\n\t}\r\n}\r\n",
			"{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\r\n\t\t\t\"command\": \"/bin/gw\",\r\n\t\t\t\"args\": [\r\n\t\t\t\t\"stdio\",\r\n\t\t\t\t\"--\",\r\n\t\t\t\t\"srv\",\r\n\t\t\t\t\"x\"\r\n\t\t\t]\r\n\t\t}\r\n\t}\r\n}\r\n",
		},
		"comments": {
			"{ // top\n  \"servers\": {\n    // a server\n    \"a\": {\n      \"command\": \"srv\", // it runs\n      /* args */ \"args\": [ // first\n        \"x\", // last\n      ],\n    },\n  },\n}\n",
			"{ // top\n  \"servers\": {\n    // a server\n    \"a\": {\n      \"command\": \"/bin/gw\", // it runs\n      /* args */ \"args\": [\n        \"stdio\",\n        \"--\",\n        \"srv\", // first\n        \"x\", // last\n      ],\n    },\n  },\n}\n",
		},
		"a URL with headers at the end": {
			"{\"servers\": {\"a\": {\n  \"url\": \"http://h/mcp\",\n  \"headers\": {\"K\": \"v\"}\n}}}",
			"{\"servers\": {\"a\": {\n  \"url\": \"http://127.0.0.1:8090/x\"\n}}}",
		},
		"a URL with headers before it": {
			`{"servers": {"a": {"headers": {"K": "v"}, "type": "http", "url": "http://h/mcp",}}}`,
			`{"servers": {"a": { "type": "http", "url": "http://127.0.0.1:8090/x",}}}`,
		},
		"comments around headers": {
			"{\"servers\": {\"a\": {\"url\": \"http://h\", // ours\n  \"headers\": {\"K\": \"v\"} }, \"b\": {\"url\": \"http://h\", // one\n  \"headers\": {}, // two\n  \"x\": 1}}}",
			"{\"servers\": {\"a\": {\"url\": \"http://127.0.0.1:8090/x\" // ours\n }, \"b\": {\"url\": \"http://127.0.0.1:8090/x\", // one\n // two\n  \"x\": 1}}}",
		},
		"headers and a trailing comma": {
			`{"servers": {"a": {"url": "http://h/mcp", "headers": {"K": "v"},}}}`,
			`{"servers": {"a": {"url": "http://127.0.0.1:8090/x",}}}`,
		},
		"projects": {
			`{"projects": {"/p/~q": {"mcpServers": {"a": {"command": "srv"}}, "history": ["["]}}}`,
			`{"projects": {"/p/~q": {"mcpServers": {"a": {"command": "/bin/gw", "args": ["stdio", "--", "srv"]}}, "history": ["["]}}}`,
		},
		"other servers": {
			`{"mcpServers": {"a": {"type": "sse", "url": "http://h"}, "b": {"type": "sdk"}, "c": {}, "d": {"command": "x", "url": "http://h"}, "e": {"command": "x", "env": {"MCP_GATEWAY_TOKEN": "t"}}, "f": {"serverUrl": "http://h"}}}`,
			`{"mcpServers": {"a": {"type": "sse", "url": "http://h"}, "b": {"type": "sdk"}, "c": {}, "d": {"command": "x", "url": "http://h"}, "e": {"command": "x", "env": {"MCP_GATEWAY_TOKEN": "t"}}, "f": {"serverUrl": "http://h"}}}`,
		},
		"no servers": {`{"theme": "dark"}`, `{"theme": "dark"}`},
		"empty":      {" \n", " \n"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := clientconfig.Parse("f.json", []byte(test.before))
			if err != nil {
				t.Fatal(err)
			}
			guard(f)
			if diff := cmp.Diff(test.after, string(f.Bytes())); diff != "" {
				t.Error(diff)
			}
			restored(t, []byte(test.before), f.Bytes())
		})
	}
}

// restored checks that a changed file can be read and restored.
func restored(t *testing.T, before, after []byte) {
	t.Helper()
	now, err := clientconfig.Parse("f.json", after)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := clientconfig.Parse("f.json.before", before)
	if err != nil {
		t.Fatal(err)
	}
	if missing := now.Restore(earlier, isGuarded); missing != nil {
		t.Errorf("missing %q", missing)
	}
	if diff := cmp.Diff(string(before), string(now.Bytes())); diff != "" {
		t.Errorf("restored: %s", diff)
	}
}

// What was added to a file since it was changed stays when it is restored.
func TestRestoreKeepsOtherChanges(t *testing.T) {
	earlier, err := clientconfig.Parse("f", []byte(`{"mcpServers": {"a": {"command": "srv"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	now, err := clientconfig.Parse("f", []byte(`{"new": 1, "mcpServers": {"b": {"command": "b"}, "a": {"command": "/bin/gw", "args": ["stdio", "--", "srv"]}, "c": {"command": "/bin/gw"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if missing := now.Restore(earlier, isGuarded); !cmp.Equal(missing, []string{"c"}) {
		t.Errorf("missing %q", missing)
	}
	if got, want := string(now.Bytes()), `{"new": 1, "mcpServers": {"b": {"command": "b"}, "a": {"command": "srv"}, "c": {"command": "/bin/gw"}}}`; got != want {
		t.Error(got)
	}
}

// A file that is not understood is refused with every fault and its place.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"mcpServers\": {,}\n}": `f.json:2:18: it is not JSON: `,
		"\ufeff{}":                    `f.json:1:1: it is not JSON: `,
		"[]":                          `f.json:1:1: the file must be an object`,
		`{"a": 1, "a": 2}`:            `f.json:1:10: "a" is there twice`,
		`{"mcpServers": []}`:          `f.json:1:16: mcpServers must be an object`,
		"{\"mcpServers\": {\"a\": 1,\n\"b\": []}}":              "f.json:1:22: the server must be an object\nf.json:2:6: the server must be an object",
		`{"servers": {"a": {"command": ["x"]}}}`:                `f.json:1:31: command must be text`,
		`{"servers": {"a": {"command": "x", "args": 1}}}`:       `f.json:1:44: args must be a list of texts`,
		`{"servers": {"a": {"command": "x", "args": [1]}}}`:     `f.json:1:45: args must be text`,
		`{"servers": {"a": {"url": "x", "headers": {"k": 1}}}}`: `f.json:1:49: a header must be text`,
		`{"servers": {"a": {"command": "x", "env": 1}}}`:        `f.json:1:43: env must be an object`,
		`{"servers": {"a": {}, "\u0061": {}}}`:                  `f.json:1:23: "a" is there twice`,
		`{"projects": 1}`:                                       `f.json:1:14: projects must be an object`,
		strings.Repeat("[", 1000):                               `f.json:1:201: the nesting has more than 200 levels`,
	} {
		_, err := clientconfig.Parse("f.json", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

const secretFile = `{
  "apiKey": "top-secret", // secret-comment
  "servers": {
    "a": {"command": "srv", "args": ["x"], "env": {"K": "env-secret"}},
    "b": {"type": "http", "url": "https://u:url-secret@h/mcp?key=query-secret", "headers": {"Authorization": "Bearer header-secret"}}, /* secret-comment */
  },
}`

// What is shown has the commands, the addresses and the names, and no secrets.
func TestMasked(t *testing.T) {
	f, err := clientconfig.Parse("f.json", []byte(secretFile))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "apiKey": "***", // ***
  "servers": {
    "a": {"command": "srv", "args": ["x"], "env": {"K": "***"}},
    "b": {"type": "http", "url": "https://u:***@h/mcp?***", "headers": {"Authorization": "***"}}, /* *** */
  },
}`
	if diff := cmp.Diff(want, string(f.Masked())); diff != "" {
		t.Error(diff)
	}
	if string(f.Bytes()) != secretFile {
		t.Error("the file itself is masked")
	}
}

// Whatever a file has, its servers can be guarded and restored byte by byte, and a
// file of plain JSON stays one.
func FuzzParse(f *testing.F) {
	f.Add([]byte(secretFile))
	f.Add([]byte(`{"mcpServers":{"a":{"command":"srv"}}}`))
	f.Add([]byte("{\"servers\": {\"a\": {\n  \"url\": \"http://h/mcp\",\n  \"headers\": {\"K\": \"v\"}\n}}}"))
	f.Add([]byte(`{"projects": {"/p/~q": {"mcpServers": {"a": {/**/"args"/**/:/**/[/**/],"command": "srv"}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := clientconfig.Parse("f.json", text)
		if err != nil {
			return
		}
		if !bytes.Equal(file.Bytes(), text) {
			t.Fatalf("%q is written as %q", text, file.Bytes())
		}
		for _, s := range file.Servers {
			if isGuarded(s) {
				return
			}
		}
		before, err := hujson.Parse(text)
		standard := err == nil && before.IsStandard()
		guard(file)
		after, err := hujson.Parse(file.Bytes())
		if err == nil && standard != after.IsStandard() && standard {
			t.Errorf("%q is not plain JSON any more: %q", text, file.Bytes())
		}
		restored(t, text, file.Bytes())
		if _, err := clientconfig.Parse("f.json", file.Masked()); err != nil {
			t.Errorf("masked: %v", err)
		}
	})
}
