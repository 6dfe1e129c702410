package catalog

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// accepted reads the file with the definitions that the operator accepts. It has a
// line for each tool,
//
//	sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae crm create_ticket
//
// with the digest of its definition, its server and its name, in the format of
// sha256sum. A # begins a comment. The last line of a tool counts. A changed file is
// read again without a restart.
type accepted struct {
	file string

	mu      sync.Mutex
	written time.Time
	size    int64
	digests map[string]string // by key
}

// digest returns the digest of the accepted definition of a tool, or "".
func (a *accepted) digest(server, name string) (string, error) {
	if a.file == "" {
		return "", nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		return "", fmt.Errorf("accepted tools: %w", err)
	}
	return a.digests[string(key(server, name))], nil
}

// read reads the file if it has changed.
func (a *accepted) read() error {
	info, err := os.Stat(a.file)
	if err != nil {
		return err
	}
	if a.digests != nil && info.ModTime().Equal(a.written) && info.Size() == a.size {
		return nil
	}
	text, err := os.ReadFile(a.file)
	if err != nil {
		return err
	}
	digests, number := make(map[string]string), 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		parts := strings.SplitN(line, " ", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[0], "sha256:") || len(parts[0]) != len("sha256:")+64 {
			return fmt.Errorf("%s:%d: not a digest, a server and a tool: %q", a.file, number, line)
		}
		digests[string(key(parts[1], parts[2]))] = parts[0]
	}
	a.digests, a.written, a.size = digests, info.ModTime(), info.Size()
	return nil
}
