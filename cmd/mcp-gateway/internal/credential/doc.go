// Package credential gets the bearer tokens that the gateway presents to a server:
// its own (RFC 6749, client credentials) or one for the caller of the request (RFC
// 8693, token exchange).
//
// The law it keeps: a token goes to the server and for the caller that it was issued
// for, and to nobody else. A [Source] belongs to one server. It caches tokens by the
// caller, the caller's token and the scopes, so that two tokens of one caller never
// share what was issued for the stronger one. A token endpoint that fails, or whose
// answer is not understood, gives no token, and the request is not sent.
//
// Tokens are neither logged nor part of errors.
package credential
