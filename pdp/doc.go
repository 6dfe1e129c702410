// Package pdp serves decisions over HTTP and assembles the service.
//
// Every route of the main listener uses one generic adapter around a method of type func(context,
// *Request) (*Response, error). The adapter checks the content type, decodes the body strictly,
// calls the method, and writes the answer or the error. server.go has the route table. Only
// errors.go maps errors to a status. Only run.go assembles the parts.
//
// Invariant: no failure produces a body with "decision": true. A failure has status 4xx or 5xx, and
// a 5xx never reveals its cause. A PEP must deny without an explicit permit.
package pdp
