// Package credential gets the bearer tokens that the gateway presents to a server:
// its own (RFC 6749, client credentials), one for the caller of the request (RFC
// 8693, token exchange), or one that the person behind the caller has granted (RFC
// 6749, authorization code; RFC 7636).
//
// The law it keeps: a token goes to the server and for the caller that it was issued
// for, and to nobody else. A [Source] and [Grants] belong to one server. A Source
// caches tokens by the caller, the caller's token and the scopes, so that two tokens
// of one caller never share what was issued for the stronger one. Grants are kept by
// server, tenant and person in a [Store], sealed, and a refresh token goes to the
// authorization server that issued it and to no other. A token endpoint that fails, or
// whose answer is not understood, gives no token, and the request is not sent.
//
// Tokens are neither logged nor part of errors.
package credential
