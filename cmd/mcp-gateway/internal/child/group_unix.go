//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// OwnGroup makes a command run in a process group of its own.
func OwnGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
