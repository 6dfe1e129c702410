package child

import (
	"os/exec"
	"syscall"
)

// OwnGroup makes a command run in a process group of its own. The kernel kills it when
// the gateway ends in whatever way.
func OwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
