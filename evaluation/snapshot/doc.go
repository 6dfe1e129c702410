// Package snapshot computes decisions as a pure function: a decision depends on a snapshot, a request
// and an environment, and on nothing else.
//
// A [Snapshot] is the operator's input (policies, schema, entities, settings), compiled and
// immutable. Its revision, the hash of its files, names it. An [Environment] is the time and the
// active approval. [Snapshot.Decide] reads no clock, no file and no network, so a logged decision
// can be replayed.
//
// [Compile] is all or nothing. It reports every fault of an [Archive] at once and never omits a
// policy that it cannot read, because an omitted forbid permits. [Snapshots] holds the snapshots of
// a store with tenants. A [Compiler] compiles them while others are active, so that one tenant's
// fault or slow policies do not delay the others.
//
// Access documents compile to policies as well (access.go, package accesspolicy). For a store that has
// any, the service states in the context which tool a request is about (calledtool.go).
//
// Only request.go converts requests from AuthZEN to Cedar. The policy index (policyindex.go) skips
// policies whose scope the request does not satisfy. A search skips entities that no permit can
// match (prefilter.go, entityindex.go). Neither changes a result.
//
// No two files use each other, directly or through others. From the bottom up: files of a store
// (archive.go, settings.go, templates.go), what a snapshot consists of (entity.go, policy.go, shape.go,
// the indexes, snapshot.go), a decision (query.go, request.go, decide.go, search.go), the compiler
// (compiler.go, its readers and checks, compile.go), and the snapshots of a store with tenants
// (snapshots.go, losses.go, compilations.go).
package snapshot
