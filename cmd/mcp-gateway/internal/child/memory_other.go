//go:build !linux

package child

import "errors"

// MeasuresMemory reports whether this system has [Memory].
const MeasuresMemory = false

// Memory fails: this system does not tell.
func Memory([]int) (map[int]int64, error) {
	return nil, errors.New("this system does not tell the memory of processes")
}
