// Package consent leads the person behind a caller to the authorization server of a
// server, and back with what they have granted (RFC 6749, section 4.1).
//
// The law it keeps: the person who grants is the person who calls. Otherwise somebody
// could begin for themselves, have another person open the address, and call the
// server with the tokens of that person (MCP 2025-11-25, "Elicitation", "Phishing").
//
//	GET  /oauth/start?ticket=…   says what is about to happen, and for whom
//	POST /oauth/start            begins, and gives this browser a secret
//	GET  /oauth/login            comes back from the issuer of callers
//	GET  /oauth/callback         comes back from the authorization server
//	GET  /oauth/client.json      says who the gateway is, for authorization servers
//
// A ticket names the caller and the server, and is sealed. Between POST and the end,
// everything is sealed into the state parameter and bound to the secret of the
// browser. A caller with a token logs in at the issuer of callers first, in the same
// browser, and has to be the one of the ticket. Only the caller of this host, which
// has no token, confirms without a login: nobody else can reach the address. A ticket
// is answered once and ends after ten minutes. The gateway keeps nothing of it before
// the answer, so that it survives a restart.
package consent
