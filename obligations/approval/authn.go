package approval

import "time"

// Methods by which people prove who they are to the service.
const (
	MethodNone   = "none"    // callers are not authenticated: the body names the approver
	MethodAPIKey = "api_key" // a secret in the configuration
	MethodJWT    = "jwt"     // an access token of a trusted issuer
	MethodMTLS   = "mtls"    // a client certificate
	MethodLink   = "link"    // a sign-in link that an operator of the host printed
	MethodOIDC   = "oidc"    // an ID token of the identity provider of the console
)

// An Authn says how a person proved who they are. It is in the vote and in the entry of the decision log.
type Authn struct {
	Method  string    `json:"method"`
	Issuer  string    `json:"issuer,omitzero"`       // iss of the token
	Subject string    `json:"sub,omitzero"`          // sub of the token
	ACR     string    `json:"acr,omitzero"`          // authentication context of the token
	AMR     []string  `json:"amr,omitempty"`         // authentication methods of the token (RFC 8176)
	Time    time.Time `json:"auth_time,omitzero"`    // when the person authenticated to the issuer
	Bound   bool      `json:"bound,omitzero"`        // the nonce of the token is bound to the decision
	Nonce   string    `json:"nonce,omitzero"`        // of the token, if it is bound to the decision
	Salt    string    `json:"nonce_salt,omitzero"`   // the random part of that nonce
	Items   string    `json:"nonce_items,omitzero"`  // its lines about the items, the end and the rest of the decision
	Until   string    `json:"nonce_until,omitzero"`  //
	Rest    string    `json:"nonce_rest,omitzero"`   //
	Key     string    `json:"key_id,omitzero"`       // kid of the key of the issuer that signed the token
	Token   string    `json:"token_digest,omitzero"` // of the token, as in sha256:2c26…
	Session string    `json:"session,omitzero"`      // a short name of the session of the console, which is no secret
}
