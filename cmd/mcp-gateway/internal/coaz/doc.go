// Package coaz maps MCP messages to AuthZEN requests: a JSON-RPC method, its
// params and the claims of the caller's token
// ("Compatible with OpenID AuthZEN", framework and MCP binding, draft 1).
//
// The law it keeps: no message passes without a question, except a ping or a
// notification. A method without a mapping is [ErrUnknownMethod]. A mapping that
// cannot be read, compiled or evaluated is a [MappingError], and never falls back to
// another mapping.
//
// A tool's declared mapping comes from the server that the gateway guards. It is the
// code of a stranger. It is compiled once for each text of a definition, within limits
// of cost and size. It sees params and token only. It cannot name another subject than
// the caller, and it cannot write to context.gateway. Everything else in it is the
// server's claim, which policies must not take for identity or privilege. The [Trust]
// of an upstream says how far its mappings count.
//
// Numbers are exact. An integer stays an integer. A number that parsers could read
// differently is an error in an expression.
package coaz
