//go:build !linux

package policystore

import "io/fs"

const nonblock = 0

func stampOf(info fs.FileInfo) stamp {
	return stamp{changed: info.ModTime().UnixNano()}
}
