//go:build !linux

package decisionlog

import "os"

// datasync flushes what was written to a file.
func datasync(file *os.File) error { return file.Sync() }
