package pdp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// lasting returns how long a capability lasts at most, if it is issued now.
func lasting(terms *capability.Terms, now time.Time) time.Duration {
	from, until, lasts := terms.Constraints.ValidFrom, terms.Constraints.ValidUntil, terms.Duration.Duration
	if until.IsZero() {
		return lasts
	}
	if from.Before(now) {
		from = now
	}
	if rest := until.Sub(from); lasts == 0 || rest < lasts {
		// Rounded up, so that no policy takes it for shorter than it is.
		return (rest + time.Second - 1).Truncate(time.Second)
	}
	return lasts
}

// described returns everything that a holder asks for, in terms of policies and of approvers.
// Constraints of arguments are JSON text, because a schema has no type for any value.
func described(terms *capability.Terms, now time.Time) (map[string]any, error) {
	limits := terms.Constraints
	all := map[string]any{"duration": int64(lasting(terms, now).Seconds()), "bound": terms.BoundTo()}
	if limits.MaxUses > 0 {
		all["max_uses"] = limits.MaxUses
	}
	if len(limits.Arguments) > 0 {
		arguments, err := limits.Arguments.Encode()
		if err != nil {
			return nil, fmt.Errorf("encode question: %w", err)
		}
		all["arguments"] = string(arguments)
	}
	if limits.ArgumentsSchema != nil {
		all["arguments_schema"] = string(limits.ArgumentsSchema)
	}
	for name, at := range map[string]time.Time{"valid_from": limits.ValidFrom, "valid_until": limits.ValidUntil} {
		if !at.IsZero() {
			all[name] = at.UTC().Format(time.RFC3339)
		}
	}
	if terms.Reason != "" {
		all["reason"] = terms.Reason
	}
	return all, nil
}

// encodeTerms returns the context of the questions about a request.
func encodeTerms(terms *capability.Terms, depth int, now time.Time) (jsontext.Value, error) {
	context, err := described(terms, now)
	if err != nil {
		return nil, err
	}
	context["depth"] = depth
	if server := onlyServer(terms.Tools); server != "" {
		context["gateway"] = map[string]string{"server": server}
	}
	text, err := json.Marshal(context, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	return text, nil
}

// onlyServer returns the server of the tools, or "" if they have several.
func onlyServer(tools []string) (server string) {
	for n, tool := range tools {
		of, _, _ := strings.Cut(tool, ":")
		if n > 0 && of != server {
			return ""
		}
		server = of
	}
	return server
}

// maxSeconds is the longest duration that can be computed with.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// termsOf returns the terms of a submission.
func termsOf(sub *authzen.CapabilityTerms) (terms capability.Terms, err error) {
	if sub.Duration < 0 || sub.Duration > maxSeconds {
		return terms, authzen.Invalid("/duration", "must be 1 to %d", maxSeconds)
	}
	terms = capability.Terms{
		Holder: authzen.Subject{Type: sub.Subject.Type, ID: sub.Subject.ID}, Tools: sub.Tools, Duration: authzen.Duration{Duration: time.Duration(sub.Duration) * time.Second},
		Session: sub.Session, Reason: sub.Reason,
	}
	if sub.HolderKey != nil {
		if terms.Key, err = capability.ParseKey(sub.HolderKey); err != nil {
			return terms, err
		}
	}
	c := sub.Constraints
	if c == nil {
		return terms, nil
	}
	terms.Constraints = capability.Constraints{MaxUses: int(c.MaxUses), ValidFrom: c.ValidFrom, ValidUntil: c.ValidUntil.Truncate(time.Second), ArgumentsSchema: c.ArgumentsSchema}
	if c.Arguments != nil {
		if terms.Constraints.Arguments, err = jsonobject.Parse(c.Arguments); err != nil {
			return terms, authzen.Invalid("/constraints/arguments", "must be an object")
		}
	}
	return terms, nil
}

// submissionDigest returns the digest that a proof for a submission signs.
func submissionDigest(text jsontext.Value) (string, error) {
	members, err := jsonobject.Parse(text)
	if err != nil {
		return "", err
	}
	members.Remove("subject", "session", "proof")
	rest, err := members.Encode()
	if err == nil {
		rest, err = jsonobject.Canonical(rest)
	}
	sum := sha256.Sum256(rest)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}
