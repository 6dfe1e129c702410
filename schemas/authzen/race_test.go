//go:build race

package authzen_test

// raceFactor is by how much allocations may grow under the race detector, where a
// sync.Pool drops some of what it is given.
const raceFactor = 3
