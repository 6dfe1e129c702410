// Package explain says how a snapshot decides: which policies determined the
// decision, what each condition came to, which permits came near, and what would
// change a denial. It decides by the same functions as the snapshot and changes
// nothing.
//
// An explanation is for people who write and operate policies. It shows stored
// data, which a requester must not see.
package explain
