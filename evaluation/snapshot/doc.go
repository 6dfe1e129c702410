// Package snapshot is the pure function at the heart of the service: a decision
// follows from a snapshot, a request and an environment, and from nothing else.
//
// A [Snapshot] is what the operator wrote (policies, schema, entities, settings),
// compiled, immutable, and named by the hash of its files, the revision. An
// [Environment] is the time and the approval in force. [Snapshot.Decide] reads no
// clock, no file and no network, so that a logged decision can be made again.
//
// [Compile] is all or nothing: it reports every fault of an [Archive] at once and
// never leaves out a policy that it cannot read, because a forbid that is left out
// permits. [Snapshots] are the snapshots of a store with tenants, and a [Compiler]
// makes them while others are in force, so that one tenant's fault or slow policies
// keep nobody else waiting.
//
// A request changes form exactly once, in query.go, from AuthZEN to Cedar. The
// policy index (policyindex.go) leaves out policies whose scope the request does
// not satisfy; a search leaves out entities that no permit can be found for
// (prefilter.go, entityindex.go). Neither changes an answer.
package snapshot
