// Package evaluation decides.
//
// The law of the house: a decision is a pure function of a snapshot, a request
// and an environment. A [Snapshot] is all the operator gave (policies, schema,
// entities, configuration), compiled, immutable and named by the hash of its
// files, the revision. A request is what the PEP sent. An [Environment] is all
// else that counts. [Snapshot.Decide] is that function; it reads no clock, no
// file and no network, so that a logged decision can be made again.
//
// [Compile] is all or nothing: it reports every fault of an [Archive] at once
// and never leaves out a policy that it cannot read, because a forbid that is
// left out permits.
//
// [Engine] puts the function to work: it gathers what counts, decides, and
// records the decision before it gives it.
//
// A request changes form exactly once, in query.go, from AuthZEN to Cedar.
// This package is the only one that knows Cedar.
package evaluation
