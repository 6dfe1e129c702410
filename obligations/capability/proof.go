package capability

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// proofWindow is how far the timestamp of a proof may be from the present.
const proofWindow = time.Minute

// Bounds of the members of a proof, in bytes.
const (
	minNonce     = 16
	maxNonce     = 64
	maxTimestamp = 64
)

// proofContext begins every text that a holder signs, so that no signature for another purpose is a
// proof.
const proofContext = "capability-proof-1\n"

// methodCall is the method that a proof for a tool call names.
const methodCall = "tools/call"

// A proven call is what a holder signs, in canonical form (RFC 8785).
type provenCall struct {
	ArgumentsDigest string `json:"arguments_digest"`
	Capability      string `json:"capability"`
	Method          string `json:"method"`
	Nonce           string `json:"nonce"`
	Timestamp       string `json:"timestamp"`
	Tool            string `json:"tool"`
}

// signed returns the text that the holder signs.
func (c *provenCall) signed() ([]byte, error) {
	text, err := json.Marshal(c)
	if err == nil {
		text, err = jsonobject.Canonical(text)
	}
	return append([]byte(proofContext), text...), err
}

// A proofID identifies a proof: the beginning of SHA-256(jkt ‖ nonce).
type proofID [16]byte

func proofIDOf(jkt, nonce string) proofID {
	sum := sha256.Sum256([]byte(jkt + nonce))
	return proofID(sum[:len(proofID{})])
}

// String returns the id as in the decision log.
func (id proofID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// parseProofID parses the text of a log entry.
func parseProofID(text string) (id proofID, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	return proofID(raw), true
}

// prove verifies that the claim of a question proves the possession of the key for exactly this call.
// It returns why it does not, or "". It does not know which proofs were taken.
func (e *entry) prove(q *question) (timestamp time.Time, reason authzen.CapabilityReason) {
	digest, reason := q.argumentsDigest()
	if reason != "" {
		return timestamp, reason
	}
	return e.isProven(q.claim().Proof, &provenCall{ArgumentsDigest: digest, Capability: e.ID, Method: methodCall, Tool: q.tool}, q.now)
}

// isProven verifies a proof of a call, to which it adds the members of the proof. It returns the
// timestamp, and why the proof is none, or "".
func (e *entry) isProven(proof *authzen.CapabilityProof, call *provenCall, now time.Time) (timestamp time.Time, reason authzen.CapabilityReason) {
	timestamp, ok := parseTimestamp(proof)
	if !ok {
		return timestamp, authzen.CapabilityProofInvalid
	}
	if isStale(timestamp, now) {
		return timestamp, authzen.CapabilityProofStale
	}
	call.Nonce, call.Timestamp = proof.Nonce, proof.Timestamp
	text, err := call.signed()
	if err != nil || !e.isSigned(text, proof.Signature) {
		return timestamp, authzen.CapabilityProofInvalid
	}
	return timestamp, ""
}

// parseTimestamp returns the time of a proof whose members are well-formed.
func parseTimestamp(p *authzen.CapabilityProof) (timestamp time.Time, ok bool) {
	if len(p.Timestamp) > maxTimestamp || len(p.Nonce) < minNonce || len(p.Nonce) > maxNonce || strings.ContainsFunc(p.Nonce, isNoNonce) {
		return timestamp, false
	}
	timestamp, err := time.Parse(time.RFC3339, p.Timestamp)
	return timestamp, err == nil
}

// isNoNonce reports whether a character cannot be in a nonce: only visible ASCII can.
func isNoNonce(r rune) bool { return r <= ' ' || r > '~' }

// isStale reports whether a timestamp is too old, or too far ahead.
func isStale(timestamp, now time.Time) bool { return now.Sub(timestamp).Abs() > proofWindow }

// isSigned reports whether the key of the capability signed a text.
func (e *entry) isSigned(text []byte, signature string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	return err == nil && isSigned(e.public, text, raw)
}

// argumentsDigest returns the digest of the arguments: that of context.arguments, or the one that the
// PEP has computed. If there are both, they must agree.
func (q *question) argumentsDigest() (digest string, reason authzen.CapabilityReason) {
	arguments, ok := q.callArguments()
	claimed := q.claim().ArgumentsDigest
	switch {
	case !ok:
		return "", authzen.CapabilityProofInvalid
	case arguments == nil && claimed == "":
		return "", authzen.CapabilityArgumentsMissing
	case arguments == nil:
		return claimed, ""
	}
	if digest = digestOf(arguments); claimed != "" && claimed != digest {
		return "", authzen.CapabilityProofInvalid
	}
	return digest, ""
}

// digestOf returns the digest of canonical arguments.
func digestOf(canonical jsontext.Value) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}
