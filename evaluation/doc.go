// Package evaluation answers requests. An [Engine] gathers what counts, decides by
// the snapshot in force, records the decision, and only then gives it.
//
// The rooms below it do one thing each: faults (what is wrong in a store),
// cedarsyntax (text and syntax of policies), snapshot (the pure function),
// explain, lint, replay. The log is in decisionlog, the directory of policies in
// policystore, tests of policies in policytest.
//
// The law: nothing is answered that is not on disk. Only [decisionlog.Receipt]
// becomes a yes, in one function.
package evaluation
