// Package evaluation decides requests. An [Engine] gathers the input, decides with the active snapshot,
// records the decision, and only then returns it.
//
// Each package below it has one purpose: faults (errors in a store), cedarsyntax (text and syntax of
// policies), snapshot (the pure function), explain, lint, replay. Package decisionlog is the log,
// policystore reads the directory of policies, and policytest runs tests of policies.
//
// The invariant: no decision is returned before it is on disk. Only a [decisionlog.Receipt] becomes a
// permit, in one function.
package evaluation
