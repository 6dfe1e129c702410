// Package union is an endpoint of MCP over several servers.
//
// The law it keeps: no message reaches a server but through the endpoint of that
// server ([Endpoint]), as if the client had sent it there. So the union decides
// nothing: callers, pins, questions, approvals and the trail are those of the
// server's endpoint, and a permit means the same at both. The union only gives
// names, so that two servers never have the same one:
//
//	tools, prompts     SERVER__NAME
//	tasks              SERVER__ID
//	resources          mcp-server://SERVER/URI, templates likewise
//	server requests    the id "SERVER:ID"
//
// A name of a client tells its server by itself, and what a server says gets the
// server's own name. So a server cannot speak of what another one has. The tokens
// for progress, which the client chooses, are sealed for the server that gets them.
//
// A server that does not answer in time is left out of lists, and its calls fail.
// In the versions with sessions, the gateway has a session at each server for each
// session of a client, begins it with the first need, and begins another one when
// the server has lost it.
package union
