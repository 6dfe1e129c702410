// Package identity tells who calls the gateway: by a token of an issuer that is
// trusted for this very resource, by a certificate, or, where the gateway is a
// child process, by what its environment or its operator says.
//
// The law it keeps: nothing that a client merely says is identity. Headers but
// Authorization, params._meta and clientInfo are not looked at. A credential that
// is not good is an error, whatever else was sent with it, and who has sent none
// is nobody. A token is for one endpoint of the gateway (RFC 8707), unless the
// operator names another audience, and is never handed on.
package identity
