// Package access answers callers that ask for capabilities: by methods of the
// extension io.github.policy-service/access, and by tools of the gateway for models
// that know nothing of these methods.
//
// The law it keeps: a caller asks for itself alone. The holder of a capability is the
// subject of the caller's calls, and a caller sees and gives back only its own. Nothing
// is kept here: the PDP keeps capabilities, and finds them when it decides on a call.
//
// Callers also request calls, which the gateway keeps until a person approves them or
// another participant carries them out. A caller sees the requests that the PDP lets it
// fulfil, and never its own.
package access
