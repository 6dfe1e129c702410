package boltfile

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// holder returns the process that has locked a file, or 0. The lines of
// /proc/locks are "1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END".
func holder(path string) (pid int) {
	var stat syscall.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || syscall.Stat(path, &stat) != nil {
		return 0
	}
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line)
		if len(fields) > 5 && fields[1] == "FLOCK" && strings.HasSuffix(fields[5], fmt.Sprintf(":%d", stat.Ino)) {
			_, _ = fmt.Sscan(fields[4], &pid)
			return pid
		}
	}
	return 0
}
