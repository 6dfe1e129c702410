//go:build !race

package authzen_test

const raceFactor = 1
