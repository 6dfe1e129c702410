package child

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// MeasuresMemory reports whether this system has [Memory].
const MeasuresMemory = true

// Memory returns the memory in bytes of process groups, by the ids of their leaders:
// what their processes have written in memory and in swap. Pages of files do not
// count. Memory that processes share counts once for each.
func Memory(groups []int) (map[int]int64, error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("measure memory: %w", err)
	}
	used := make(map[int]int64)
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		group, err := syscall.Getpgid(pid)
		if err != nil || !slices.Contains(groups, group) {
			continue // it has ended, or is another's
		}
		bytes, err := memoryOf(pid)
		if err != nil {
			return nil, fmt.Errorf("measure memory: %w", err)
		}
		used[group] += bytes
	}
	return used, nil
}

// memoryOf returns the memory of a process. One that has ended has none.
func memoryOf(pid int) (total int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		switch name {
		case "RssAnon", "RssShmem", "VmSwap":
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, err
			}
			total += kilobytes << 10
		}
	}
	return total, nil
}
