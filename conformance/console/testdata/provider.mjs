// An OpenID provider of another project, for one client: node provider.mjs ISSUER REDIRECT-URI.
// Its people may approve, and have their name as sub. Any password signs in.
import { Provider } from "oidc-provider";

const [issuer, redirect] = process.argv.slice(2);
const provider = new Provider(issuer, {
  clients: [{ client_id: "console", client_secret: "sesame", redirect_uris: [redirect], response_types: ["code"], grant_types: ["authorization_code"] }],
  claims: { openid: ["sub", "auth_time"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: ["approvers"], email: `${id}@example.com`, email_verified: true }),
  }),
  features: { devInteractions: { enabled: true } },
  pkce: { required: () => true },
  cookies: { keys: ["a key of a test"] },
});
const { hostname, port } = new URL(issuer);
provider.listen(Number(port), hostname, () => console.log("listening"));
