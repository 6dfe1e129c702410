//go:build !linux

package decisionlog

import "os"

// datasync flushes the data of a file.
func datasync(file *os.File) error { return file.Sync() }
