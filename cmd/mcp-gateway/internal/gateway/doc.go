// Package gateway joins the parts of an MCP gateway: it identifies callers, asks
// an AuthZEN policy decision point about each call, holds calls that need an
// approval, and forwards the others to MCP servers.
//
// [Run] serves clients over HTTP, [RunStdio] guards one server on standard input
// and output. Both keep their state in [Config.State]:
//
//	seal.key      key that seals what clients hand back
//	trail/        audit trail of the calls, a log of package decisionlog
//	catalog.db    pinned definitions of tools
//	tasks.db      owners of the servers' tasks
//	approvals.db  calls that wait for a person
//
// A request that is not permitted never reaches a server: any error on the way to
// a decision refuses the call.
package gateway
