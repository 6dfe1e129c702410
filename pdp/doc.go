// Package pdp serves decisions over HTTP and puts the service together.
//
// Every route of the main listener is one generic adapter around one method of
// the shape func(context, *Request) (*Response, error): it checks the content
// type, reads the body strictly, calls the method, and writes the answer or
// the error. server.go is a route table, errors.go the only place that turns
// an error into a status, run.go the only place that joins the parts.
//
// The law it keeps: whatever goes wrong, no body says true. A failure has a
// status of 4xx or 5xx and never the cause of a 5xx; a PEP that is told
// nothing else must deny.
package pdp
