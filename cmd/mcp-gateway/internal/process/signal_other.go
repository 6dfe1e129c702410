//go:build !unix

package process

import "os/exec"

func ownGroup(*exec.Cmd) {}

func terminate(c *exec.Cmd) { _ = c.Process.Kill() }

func kill(c *exec.Cmd) { _ = c.Process.Kill() }
