// Package enforce decides what becomes of a call of a client: it goes on to the
// server, it is refused, or it waits for a person.
//
// The law it keeps: a call goes on only with an explicit permit for every
// question that it asks, given by the PDP, whole and in time, and with every
// obligation of it carried out. A call that cannot be mapped, an answer that
// cannot be read, a PDP that does not answer, an obligation that nobody knows:
// each is a refusal. There is no cache of permits and no way around.
//
// The PDP is asked through pdp/client alone, so that any AuthZEN PDP would do.
// One that keeps failing is not asked for a while ([Breaker]); then one question
// finds out whether it is back.
package enforce
