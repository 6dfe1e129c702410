// Package explain explains the decisions of a snapshot: which policies determined the decision, the
// verdict on each condition, which permits nearly applied, and what would change a denial. It uses the
// snapshot's own decision functions and changes nothing.
//
// An explanation is for authors and operators of policies. It shows stored data, which a requester
// must not see.
package explain
