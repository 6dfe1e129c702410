// Package wire reads and writes the messages of the Model Context Protocol:
// JSON-RPC 2.0, one message at a time.
//
// The law it keeps: a message that two parsers could read differently is refused. That
// is a message with a name twice, also with escapes, with names that differ in letter
// case only (Go's encoding/json would take either), with invalid UTF-8, lone
// surrogates, a byte order mark, more than one value, a batch, deep nesting, or
// members that no message has. The gateway never forwards the bytes that came in: it
// forwards what it understood, written anew.
//
// A [Binding] identifies a call by its exact arguments, for approvals. It cannot have
// numbers that a parser may round.
package wire
