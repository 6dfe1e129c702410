// Package gateway joins the parts of an MCP gateway: it identifies callers, asks
// an AuthZEN policy decision point about each call, holds calls that need an
// approval, and forwards the others to MCP servers.
//
// [Run] serves clients over HTTP, [RunStdio] guards one server on standard input
// and output. Both keep their state in [Config.State], which one process of Run
// and any number of processes of RunStdio use together:
//
//	seal.key             key that seals what clients hand back
//	catalog.db           pinned definitions of tools
//	approvals.db         calls that wait for a person
//	labels.db            labels of callers
//	observed.db          counts of calls in observe mode
//	trail/, tasks.db     of Run: audit trail of the calls, a log of package
//	                     decisionlog, and owners of the servers' tasks
//	stdio/SERVER/N/      the same of a process of RunStdio
//
// All processes share the first five. The key never changes. The databases are
// open for one transaction at a time, see package boltfile: a quarantine holds in
// every process from the transaction that begins it, and an approval is used by
// the one process whose transaction claims the call.
//
// A process has the audit trail and the tasks for itself: a server on stdio is
// its child, and the trail has one writer. The process takes the lowest N whose
// trail is not locked, so that the directories are as many as the processes that
// ever ran at once. At its start, a process gives the pending calls in all such
// directories of its server the outcome unknown. Their processes are dead, because
// the system releases a lock with its process.
//
// A request that is not permitted never reaches a server: any error on the way to
// a decision refuses the call. Only the operator lifts that, for a server in observe
// mode: decisions are then recorded, and enforce nothing.
package gateway
