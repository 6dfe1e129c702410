// Package faults describes the faults of a policy store: [Fault], with its file,
// line and column, and [List], which is an error. It also finds the known name
// nearest to a misspelled one.
package faults
