// Package obligations parses the duties that policies add to their effect, and turns them into
// obligations of a decision.
//
// Policies use annotations:
//
//	@approval("template")                a permit that requires an approval
//	@requestable("template")             a forbid that an approval can lift
//	@obligation_step_up("{…}")           obligations of the AuthZEN Obligations
//	@obligation_notification("{…}")      Profile; the JSON object holds the
//	@obligation_session_termination("{…}")  properties of the type
//	@obligation_custom("[{…},{…}]")         an array holds several of the type
//	@reason_user("…")                    a sentence for the user
//	@reason_admin("…")                   a sentence for the operator
//
// Placeholders such as {{subject.id}} in the strings of an obligation are replaced by values of the
// request; see fields.
//
// Invariants: an ambiguous annotation is a fault when policies are loaded, never an error of a
// decision. A PEP that has not declared a required obligation type gets a denial, because a PEP
// that ignores obligations would run the tool.
//
// The package implements draft 1 of the profile and is independent of the policy language.
package obligations
