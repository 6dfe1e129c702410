// Package endpoint has what every HTTP endpoint of MCP needs: who may send it
// requests ([Front]), and how it answers, by a message or by a stream of
// server-sent events ([Reply], [Event]).
//
// The law it keeps: a request is read once and whole before anybody acts on it,
// and only if it comes from a known caller, is addressed to this host and says the
// same in its headers and its body.
package endpoint
