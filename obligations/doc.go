// Package obligations reads the duties that policies add to their effect, and
// turns them into obligations of a decision.
//
// A policy asks by annotation:
//
//	@approval("template")                a permit that waits for a person
//	@requestable("template")             a forbid that an approval may lift
//	@obligation_step_up("{…}")           obligations of the AuthZEN Obligations
//	@obligation_notification("{…}")      Profile; the JSON object holds the
//	@obligation_session_termination("{…}")  properties of the type
//	@obligation_custom("{…}")
//	@reason_user("…")                    a sentence for the person who asked
//	@reason_admin("…")                   a sentence for the people who operate
//
// {{subject.id}} and its like in the strings of an obligation are filled in
// from the request, see fields.
//
// The law it keeps: an annotation that would be misread is a fault when the
// policies are loaded, never a surprise when a decision is made; and a PEP
// that has not said it can meet a control is told no, because a PEP that does
// not know obligations would run the tool.
//
// The package follows draft 1 of the profile and knows no policy language.
package obligations
