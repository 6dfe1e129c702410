package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// formerState was the default of the state directory, in the working directory.
const formerState = "mcp-gateway-state"

// StateDir returns the state directory: that of the flag, that of the
// configuration, which is relative to the directory of its file, or the default.
func StateDir(flag, file, configured string) (string, error) {
	switch {
	case flag != "":
		return flag, nil
	case filepath.IsAbs(configured):
		return configured, nil
	case configured != "":
		return filepath.Join(filepath.Dir(file), configured), nil
	}
	home, err := stateHome()
	if err != nil {
		return "", fmt.Errorf("state: there is no default directory: %w: set --state or the key state", err)
	}
	return filepath.Join(home, "mcp-gateway"), checkFormer(filepath.Join(home, "mcp-gateway"))
}

// stateHome returns the directory for the state of programs of the user.
func stateHome() (string, error) {
	if runtime.GOOS == "windows" {
		return os.UserCacheDir() // %LocalAppData%
	}
	if runtime.GOOS == "darwin" {
		return os.UserConfigDir() // ~/Library/Application Support
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // others are to be ignored
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}

// checkFormer reports a state directory in the former place, whose pins and
// quarantines would be lost, unless there is one in the new place.
func checkFormer(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(formerState, "catalog.db")); err == nil {
		return fmt.Errorf("state: %s is the directory of an earlier version, and the default is now %s: move the directory there, or set state: %s", formerState, dir, formerState)
	}
	return nil
}
