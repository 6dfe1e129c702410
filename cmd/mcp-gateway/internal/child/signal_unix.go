//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// Terminate asks the group of a command to end.
func Terminate(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }

// Kill ends the group of a command.
func Kill(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
