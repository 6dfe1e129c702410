//go:build race

package main_test

// buildFlags build the programs with the race detector, as the tests are.
var buildFlags = []string{"-race"}
