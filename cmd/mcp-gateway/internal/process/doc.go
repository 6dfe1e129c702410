// Package process runs MCP servers that speak on standard input and output, and
// answers for them as a server of streamable HTTP.
//
// The law it keeps: what a process has seen of one caller, no other caller gets. A
// process is of one caller of one tenant, unless its server is configured as shared.
// A shared process hears nothing of its clients' capabilities, so that it asks them
// nothing, and of what it sends of its own accord only changes of lists are passed on.
//
// Several sessions may use a process at once. The ids of their requests and their
// progress tokens are replaced, and restored in what comes back. A process is started
// for its first request. It ends when nothing uses it, at the end of the [Pool], and
// where the system can do that, when the gateway is killed.
package process
