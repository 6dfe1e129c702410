package decisionlog

import (
	"errors"
	"os"
	"syscall"
)

// datasync flushes what was written to a file, but not when that was.
func datasync(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
