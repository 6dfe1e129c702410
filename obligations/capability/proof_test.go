package capability_test

import (
	"crypto/elliptic"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// keyOf returns the public key as a submission has it.
func keyOf(t testing.TB, k prooftest.Key) *capability.Key {
	t.Helper()
	key, err := capability.ParseKey(k.JWK())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// bound returns terms with a key.
func bound(t testing.TB, k prooftest.Key, tools ...string) capability.Terms {
	return terms(func(terms *capability.Terms) { terms.Key = keyOf(t, k) }, tools...)
}

// proven returns the question of a call of files:write with {"n":1}, and a proof of it.
func (s *store) proven(k prooftest.Key, id, nonce string) *authzen.CapabilityQuestion {
	q := s.call("files:write", `{"n":1}`, claim(id, true))
	q.Claim.Proof = k.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: id, Nonce: nonce, Timestamp: s.time().Format(time.RFC3339), Tool: "files:write"})
	return q
}

func nonce(n int) string { return fmt.Sprintf("nonce-%016d", n) }

func TestProof(t *testing.T) {
	for name, k := range map[string]prooftest.Key{"Ed25519": prooftest.Ed25519(), "P-256": prooftest.ECDSA(elliptic.P256())} {
		s := open(t)
		c := s.issue(t, bound(t, k, "files:*"))
		if c.Bound != capability.BoundKey {
			t.Errorf("%s: bound to %s", name, c.Bound)
		}
		got := s.find(t, s.proven(k, c.ID, nonce(1)))
		if got.Capability == nil || got.Capability.Bound != "key" || len(got.Capability.Proof) != 22 {
			t.Errorf("%s: %+v %+v", name, got, got.Capability)
		}
	}
}

// A capability with a key is never found, and presented without a proof it is refused.
func TestAKeyHasToBeProved(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	if got := s.find(t, s.call("files:write", `{"n":1}`, claim("", true))); got.Capability != nil || got.Missing != "proof_missing" {
		t.Errorf("not presented: %+v", got)
	}
	if got := s.find(t, s.call("files:write", `{"n":1}`, claim(c.ID, true))); got.Denied != "proof_missing" {
		t.Errorf("without a proof: %+v", got)
	}
	q := s.call("files:write", `{"n":1}`, claim(c.ID, true))
	if q.Claim.JKT = keyOf(t, prooftest.Ed25519()).JKT; s.find(t, q).Denied != "proof_missing" {
		t.Error("the key of another is a proof")
	}
	if q.Claim.JKT = c.Key.JKT; s.find(t, q).Capability == nil {
		t.Error("the key that the PEP has verified is no proof")
	}
	other := s.issue(t, terms(nil, "files:*"))
	if got := s.find(t, s.proven(k, other.ID, nonce(1))); got.Denied != "proof_invalid" {
		t.Errorf("the proof of a capability without a key: %+v", got)
	}
}

// A proof is of one call: each of its parts changed alone makes another.
func TestProofIsOfThisCall(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	now := s.time().Format(time.RFC3339)
	right := prooftest.Call{Arguments: `{"n":1}`, Capability: c.ID, Nonce: nonce(1), Timestamp: now, Tool: "files:write"}
	for name, change := range map[string]func(*prooftest.Call, *authzen.CapabilityQuestion){
		"arguments":            func(c *prooftest.Call, _ *authzen.CapabilityQuestion) { c.Arguments = `{"n":2}` },
		"capability":           func(c *prooftest.Call, _ *authzen.CapabilityQuestion) { c.Capability = "cap_OTHER" },
		"method":               func(c *prooftest.Call, _ *authzen.CapabilityQuestion) { c.Method = "tools/list" },
		"tool":                 func(c *prooftest.Call, _ *authzen.CapabilityQuestion) { c.Tool = "files:read" },
		"the nonce afterwards": func(_ *prooftest.Call, q *authzen.CapabilityQuestion) { q.Claim.Proof.Nonce = nonce(2) },
		"the timestamp afterwards": func(_ *prooftest.Call, q *authzen.CapabilityQuestion) {
			q.Claim.Proof.Timestamp = s.time().Add(time.Second).Format(time.RFC3339)
		},
		"the timestamp in another form": func(_ *prooftest.Call, q *authzen.CapabilityQuestion) {
			q.Claim.Proof.Timestamp = strings.Replace(now, "Z", "+00:00", 1)
		},
		"a claimed digest": func(_ *prooftest.Call, q *authzen.CapabilityQuestion) {
			q.Claim.ArgumentsDigest = prooftest.Digest(`{"n":2}`)
		},
		"the signature": func(_ *prooftest.Call, q *authzen.CapabilityQuestion) {
			other := map[bool]string{true: "B", false: "A"}[q.Claim.Proof.Signature[0] == 'A']
			q.Claim.Proof.Signature = other + q.Claim.Proof.Signature[1:]
		},
	} {
		call, q := right, s.call("files:write", `{"n":1}`, claim(c.ID, true))
		change(&call, &authzen.CapabilityQuestion{Claim: &authzen.CapabilityClaim{Proof: &authzen.CapabilityProof{Signature: "x"}}})
		q.Claim.Proof = k.Proof(call)
		change(&call, q)
		if got := s.find(t, q); got.Denied != "proof_invalid" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	q := s.call("files:write", `{"n":1}`, claim(c.ID, true))
	if q.Claim.Proof = k.Proof(right); s.find(t, q).Capability == nil {
		t.Error("the proof that was not changed is refused")
	}
}

// The arguments are those of the context, or the PEP has computed their digest.
func TestDigestOfArguments(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	for i, test := range []struct {
		arguments, digest string
		want              authzen.CapabilityReason
	}{
		{`{"n":1}`, "", ""},
		{` {"n" : 1e0} `, "", ""},
		{"", prooftest.Digest(`{"n":1}`), ""},
		{`{"n":1}`, prooftest.Digest(`{"n":1}`), ""},
		{"", prooftest.Digest(`{}`), "proof_invalid"},
		{"", "", "arguments_missing"},
		{`[1]`, "", "proof_invalid"},
		{`{"n":1.0000000000000001}`, "", ""}, // the same number in canonical form
		{`{"n":2}`, prooftest.Digest(`{"n":1}`), "proof_invalid"},
	} {
		q := s.call("files:write", test.arguments, claim(c.ID, true))
		q.Claim.Proof, q.Claim.ArgumentsDigest = s.proven(k, c.ID, nonce(i)).Claim.Proof, test.digest
		if got := s.find(t, q); got.Denied != test.want {
			t.Errorf("%s, digest %s: %+v, want %q", test.arguments, test.digest, got, test.want)
		}
	}
}

// Only the key of the record decides on the algorithm, and signatures have one form.
func TestForeignAlgorithms(t *testing.T) {
	s, k, curve := open(t), prooftest.Ed25519(), prooftest.ECDSA(elliptic.P256())
	c, d := s.issue(t, bound(t, k, "files:*")), s.issue(t, bound(t, curve, "files:*"))
	for name, q := range map[string]*authzen.CapabilityQuestion{
		"another key":        s.proven(prooftest.Ed25519(), c.ID, nonce(1)),
		"ES256 for Ed25519":  s.proven(curve, c.ID, nonce(1)),
		"Ed25519 for ES256":  s.proven(k, d.ID, nonce(1)),
		"another P-256 key":  s.proven(prooftest.ECDSA(elliptic.P256()), d.ID, nonce(1)),
		"the other's record": s.proven(k, d.ID, nonce(2)),
	} {
		if got := s.find(t, q); got.Denied != "proof_invalid" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, signature := range []string{"", "AA", strings.Repeat("A", 86), strings.Repeat("A", 85) + "B", "+" + strings.Repeat("A", 85), "none"} {
		q := s.proven(curve, d.ID, nonce(3))
		if q.Claim.Proof.Signature = signature; s.find(t, q).Denied != "proof_invalid" {
			t.Errorf("%q is a signature", signature)
		}
	}
	q := s.proven(k, c.ID, nonce(4))
	if q.Claim.Proof.Signature += "=="; s.find(t, q).Denied != "proof_invalid" {
		t.Error("a signature with padding is one")
	}
}

func TestHolderKeys(t *testing.T) {
	k, curve := prooftest.Ed25519(), prooftest.ECDSA(elliptic.P256())
	public := string(k.JWK())
	with := func(members string) string { return strings.TrimSuffix(public, "}") + "," + members + "}" }
	for name, test := range map[string]struct {
		jwk  string
		want bool
	}{
		"Ed25519":       {public, true},
		"P-256":         {string(curve.JWK()), true},
		"with an id":    {with(`"kid":"k1","use":"sig","alg":"EdDSA","key_ops":["verify"],"ext":true`), true},
		"private":       {string(k.PrivateJWK()), false},
		"private P-256": {string(curve.PrivateJWK()), false},
		"P-384":         {string(prooftest.ECDSA(elliptic.P384()).JWK()), false},
		"symmetric":     {`{"kty":"oct","k":"c2VjcmV0"}`, false},
		"RSA":           {`{"kty":"RSA","n":"AQAB","e":"AQAB"}`, false},
		"X25519":        {strings.Replace(public, "Ed25519", "X25519", 1), false},
		"a short one":   {`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}`, false},
		"off the curve": {`{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`, false},
		"more members":  {with(`"x5u":"https://example.com"`), false},
		"twice":         {with(`"kty":"OKP"`), false},
		"null":          {`null`, false},
		"a text":        {`"key"`, false},
		"large":         {with(`"kid":"` + strings.Repeat("k", 2000) + `"`), false},
	} {
		key, err := capability.ParseKey(jsontext.Value(test.jwk))
		if (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
		var invalid *authzen.ValidationError
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("%s: %v is not a fault of the request", name, err)
		}
		if err == nil && (len(key.JKT) != 43 || strings.Contains(string(key.JWK), "kid")) {
			t.Errorf("%s: %+v", name, key)
		}
	}
	// RFC 8037, appendix A.3.
	key, err := capability.ParseKey(jsontext.Value(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`))
	if err != nil || key.JKT != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("%+v, %v", key, err)
	}
}

// A proof holds for a minute before and after its timestamp, and its members have bounds.
func TestStaleAndEarly(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	for i, test := range []struct {
		timestamp, nonce string
		want             authzen.CapabilityReason
	}{
		{morning.Add(-time.Minute).Format(time.RFC3339), nonce(1), ""},
		{morning.Add(time.Minute).Format(time.RFC3339), nonce(2), ""},
		{"2026-11-21T08:00:00.123Z", nonce(3), ""},
		{"2026-11-21T09:00:30+01:00", nonce(4), ""},
		{morning.Add(-61 * time.Second).Format(time.RFC3339), nonce(5), "proof_stale"},
		{morning.Add(61 * time.Second).Format(time.RFC3339), nonce(5), "proof_stale"},
		{"2026-11-21T08:00:00", nonce(5), "proof_invalid"},
		{"now", nonce(5), "proof_invalid"},
		{"2026-11-21T08:00:00." + strings.Repeat("0", 60) + "Z", nonce(5), "proof_invalid"},
		{morning.Format(time.RFC3339), "0123456789abcde", "proof_invalid"},
		{morning.Format(time.RFC3339), strings.Repeat("n", 65), "proof_invalid"},
		{morning.Format(time.RFC3339), "0123456789 abcdef", "proof_invalid"},
		{morning.Format(time.RFC3339), "0123456789äbcdef", "proof_invalid"},
		{morning.Format(time.RFC3339), strings.Repeat("n", 64), ""},
	} {
		q := s.call("files:write", `{"n":1}`, claim(c.ID, true))
		q.Claim.Proof = k.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: c.ID, Nonce: test.nonce, Timestamp: test.timestamp, Tool: "files:write"})
		if got := s.find(t, q); got.Denied != test.want {
			t.Errorf("%d: %s %s: %+v, want %q", i, test.timestamp, test.nonce, got, test.want)
		}
	}
}

// A proof is looked at last: to others than the holder, and for what it does not cover, its own faults
// are not told, and it is not taken.
func TestAProofIsLookedAtLast(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	limited := bound(t, k, "files:write")
	limited.Constraints.MaxUses, limited.Session = 1, "s-1"
	limited.Constraints.Arguments = jsonobject.Object{"n": jsontext.Value("1")}
	c := s.issue(t, limited)
	ask := func(change func(*authzen.CapabilityQuestion)) authzen.CapabilityStatus {
		q := s.proven(k, c.ID, nonce(1))
		q.Claim.Session = "s-1"
		change(q)
		return s.find(t, q)
	}
	for _, test := range []struct {
		change func(*authzen.CapabilityQuestion)
		want   authzen.CapabilityReason
	}{
		{func(q *authzen.CapabilityQuestion) { q.Request.Subject.ID = "agent-m" }, "unknown"},
		{func(q *authzen.CapabilityQuestion) { q.Tenant = "other" }, "unknown"},
		{func(q *authzen.CapabilityQuestion) {
			*q.Request = *s.call("files:read", `{"n":1}`, nil).Request
		}, "tool_not_covered"},
		{func(q *authzen.CapabilityQuestion) { q.Request = s.call("files:write", `{"n":2}`, nil).Request }, "arguments_violate"},
		{func(q *authzen.CapabilityQuestion) { q.Request = s.call("files:write", "", nil).Request }, "arguments_missing"},
		{func(q *authzen.CapabilityQuestion) { q.Claim.Session = "s-2" }, "wrong_session"},
		{func(q *authzen.CapabilityQuestion) { q.Claim.Proof = nil }, "proof_missing"},
		{func(q *authzen.CapabilityQuestion) { q.Claim.Use = nil }, "use_missing"},
		{func(*authzen.CapabilityQuestion) {}, ""},
		{func(*authzen.CapabilityQuestion) {}, "replayed"},
	} {
		if got := ask(test.change); got.Denied != test.want {
			t.Errorf("%+v, want %q", got, test.want)
		}
	}
	if q := s.proven(k, c.ID, nonce(2)); true {
		if q.Claim.Session = "s-1"; !s.decide(t, q) {
			t.Error("the only use is refused")
		}
	}
	if got := ask(func(q *authzen.CapabilityQuestion) { q.Claim.Proof = s.proven(k, c.ID, nonce(3)).Claim.Proof }); got.Denied != "exhausted" {
		t.Errorf("without a use left: %+v", got)
	}
}

func TestReplay(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	d := s.issue(t, bound(t, k, "files:*"))
	q := s.proven(k, c.ID, nonce(1))
	if !s.decide(t, q) {
		t.Fatal("the first use is refused")
	}
	for range 3 {
		if got := s.find(t, q); got.Denied != "replayed" {
			t.Errorf("again: %+v", got)
		}
		s.pass(20 * time.Second)
		s.sweep(t)
	}
	s.pass(time.Second)
	q.Time = s.time()
	if got := s.find(t, q); got.Denied != "proof_stale" {
		t.Errorf("after a minute: %+v", got)
	}
	if got := s.find(t, s.proven(k, d.ID, nonce(1))); got.Denied != "replayed" {
		t.Errorf("the nonce with another capability of the key: %+v", got)
	}
	other := prooftest.Ed25519()
	e := s.issue(t, bound(t, other, "files:*"))
	if s.find(t, s.proven(other, e.ID, nonce(1))).Capability == nil {
		t.Error("the nonce of another key is refused")
	}
}

// Every evaluation of a batch has the same proof; a second batch cannot have it.
func TestOneBatchOneProof(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	q := s.proven(k, c.ID, nonce(1))
	for n, batch := range []map[string]bool{{}, {}} {
		for range 3 {
			q.Proven = batch
			if got := s.find(t, q); (got.Denied == "replayed") != (n == 1) {
				t.Errorf("batch %d: %+v", n, got)
			}
		}
	}
}

// Of 100 presentations at once, one takes the proof.
func TestReplayAtOnce(t *testing.T) {
	s, k := open(t), prooftest.ECDSA(elliptic.P256())
	c := s.issue(t, bound(t, k, "files:*"))
	for round := range 20 {
		q := s.proven(k, c.ID, nonce(round))
		var took atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				mine := *q
				if got, err := s.Find(t.Context(), &mine); err == nil && got.Capability != nil {
					took.Add(1)
				}
			})
		}
		all.Wait()
		if took.Load() != 1 {
			t.Errorf("%d took the proof", took.Load())
		}
	}
}

// A start reads the proofs of the log that can still be presented, however the last run ended.
func TestReplayAfterARestart(t *testing.T) {
	for name, restart := range map[string]func(*store, testing.TB){"a crash": (*store).crash, "a clean end": (*store).reopen} {
		for _, after := range []time.Duration{0, 30 * time.Second, time.Minute} {
			s, k := open(t), prooftest.Ed25519()
			c := s.issue(t, bound(t, k, "files:*"))
			for i := range 5 {
				s.pass(time.Minute)
				s.decide(t, s.proven(k, c.ID, nonce(100+i)))
				s.sweep(t)
			}
			s.pass(time.Minute)
			ahead := s.call("files:write", `{"n":1}`, claim(c.ID, true))
			ahead.Claim.Proof = k.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: c.ID, Nonce: nonce(1), Timestamp: s.time().Add(time.Minute).Format(time.RFC3339), Tool: "files:write"})
			if !s.decide(t, ahead) {
				t.Fatal("the proof is refused")
			}
			s.pass(after)
			s.sweep(t)
			restart(s, t)
			for range 2 {
				if got := s.find(t, ahead); got.Denied != "replayed" {
					t.Errorf("%s after %s: %+v", name, after, got)
				}
			}
			s.pass(2*time.Minute - after)
			ahead.Time = s.time()
			if got := s.find(t, ahead); got.Denied != "replayed" {
				t.Errorf("%s, in the last second of the proof: %+v", name, got)
			}
			if from := s.reads[len(s.reads)-1]; from == 0 {
				t.Errorf("%s: the log is read from its beginning", name)
			}
		}
	}
}

// The control of the tests of crashes: a service that does not read the log takes a proof again.
func TestProofsAreForgottenWithoutTheLog(t *testing.T) {
	s := openWith(t, func(c *capability.Config) { c.UsesSince = nil })
	k := prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	q := s.proven(k, c.ID, nonce(1))
	if !s.decide(t, q) {
		t.Fatal("the proof is refused")
	}
	s.crash(t)
	if !s.decide(t, q) {
		t.Error("the proof is taken without the log: the tests of crashes prove nothing")
	}
}

// A clock that is set back does not revive a proof, not even over a restart.
func TestClockBackRevivesNoProof(t *testing.T) {
	s, k := open(t), prooftest.Ed25519()
	c := s.issue(t, bound(t, k, "files:*"))
	used := s.proven(k, c.ID, nonce(1))
	if !s.decide(t, used) {
		t.Fatal("the proof is refused")
	}
	s.pass(10 * time.Minute)
	s.decide(t, s.proven(k, c.ID, nonce(2)))
	s.config.NotBefore = s.time() // of the last log entry
	for _, restart := range []func(testing.TB){func(testing.TB) {}, s.reopen, s.crash} {
		s.pass(-10 * time.Minute)
		restart(t)
		if used.Time = s.time(); s.find(t, used).Denied != "proof_stale" {
			t.Error("a used proof is taken again")
		}
		s.pass(10 * time.Minute)
	}
}

func TestCapabilityBounds(t *testing.T) {
	s := openWith(t, func(c *capability.Config) { c.MaxProofs, c.MaxProofsOf = 10, 4 })
	k := prooftest.Ed25519()
	var all []*capability.Capability
	for i := range 4 {
		bound := bound(t, k, "files:*")
		bound.Holder = authzen.Subject{Type: "agent", ID: fmt.Sprint(i)}
		all = append(all, s.issue(t, bound))
	}
	n := 0
	take := func(c *capability.Capability) error {
		n++
		q := s.proven(k, c.ID, nonce(n))
		q.Request.Subject = c.Holder
		got, err := s.Find(t.Context(), q)
		if err == nil && got.Capability == nil {
			t.Errorf("denied: %+v", got)
		}
		return err
	}
	for _, want := range []struct {
		of  int
		err error
	}{
		{0, nil}, {0, nil}, {0, nil}, {0, nil}, {0, capability.ErrTooManyProofs},
		{1, nil}, {1, nil}, {1, nil}, {1, nil}, {2, nil}, {2, nil}, {3, capability.ErrTooManyProofs},
	} {
		if err := take(all[want.of]); !errors.Is(err, want.err) {
			t.Errorf("proof %d: %v", n, err)
		}
	}
	s.pass(2 * time.Minute)
	if err := take(all[0]); !errors.Is(err, capability.ErrTooManyProofs) {
		t.Errorf("proofs are forgotten early: %v", err)
	}
	s.pass(2*time.Minute + time.Second)
	if err := take(all[3]); err != nil {
		t.Errorf("after both generations: %v", err)
	}
}

// The set of proofs has what was added, and nothing else.
func TestSetOfProofs(t *testing.T) {
	taken := capability.TakeMany(10_000, 3, morning)
	for n := range 20_000 {
		if got := taken.Has(n); got != (n < 10_000) {
			t.Fatalf("proof %d: %v", n, got)
		}
	}
}

// A million proofs need 32 MB at most.
func TestMemoryOfProofs(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	proofs := capability.TakeMany(1_000_000, 200, morning)
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d proofs need %d bytes", proofs.Len(), used)
	if used > 32<<20 || proofs.Len() != 1_000_000 {
		t.Errorf("%d proofs need %d bytes", proofs.Len(), used)
	}
	runtime.KeepAlive(proofs)
}
