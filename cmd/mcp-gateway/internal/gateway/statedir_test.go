package gateway

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A flag wins over the configuration, whose state is relative to its file, and
// the default does not depend on the working directory.
func TestStateDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(t.TempDir())
	for _, test := range []struct{ xdg, flag, configured, want string }{
		{"", "", "", filepath.Join(home, ".local/state/mcp-gateway")},
		{"relative", "", "", filepath.Join(home, ".local/state/mcp-gateway")},
		{"/xdg", "", "", "/xdg/mcp-gateway"},
		{"/xdg", "", "s", "/etc/gw/s"},
		{"/xdg", "", "/s", "/s"},
		{"/xdg", "flag", "/s", "flag"},
	} {
		t.Setenv("XDG_STATE_HOME", test.xdg)
		if got, err := StateDir(test.flag, "/etc/gw/gateway.yaml", test.configured); err != nil || got != test.want {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}

// A state directory in the former place is not left behind silently: its pins and
// quarantines count.
func TestFormerState(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	t.Chdir(t.TempDir())
	if err := os.Mkdir(formerState, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(formerState, "catalog.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StateDir("", "gateway.yaml", ""); runtime.GOOS == "linux" && (err == nil || !strings.Contains(err.Error(), "move the directory")) {
		t.Errorf("beside the former directory: %v", err)
	}
	if err := os.Mkdir(filepath.Join(home, "mcp-gateway"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := StateDir("", "gateway.yaml", ""); err != nil {
		t.Errorf("once both exist: %v", err)
	}
}
