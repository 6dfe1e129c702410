//go:build !linux

package decisionlog

import "go.etcd.io/bbolt"

// release is for systems that know how.
func release(*bbolt.Tx) {}
