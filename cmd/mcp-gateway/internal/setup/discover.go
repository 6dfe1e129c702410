package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A place is where a client keeps its configuration.
type place struct {
	client string
	path   string
	shared bool // it belongs to a project, and perhaps to a repository
}

// places lists the files of the clients that there may be, for a user and for the
// project in a directory. Config is the user's directory of configurations, which
// differs by operating system.
func places(home, config, project string) []place {
	claude := home
	if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		claude = dir
	}
	return []place{
		{"Claude Desktop", filepath.Join(config, "Claude", "claude_desktop_config.json"), false},
		{"Claude Code", filepath.Join(claude, ".claude.json"), false},
		{"Claude Code", filepath.Join(project, ".mcp.json"), true},
		{"Cursor", filepath.Join(home, ".cursor", "mcp.json"), false},
		{"Cursor", filepath.Join(project, ".cursor", "mcp.json"), true},
		{"Visual Studio Code", filepath.Join(config, "Code", "User", "mcp.json"), false},
		{"Visual Studio Code Insiders", filepath.Join(config, "Code - Insiders", "User", "mcp.json"), false},
		{"Visual Studio Code", filepath.Join(project, ".vscode", "mcp.json"), true},
	}
}

// discover returns the places that have a file, each file once.
func discover() (found []place, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	project, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, p := range places(home, config, project) {
		if _, err := os.Stat(p.path); errors.Is(err, fs.ErrNotExist) || seen[p.path] {
			continue
		}
		seen[p.path] = true
		found = append(found, p)
	}
	return found, nil
}
