//go:build !linux

package decisionlog

import "go.etcd.io/bbolt"

// release does nothing on systems without an implementation.
func release(*bbolt.Tx) {}
