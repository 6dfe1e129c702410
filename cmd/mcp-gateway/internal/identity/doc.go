// Package identity authenticates callers of the gateway: by a token of an issuer that
// is trusted for the endpoint, by a certificate, or, for a gateway that is a child
// process, by its environment or its configuration.
//
// The law it keeps: only a verified credential is an identity. Headers other than
// Authorization, params._meta and clientInfo have no effect. An invalid credential is
// an error, also beside a valid one. A token is for one endpoint of the gateway (RFC
// 8707), unless the operator names another audience. The gateway never passes it on.
package identity
