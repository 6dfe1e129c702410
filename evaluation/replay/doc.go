// Package replay decides again what the decision log has: by the policies that
// decided, which must come to the same result, and by a candidate, which shows
// what it would change.
//
// A decision whose log entry is masked is made again only where no policy reads
// what is masked; [HiddenFrom] says which.
package replay
