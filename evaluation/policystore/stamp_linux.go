package policystore

import (
	"io/fs"
	"syscall"
)

// nonblock keeps a pipe from being waited for when it is opened.
const nonblock = syscall.O_NONBLOCK

// stampOf returns what else tells states of a file apart. A file's time of
// change, other than that of its modification, cannot be set.
func stampOf(info fs.FileInfo) stamp {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{changed: info.ModTime().UnixNano()}
	}
	return stamp{device: uint64(sys.Dev), inode: sys.Ino, changed: sys.Ctim.Nano()}
}
