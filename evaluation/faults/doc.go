// Package faults holds what is wrong in a policy store: [Fault], with its file,
// line and column, and [List], which is an error. It also finds the known name
// that a misspelled one means.
package faults
