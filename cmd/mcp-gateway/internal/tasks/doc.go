// Package tasks remembers the owner of each task of a server.
//
// The law it keeps: a task is its caller's, and for anybody else there is none. A
// server behind the gateway sees one client, the gateway, and a policy sees an id
// that says nothing of whose it is. So an id is handed to the caller of the call
// that began the task once that is on disk, and whoever names another is refused
// before anybody is asked: an id of somebody else like one that there never was.
//
// On disk (bbolt):
//
//	owners   SERVER 0x00 ID → the caller and until when it is remembered, as JSON
package tasks
