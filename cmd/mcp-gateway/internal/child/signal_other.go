//go:build !unix

package child

import "os/exec"

// OwnGroup does nothing: this system has no groups of processes.
func OwnGroup(*exec.Cmd) {}

// Terminate ends a command, which this system cannot ask.
func Terminate(c *exec.Cmd) { _ = c.Process.Kill() }

// Kill ends a command.
func Kill(c *exec.Cmd) { _ = c.Process.Kill() }
