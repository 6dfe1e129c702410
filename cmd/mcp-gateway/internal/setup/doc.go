// Package setup puts a gateway between MCP clients and the servers that they are
// configured to use.
//
// [New] reads the configurations of clients and makes a [Plan], which writes
// nothing. A server on standard input and output becomes one that mcp-gateway stdio
// runs, with its command and its environment. A server over HTTP is reached through
// an endpoint of mcp-gateway serve, and the headers that the client sent move to
// files that only their owner can read.
//
// # The law
//
// Nothing is written unless all of it can be. A file that cannot be understood ends
// the plan, with its place. A client's file is edited in place, beside a copy with
// [BackupSuffix] from which [Plan.Undo] restores each changed server. A plan for
// files that are set up changes nothing. No value of a header, of an environment or
// of another setting is shown.
//
// The configuration that a plan writes is in observe mode, with policies that permit
// a client to connect and nothing else: calls go on as before, and the summary of
// observed calls says what to permit.
package setup
