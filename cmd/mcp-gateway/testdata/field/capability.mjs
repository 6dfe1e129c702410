// Verifies the token of a capability: node capability.mjs JWKS TOKEN ISSUER AUDIENCE
import { createRemoteJWKSet, jwtVerify } from "jose";

const [jwks, token, issuer, audience] = process.argv.slice(2);
const keys = createRemoteJWKSet(new URL(jwks));
const { payload } = await jwtVerify(token, keys, { algorithms: ["EdDSA"], typ: "capability+jwt", issuer, audience });
console.log(JSON.stringify(payload));
