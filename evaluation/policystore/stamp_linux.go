package policystore

import (
	"io/fs"
	"syscall"
)

// nonblock prevents open from blocking on a pipe.
const nonblock = syscall.O_NONBLOCK

// stampOf returns the additional attributes that identify a version of a file. Unlike the modification
// time, the change time cannot be set.
func stampOf(info fs.FileInfo) stamp {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{changed: info.ModTime().UnixNano()}
	}
	return stamp{device: uint64(sys.Dev), inode: sys.Ino, changed: sys.Ctim.Nano()}
}
