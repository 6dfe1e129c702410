// Package catalog pins the accepted definition of each tool, and filters the lists
// of servers for a caller.
//
// The law it keeps: the gateway calls a tool only with its accepted definition. The
// catalog pins the first definition of a tool, or, if so configured, waits for the
// operator. A definition that differs from the pinned one puts the tool into
// quarantine, at once and across restarts, until the operator accepts one of the
// two. A server that shows people one tool and runs another therefore gains nothing.
// Arguments are validated against the pinned input schema, with exact numbers,
// within limits, and without network access.
//
// The catalog pins prompts, resources, resource templates and the instructions of a
// server in the same way, each in a list of its own ([Lists]): models read them, too.
//
// The decisions of the PDP filter a list as a whole. If an item cannot be read or
// asked about, the result is an error and not a list.
//
// The file is a bbolt database with the bucket "pins". A key is the name of a
// list, a zero byte, and the name of an item; a value is a [Pin] as JSON, with the definition in its canonical
// bytes: sorted members, strings without unnecessary escapes, and numbers as the
// server wrote them. The digest is the SHA-256 of those bytes.
package catalog
