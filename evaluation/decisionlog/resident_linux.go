package decisionlog

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
)

// release takes the pages of the file that a transaction reads out of the process.
// They stay in the cache of the system, and come back when they are read: what was
// read of a log once does not count as memory of the process for ever.
func release(tx *bbolt.Tx) {
	page := int64(os.Getpagesize())
	// An error leaves them where they are.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr((tx.Size()+page-1)/page*page), syscall.MADV_DONTNEED)
}
