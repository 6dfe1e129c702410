// Package replay repeats logged decisions. With the logged policies the result must be the same. With a
// candidate, the differences are the candidate's changes.
//
// A decision whose log entry is masked can be replayed only if no policy reads a masked value.
// [HiddenFrom] returns the value that prevents a replay.
package replay
