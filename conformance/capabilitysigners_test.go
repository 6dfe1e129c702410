package conformance_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// A keyHolder is an agent with a capability for files:write that is bound to its key.
type keyHolder struct {
	*server
	key  prooftest.Key
	made authzen.Capability
}

// newKeyHolder serves a store in which policies alone issue capabilities.
func newKeyHolder(t *testing.T) *keyHolder {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "policies.cedar"), capabilityCrashStore+`@id("ask") permit (principal, action == Action::"capability.request", resource);`)
	h := &keyHolder{server: serveToKillDir(t, dir, t.TempDir()), key: prooftest.Ed25519()}
	body := fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"tools":["files:write"],"duration":3600,"holder_key":%s}`, h.key.JWK())
	var made authzen.CapabilityResponse
	if status, err := postJSON(t.Context(), h.URL+authzen.PathCapabilities, body, &made); err != nil || status != http.StatusCreated {
		t.Fatal(status, err)
	}
	h.made = made.Capability
	return h
}

// The signers of docs/reference/capabilities.md work as they are, for texts, nested objects and no
// arguments.
func TestCapabilitySigners(t *testing.T) {
	page := read(t, "../docs/reference/capabilities.md")
	_, page, _ = strings.Cut(page, "### Signers\n")
	dir := t.TempDir()
	for language, command := range map[string][]string{
		"go": {"go", "run"}, "python": {external.Python(t, "cryptography")}, "js": {external.Program(t, "node")},
	} {
		code := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(page)
		if code == nil {
			t.Fatalf("the page has no signer in %s", language)
		}
		file := filepath.Join(dir, "prove."+map[string]string{"go": "go", "python": "py", "js": "mjs"}[language])
		put(t, file, code[1])
		h := newKeyHolder(t)
		jwk := filepath.Join(t.TempDir(), "key.json")
		put(t, jwk, string(h.key.PrivateJWK()))
		for _, arguments := range []string{`{}`, `{"z":"\u00e9 <&> \"quoted\"","a":{"n":9007199254740991,"list":["x",""]},"B":""}`} {
			prove := exec.Command(command[0], append(command[1:len(command):len(command)], file, jwk, h.made.ID, "files:write", arguments)...)
			prove.Stderr = os.Stderr
			proof, err := prove.Output()
			if err != nil {
				t.Fatal(language, err)
			}
			body := fmt.Sprintf(
				`{"subject":{"type":"agent","id":"a"},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"files:write"},"context":{"arguments":%s,"capability":{"id":%q,"proof":%s}}}`,
				arguments, h.made.ID, proof)
			for _, want := range []authzen.CapabilityReason{"", "replayed"} {
				var d authzen.Decision
				if status, err := postJSON(t.Context(), h.URL+authzen.PathEvaluation, body, &d); err != nil || status != http.StatusOK || d.Decision != (want == "") ||
					want != "" && d.Context.CapabilityDenied != want {
					t.Errorf("%s, %s: %d %v %+v %+v, want %q", language, arguments, status, err, d, d.Context, want)
				}
			}
		}
	}
}

// verifiesToken is a Python program: it verifies the token of a capability with PyJWT.
const verifiesToken = `
import json, jwt, sys
jwks, token, issuer, audience = sys.argv[1:]
key = jwt.PyJWKClient(jwks).get_signing_key_from_jwt(token)
assert jwt.get_unverified_header(token)["typ"] == "capability+jwt"
print(json.dumps(jwt.decode(token, key.key, algorithms=["EdDSA"], issuer=issuer, audience=audience)))
`

// The libraries jose of Node and PyJWT verify tokens with the keys at /access/v1/jwks, and refuse one
// that was changed or is for another audience.
func TestCapabilityTokensOfOthers(t *testing.T) {
	field, err := filepath.Abs("../cmd/mcp-gateway/testdata/field")
	must(t, err)
	external.Packages(t, field)
	h := newKeyHolder(t)
	script := filepath.Join(t.TempDir(), "verify.py")
	put(t, script, verifiesToken)
	for library, command := range map[string][]string{
		"jose":  {external.Program(t, "node"), filepath.Join(field, "capability.mjs")},
		"PyJWT": {external.Python(t, "jwt", "cryptography"), script},
	} {
		verify := func(token, audience string) (claims struct {
			ID      string               `json:"jti"`
			Subject string               `json:"sub"`
			Key     struct{ JKT string } `json:"cnf"`
		}, err error) {
			out, err := exec.Command(command[0], command[1], h.URL+authzen.PathJWKS, token, h.URL, audience).Output()
			if err == nil {
				err = json.Unmarshal(out, &claims, json.MatchCaseInsensitiveNames(true))
			}
			return claims, err
		}
		claims, err := verify(h.made.Token, h.URL)
		if err != nil || claims.ID != h.made.ID || claims.Subject != "agent:a" || claims.Key.JKT != h.made.JKT {
			t.Errorf("%s: %+v %v", library, claims, err)
		}
		changed := strings.Split(h.made.Token, ".")
		changed[1] = changed[1][:len(changed[1])-4] + "AAAA"
		for name, fails := range map[string]func() error{
			"a changed token":  func() error { _, err := verify(strings.Join(changed, "."), h.URL); return err },
			"another audience": func() error { _, err := verify(h.made.Token, "https://other.example"); return err },
		} {
			if fails() == nil {
				t.Errorf("%s accepts %s", library, name)
			}
		}
	}
}
