// Package wire reads and writes the messages of the Model Context Protocol:
// JSON-RPC 2.0, one message at a time.
//
// The law it keeps: a message that two parsers could read differently is no
// message. Names that occur twice, also when one is written with escapes, names
// that differ by case alone (Go's encoding/json would take either), invalid
// UTF-8, lone surrogates, a byte order mark, more than one value, a batch, deep
// nesting and members that no message has are refused. What is sent on is never
// what came in: it is what was understood, written anew.
//
// A [Binding] names a call by its exact arguments, for approvals. Numbers that
// a parser may round have no place in it.
package wire
