package decisionlog

import (
	"errors"
	"os"
	"syscall"
)

// datasync flushes the data of a file, but not its timestamps.
func datasync(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
