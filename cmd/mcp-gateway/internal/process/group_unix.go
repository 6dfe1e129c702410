//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command run in a process group of its own.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
