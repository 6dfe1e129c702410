package setup

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// starter are the policies of a new gateway. USER stands for the id of the caller,
// as a text of Cedar and of YAML.
//
//go:embed starter
var starter embed.FS

// header begins a new configuration.
const header = `# Written by mcp-gateway init. docs/reference/mcp-gateway.md explains each key.
#
# mode: observe forwards each call and records what the policies say of it. Look at
# that with mcp-gateway observed, permit what you need in policies, and then set
# mode: enforce, here or for one server.
mode: observe
listen: %s
state: state
pdp: {url: %s}
identity: {local: {type: user, id: %s}}
servers:
`

// configuration returns the text of the gateway's configuration with the added
// servers.
func (p *Plan) configuration() ([]byte, error) {
	if len(p.added) == 0 {
		return p.text, nil
	}
	if p.text == nil {
		text := fmt.Sprintf(header, quote(p.cfg.Listen), quote(p.cfg.PDP), quote(p.cfg.User))
		return []byte(text + p.entries("  ")), nil
	}
	return p.extended()
}

// quote writes a printable text for YAML and for Cedar.
func quote(text string) string { return strconv.Quote(text) }

// entries returns the added servers as elements of a list.
func (p *Plan) entries(indent string) string {
	var b strings.Builder
	for _, s := range p.added {
		fmt.Fprintf(&b, "%s- name: %s\n", indent, s.name)
		if p.gateway != nil && !p.gateway.Observes {
			fmt.Fprintf(&b, "%s  mode: observe\n", indent)
		}
		if s.url != "" {
			fmt.Fprintf(&b, "%s  url: %s\n", indent, quote(s.url))
		}
		if s.bearer != "" {
			fmt.Fprintf(&b, "%s  bearer_file: %s\n", indent, quote(s.bearer))
		}
		if len(s.headers) > 0 {
			fmt.Fprintf(&b, "%s  header_files:\n", indent)
		}
		for _, name := range slices.Sorted(maps.Keys(s.headers)) {
			fmt.Fprintf(&b, "%s    %s: %s\n", indent, quote(name), quote(s.headers[name]))
		}
	}
	return b.String()
}

// extended adds servers to a configuration that exists, at the end of its list. The
// result is checked before it is used, so that a list in another form is refused
// and not damaged.
func (p *Plan) extended() ([]byte, error) {
	lines := strings.SplitAfter(string(p.text), "\n")
	first := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "servers:") })
	if first < 0 {
		return nil, p.byHand()
	}
	indent, end := "", first+1
	for at := first + 1; at < len(lines); at++ {
		text := strings.TrimLeft(lines[at], " ")
		switch {
		case strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#"):
			continue
		case strings.HasPrefix(text, "- ") && end == first+1:
			indent = lines[at][:len(lines[at])-len(text)]
		case end == first+1 || len(lines[at])-len(text) <= len(indent) && !strings.HasPrefix(text, "- "):
			at = len(lines)
			continue
		}
		end = at + 1
	}
	if end == first+1 {
		return nil, p.byHand()
	}
	if last := lines[end-1]; !strings.HasSuffix(last, "\n") {
		lines[end-1] = last + "\n"
	}
	return []byte(strings.Join(lines[:end], "") + p.entries(indent) + strings.Join(lines[end:], "")), nil
}

// byHand is the error of a configuration that cannot be extended.
func (p *Plan) byHand() error {
	return fmt.Errorf("%s: servers cannot be added to this list: add them by hand, and run init again:\n%s", p.path(configFile), p.entries("  "))
}

// check checks the configuration that would be written. Its secrets are no files
// yet, and a changed one must have exactly the added servers more.
func (p *Plan) check() error {
	if len(p.added) == 0 {
		return nil
	}
	text, err := p.configuration()
	if err != nil {
		return err
	}
	result, err := p.cfg.Read(p.path(configFile), text)
	if err != nil {
		return fmt.Errorf("the configuration that init would write is not valid: %w", err)
	}
	want := len(p.added)
	if p.gateway != nil {
		want += len(p.gateway.Endpoints)
	}
	for _, s := range p.added {
		if result.Endpoints[s.name] == "" || len(result.Endpoints) != want {
			return p.byHand()
		}
	}
	return nil
}

// policies returns the files of the starter policies, by path. There are none if
// the directory exists.
func (p *Plan) policies() (map[string][]byte, error) {
	all := make(map[string][]byte)
	if _, err := os.Stat(p.path(policiesDir)); err == nil || len(p.added) == 0 {
		return all, nil
	}
	err := fs.WalkDir(starter, "starter", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := starter.ReadFile(name)
		relative := filepath.FromSlash(strings.TrimPrefix(name, "starter/"))
		all[p.path(policiesDir, relative)] = []byte(strings.ReplaceAll(string(text), "USER", quote(p.cfg.User)))
		return err
	})
	return all, err
}
