package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/clientconfig"
	"github.com/policy-service/policy-service/evaluation/durable"
	"github.com/policy-service/policy-service/obligations/plain"
)

// BackupSuffix ends the name of the copy of a client's file.
const BackupSuffix = ".before-mcp-gateway"

// isChanged reports whether the file would be written.
func (c *client) isChanged() bool { return !bytes.Equal(c.original, c.file.Bytes()) }

// Changes reports whether the plan changes a file.
func (p *Plan) Changes() bool {
	return len(p.added) > 0 || slices.ContainsFunc(p.clients, (*client).isChanged)
}

// Show prints what becomes of each server.
func (p *Plan) Show(w io.Writer) error {
	var b bytes.Buffer
	if len(p.clients) == 0 {
		b.WriteString("No client is configured: name its file, or run init in the directory of its project.\n")
	}
	for _, c := range p.clients {
		c.show(&b)
	}
	_, err := io.WriteString(w, plain.Lines(b.String()))
	return err
}

// ShowFiles prints how the files would differ, without secrets.
func (p *Plan) ShowFiles(w io.Writer) error {
	var b bytes.Buffer
	for _, c := range p.clients {
		if c.isChanged() {
			b.Write(diff.Diff(c.path, c.masked, c.path, c.file.Masked()))
		}
	}
	if err := p.showAdded(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, plain.Lines(b.String()))
	return err
}

func (c *client) show(w io.Writer) {
	fmt.Fprint(w, c.path)
	if c.client != "" {
		fmt.Fprintf(w, " (%s)", c.client)
	}
	fmt.Fprintln(w)
	if len(c.outcomes) == 0 {
		fmt.Fprintln(w, "  has no servers")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range c.outcomes {
		name := o.Name
		if project, ok := strings.CutPrefix(o.Group, "/projects/"); ok {
			name += " of " + strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.TrimSuffix(project, "/mcpServers"))
		}
		fmt.Fprintf(table, "  %s\t%s\n", name, o.text)
	}
	_ = table.Flush() // w is a buffer
	if c.shared && c.isChanged() {
		fmt.Fprintln(w, "  This file belongs to a project: if you share it, others get paths of this host.")
	}
}

// showAdded prints the configuration of the gateway and the other new files.
func (p *Plan) showAdded(w io.Writer) error {
	if len(p.added) == 0 {
		return nil
	}
	text, err := p.configuration()
	if err != nil {
		return err
	}
	before := p.path(configFile)
	if p.text == nil {
		before = os.DevNull
	}
	if _, err := w.Write(diff.Diff(before, maskedURLs(p.text), p.path(configFile), maskedURLs(text))); err != nil {
		return err
	}
	policies, err := p.policies()
	for _, file := range slices.Concat(slices.Sorted(maps.Keys(policies)), slices.Sorted(maps.Keys(p.secrets))) {
		fmt.Fprintln(w, "new file", file)
	}
	return err
}

// maskedURLs returns a configuration in which URLs show no secrets.
func maskedURLs(text []byte) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		if key, value, ok := strings.Cut(line, `url: "`); ok && strings.HasSuffix(value, "\"\n") {
			lines[i] = key + `url: "` + clientconfig.MaskURL(strings.TrimSuffix(value, "\"\n")) + "\"\n"
		}
	}
	return []byte(strings.Join(lines, ""))
}

// Write carries out the plan, and prints the files that it writes.
func (p *Plan) Write(w io.Writer) error {
	if err := p.writeGateway(w); err != nil {
		return err
	}
	for _, c := range p.clients {
		if !c.isChanged() {
			continue
		}
		if err := p.backUp(c); err != nil {
			return err
		}
		if err := c.write(c.file.Bytes()); err != nil {
			return err
		}
		fmt.Fprintf(w, "changed %s (as it was: %s)\n", plain.Text(c.path), plain.Text(filepath.Base(c.path)+BackupSuffix))
	}
	return nil
}

// writeGateway writes the files of the gateway.
func (p *Plan) writeGateway(w io.Writer) error {
	if len(p.added) == 0 {
		return nil
	}
	text, err := p.configuration()
	if err != nil {
		return err
	}
	files, err := p.policies()
	if err != nil {
		return err
	}
	for file, value := range p.secrets {
		files[file] = []byte(value + "\n")
	}
	files[p.path(configFile)] = text
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := replace(file, files[file]); err != nil {
			return err
		}
		fmt.Fprintln(w, "wrote", plain.Text(file))
	}
	return nil
}

// backUp copies the file of a client as it is without the gateway. An earlier copy
// has the entries of the servers that are guarded already.
func (p *Plan) backUp(c *client) error {
	before := c.original
	earlier, err := p.earlier(c)
	if err != nil {
		return err
	}
	if earlier != nil {
		current, err := clientconfig.Parse(c.path, c.original)
		if err != nil {
			return err
		}
		if missing := current.Restore(earlier, p.isGuarded); missing != nil {
			return fmt.Errorf("%s lacks the servers %q: remove the file, and undo their entries by hand", earlier.Path, missing)
		}
		before = current.Bytes()
	}
	return replace(c.path+BackupSuffix, before)
}

// earlier returns the copy of a client's file, or nil.
func (p *Plan) earlier(c *client) (*clientconfig.File, error) {
	text, err := os.ReadFile(c.path + BackupSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return clientconfig.Parse(c.path+BackupSuffix, text)
}

// write replaces the file of a client, unless the client has changed it meanwhile.
// A link stays one, and the file keeps its mode.
func (c *client) write(text []byte) error {
	path, err := filepath.EvalSymlinks(c.path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, c.original) {
		return fmt.Errorf("%s has just been changed: end the client, and run init again", c.path)
	}
	if err := replace(path, text); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm())
}

// replace writes a file. A repository may have links in the place of the temporary
// file, and they are not followed.
func replace(path string, text []byte) error {
	if err := os.Remove(path + ".tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.ReplaceFile(path, text)
}

// Undo gives the guarded servers of the clients their former entries, and prints
// what it has done. It leaves the files of the gateway.
func (p *Plan) Undo(w io.Writer) (err error) {
	undone := 0
	for _, c := range p.clients {
		if slices.ContainsFunc(c.file.Servers, p.isGuarded) {
			err = errors.Join(err, p.undo(w, c))
			undone++
		}
	}
	if undone == 0 {
		fmt.Fprintln(w, "no client uses the gateway of", plain.Text(p.path(configFile)))
	}
	return err
}

func (p *Plan) undo(w io.Writer, c *client) error {
	earlier, err := p.earlier(c)
	if err != nil {
		return err
	}
	if earlier == nil {
		return fmt.Errorf("%s%s: there is no copy to restore from", c.path, BackupSuffix)
	}
	if missing := c.file.Restore(earlier, p.isGuarded); missing != nil {
		return fmt.Errorf("%s lacks the servers %q: undo their entries by hand", earlier.Path, missing)
	}
	if err := c.write(c.file.Bytes()); err != nil {
		return err
	}
	fmt.Fprintln(w, "restored", plain.Text(c.path))
	return os.Remove(c.path + BackupSuffix)
}

// Next says how to go on.
func (p *Plan) Next(w io.Writer) error {
	serve := ""
	if slices.ContainsFunc(p.added, func(s addedServer) bool { return s.url != "" }) {
		serve = fmt.Sprintf("\nServe the endpoints of the HTTP servers:\n  mcp-gateway serve --config %s\n", p.path(configFile))
	}
	_, err := fmt.Fprintf(w, `
Start the policy decision point:
  policy-service serve --policies %s --state %s
%s
Restart your clients, and use their tools. Then look at what the policies would deny:
  mcp-gateway observed --config %s
`, p.path(policiesDir), p.path("policy-service-state"), serve, p.path(configFile))
	return err
}
