// Package proxy stands between MCP clients and one MCP server: streamable HTTP
// of both eras, stateless (2026-07-28) and with sessions (up to 2025-11-25), and
// standard input and output.
//
// The law it keeps: nothing crosses as it came. A message is read ([wire]),
// decided on ([enforce]) and written anew. Headers are made from the message and
// hold against those that were sent; of a client's other headers none crosses,
// least of all its credentials, and of a server's none but its session, which
// the client gets sealed and bound to who it is. What a server sends is read as
// strictly: a response crosses only to the request that it answers, and a stream
// in which one event cannot be read ends there.
//
// A stream is passed on event by event, and its headers at once: a client that
// waits for them stalls.
//
// Streams can be resumed. The id of an event is sealed: it says whose the stream
// is, and the response to which call it carries. So any process with the key
// passes a late response on, to that caller alone, without stored state. The
// process that forwarded the call keeps it for a while, to record its outcome.
//
// HTTP errors of the server keep their status, because clients act on it: they
// begin a new session after 404. An answer that cannot be passed on is told from
// one that did not come: the client must not repeat the call.
package proxy
