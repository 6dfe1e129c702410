// Package catalog pins the accepted definition of each tool, and filters the lists
// of servers for a caller.
//
// The law it keeps: a tool is called as it was accepted or not at all. The first
// definition of a tool that is seen is pinned, or waits for the operator where
// the catalog is so configured. A definition that differs in anything from the
// pinned one puts the tool into quarantine, at once and over restarts, until the
// operator accepts one of the two: a server that shows a person one tool and runs
// another gains nothing. Arguments are held against the pinned input schema,
// with exact numbers, within bounds, and without reading anything from the
// network.
//
// A list is filtered by the decisions of the PDP, whole: what cannot be read or
// asked about is an error, never a list.
//
// The file is a bbolt database with the bucket "pins". A key is SERVER, a zero
// byte, TOOL; a value is a [Pin] as JSON, with the definition in its canonical
// bytes: members in order, strings with no escape that need not be, numbers as
// the server wrote them. The digest is the SHA-256 of those bytes.
package catalog
