// Package replay repeats logged decisions: with the logged policies, which must
// give the same result, and with a candidate, to show its changes.
//
// A decision whose log entry is masked is made again only where no policy reads
// what is masked; [HiddenFrom] says which.
package replay
