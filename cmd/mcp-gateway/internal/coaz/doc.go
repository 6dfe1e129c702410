// Package coaz maps MCP messages to AuthZEN requests: a JSON-RPC method, its
// params and the claims of the caller's token
// ("Compatible with OpenID AuthZEN", framework and MCP binding, draft 1).
//
// The law it keeps: there is no way through without a question. A message is
// passed without one only if it is a ping or a notification; a method without a
// mapping is [ErrUnknownMethod]; a mapping that cannot be read, compiled or
// evaluated is a [MappingError] and never falls back to another mapping.
//
// A mapping that a tool declares is written by the server that is to be
// guarded, and so is code of a stranger: it is compiled once for each text of a
// definition, may cost so much and be so large, sees params and token and
// nothing else, names nobody but the caller as the subject, and does not touch
// what the gateway itself says at context.gateway. What else it sends is the
// server's word, which policy must not take for identity or privilege; an
// upstream's [Trust] says what it is good for.
//
// Numbers are exact: an integer is an integer, and a number that no two parsers
// read alike is an error where an expression touches it.
package coaz
