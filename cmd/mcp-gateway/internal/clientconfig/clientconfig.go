// Package clientconfig reads and edits the files in which MCP clients configure
// servers: claude_desktop_config.json of Claude Desktop, .mcp.json and
// ~/.claude.json of Claude Code, and mcp.json of Cursor and of Visual Studio Code.
//
// All of them are JSON objects that map names to servers, and VS Code permits
// comments and trailing commas. A file is edited in place: whatever is not a
// changed member of a server keeps its bytes, so that [File.Restore] gives back the
// original file.
//
// A client expands variables such as ${input:token} in the values of a server
// before it uses them. This package does not know their values.
package clientconfig

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Limits of a file. Claude Code keeps the history of its projects in one.
const (
	maxBytes = 64 << 20
	maxDepth = 200
)

// A File is the configuration of a client.
type File struct {
	Path    string
	Servers []*Server // in the order of the file
	root    hujson.Value
	text    []byte
}

// A Server is an entry of a file.
type Server struct {
	Name    string
	Group   string // JSON pointer of the object that has the entry, as in /mcpServers
	Command string // of a server on standard input and output
	Args    []string
	URL     string // of a server over HTTP
	Headers []Header
	// Known are the other members of the entry that tell servers apart, as JSON.
	Known string
	// Unsupported is why the gateway cannot guard the server, or "".
	Unsupported string
	// OAuth: the client is configured to log in to the server.
	OAuth bool

	Line, Column int // of the name
	entry        *hujson.Value
}

// A Header is one that the client sends to a server.
type Header struct{ Name, Value string }

// Parse parses a file. The error has all faults, each a [yamldoc.Fault].
func Parse(path string, text []byte) (*File, error) {
	f := &File{Path: path, text: text}
	if len(bytes.TrimSpace(text)) == 0 {
		return f, nil
	}
	if len(text) > maxBytes {
		return nil, yamldoc.Fault{File: path, Message: fmt.Sprintf("the file has more than %d bytes", maxBytes)}
	}
	if at := tooDeep(text); at >= 0 {
		return nil, f.fault(at, fmt.Sprintf("the nesting has more than %d levels", maxDepth))
	}
	var err error
	if f.root, err = hujson.Parse(text); err != nil {
		return nil, f.syntax(err)
	}
	r := &reader{File: f}
	r.file()
	return f, yamldoc.Errors(r.faults)
}

// fault returns a fault at an offset.
func (f *File) fault(offset int, message string) yamldoc.Fault {
	before := f.text[:min(offset, len(f.text))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return yamldoc.Fault{File: f.Path, Line: bytes.Count(before, []byte{'\n'}) + 1, Column: len(before) - line + 1, Message: message}
}

// syntaxError is an error of hujson, which has the place in its text alone.
var syntaxError = regexp.MustCompile(`^hujson: line (\d+), column (\d+): (?s:(.*))$`)

func (f *File) syntax(err error) error {
	found := syntaxError.FindStringSubmatch(err.Error())
	if found == nil {
		return yamldoc.Fault{File: f.Path, Message: err.Error()}
	}
	line, _ := strconv.Atoi(found[1])
	column, _ := strconv.Atoi(found[2])
	return yamldoc.Fault{File: f.Path, Line: line, Column: column, Message: "it is not JSON: " + found[3]}
}

// tooDeep returns the offset at which values nest too deep, or -1. The parser
// recurses.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			i += comment(text[i:])
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// comment returns the length of the comment at the beginning of text, less one.
func comment(text []byte) int {
	end := -1
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		end = bytes.IndexByte(text, '\n')
	case bytes.HasPrefix(text, []byte("/*")):
		if end = bytes.Index(text[2:], []byte("*/")); end >= 0 {
			end += 3
		}
	default:
		return 0
	}
	if end < 0 {
		return len(text)
	}
	return end
}

// A reader reads the servers of a file.
type reader struct {
	*File
	faults []yamldoc.Fault
}

func (r *reader) fail(at *hujson.Value, format string, args ...any) {
	r.faults = append(r.faults, r.fault(at.StartOffset, fmt.Sprintf(format, args...)))
}

// file reads the servers of all places where a client has some.
func (r *reader) file() {
	top := r.object(&r.root, "the file")
	if top == nil {
		return
	}
	for _, name := range []string{"mcpServers", "servers"} {
		if group := member(top, name); group != nil {
			r.group("/"+name, group)
		}
	}
	projects := member(top, "projects") // of Claude Code
	if projects == nil {
		return
	}
	for _, project := range r.members(projects, "projects") {
		name := text(&project.Name)
		if all := r.object(&project.Value, "the project"); all != nil {
			if group := member(all, "mcpServers"); group != nil {
				r.group("/projects/"+escape(name)+"/mcpServers", group)
			}
		}
	}
}

// object returns the object of a value. Its names must differ.
func (r *reader) object(v *hujson.Value, what string) *hujson.Object {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		r.fail(v, "%s must be an object", what)
		return nil
	}
	names := make(map[string]bool)
	for i := range object.Members {
		name := text(&object.Members[i].Name)
		if names[name] {
			r.fail(&object.Members[i].Name, "%q is there twice", name)
			return nil
		}
		names[name] = true
	}
	return object
}

func (r *reader) members(v *hujson.Value, what string) []hujson.ObjectMember {
	if object := r.object(v, what); object != nil {
		return object.Members
	}
	return nil
}

// group reads the servers of one object.
func (r *reader) group(pointer string, v *hujson.Value) {
	object := r.object(v, strings.TrimPrefix(pointer, "/"))
	if object == nil {
		return
	}
	for i := range object.Members {
		m := &object.Members[i]
		entry := r.object(&m.Value, "the server")
		if entry == nil {
			continue
		}
		at := r.fault(m.Name.StartOffset, "")
		s := &Server{Name: text(&m.Name), Group: pointer, Line: at.Line, Column: at.Column, entry: &m.Value}
		r.server(s, entry)
		r.Servers = append(r.Servers, s)
	}
}

// server reads the members of an entry.
func (r *reader) server(s *Server, entry *hujson.Object) {
	kind := ""
	known := hujson.Object{}
	for i := range entry.Members {
		m := &entry.Members[i]
		switch name := text(&m.Name); name {
		case "type", "transport":
			kind = r.text(&m.Value, name)
		case "command":
			s.Command = r.text(&m.Value, name)
		case "args":
			s.Args = r.texts(&m.Value, name)
		case "url", "serverUrl":
			s.URL = r.text(&m.Value, name)
		case "headers":
			s.Headers = r.headers(&m.Value)
		case "oauth", "auth", "headersHelper":
			s.OAuth = true
		case "env", "envFile", "cwd":
			known.Members = append(known.Members, *m)
			if name == "env" {
				r.environment(s, &m.Value)
			}
		}
	}
	if len(known.Members) > 0 {
		v := hujson.Value{Value: &known}
		v = v.Clone()
		v.Minimize()
		s.Known = string(v.Pack())
	}
	s.decideKind(kind, entry)
}

// decideKind says why a server cannot be guarded.
func (s *Server) decideKind(kind string, entry *hujson.Object) {
	switch {
	case s.Unsupported != "":
	case s.Command != "" && s.URL != "":
		s.Unsupported = "it has both a command and a URL"
	case s.Command != "" && (kind == "" || kind == "stdio"):
	case s.URL != "" && member(entry, "url") == nil:
		s.Unsupported = "its URL is not at url"
	case s.URL != "" && (kind == "" || slices.Contains([]string{"http", "streamable-http", "streamableHttp"}, kind)):
	case kind != "":
		s.Unsupported = fmt.Sprintf("the gateway does not speak %q", kind)
	default:
		s.Unsupported = "it has neither a command nor a URL"
	}
}

// gatewayVariables begins the names of variables that would configure the gateway
// in place of the server.
const gatewayVariables = "MCP_GATEWAY_"

func (r *reader) environment(s *Server, v *hujson.Value) {
	for _, m := range r.members(v, "env") {
		if strings.HasPrefix(text(&m.Name), gatewayVariables) {
			s.Unsupported = "its environment sets " + text(&m.Name) + ", which is a variable of the gateway"
		}
	}
}

func (r *reader) text(v *hujson.Value, what string) string {
	if v.Value.Kind() != '"' {
		r.fail(v, "%s must be text", what)
		return ""
	}
	return text(v)
}

func (r *reader) texts(v *hujson.Value, what string) (all []string) {
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		r.fail(v, "%s must be a list of texts", what)
		return nil
	}
	for i := range array.Elements {
		all = append(all, r.text(&array.Elements[i], what))
	}
	return all
}

func (r *reader) headers(v *hujson.Value) (all []Header) {
	for _, m := range r.members(v, "headers") {
		all = append(all, Header{text(&m.Name), r.text(&m.Value, "a header")})
	}
	return all
}

// text returns the text of a string.
func text(v *hujson.Value) string {
	literal, _ := v.Value.(hujson.Literal)
	return literal.String()
}

// member returns the value of a member, or nil.
func member(object *hujson.Object, name string) *hujson.Value {
	for i := range object.Members {
		if text(&object.Members[i].Name) == name {
			return &object.Members[i].Value
		}
	}
	return nil
}

// escape writes a name as a part of a JSON pointer.
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// UsesVariable reports whether a client would expand a part of the text.
func UsesVariable(text string) bool { return strings.Contains(text, "${") }
