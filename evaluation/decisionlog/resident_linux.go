package decisionlog

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
)

// release removes the pages that a transaction has read from the memory of the process. They stay
// in the page cache and return when read again. Otherwise every page ever read would count as
// memory of the process.
func release(tx *bbolt.Tx) {
	page := int64(os.Getpagesize())
	// On error the pages stay mapped.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr((tx.Size()+page-1)/page*page), syscall.MADV_DONTNEED)
}
