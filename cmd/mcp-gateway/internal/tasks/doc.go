// Package tasks remembers the owner of each task of a server.
//
// The law it keeps: only the caller that began a task knows that it exists. A server
// behind the gateway sees one client, the gateway, and the id of a task does not name
// its owner. The gateway therefore stores the owner before the caller gets the id. It
// refuses calls about other tasks before it asks the PDP, and with the same answer
// for tasks of others and for unknown ids.
//
// On disk (bbolt):
//
//	owners   SERVER 0x00 ID → the caller and until when it is remembered, as JSON
package tasks
