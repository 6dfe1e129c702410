package process

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command run in a process group of its own. The kernel kills it when
// the gateway ends in whatever way.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
