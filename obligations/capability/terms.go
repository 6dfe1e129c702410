package capability

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Bounds of the terms of one capability. Sizes are in bytes.
const (
	maxTools     = 64
	maxToolSize  = 256
	maxEntity    = 1024
	maxReason    = 4096
	maxArguments = 8 << 10
	maxSchema    = 8 << 10
	maxSession   = 1024
	maxUses      = 1_000_000
	maxLifetime  = 366 * 24 * time.Hour
)

// check refuses terms that are out of bounds. Paths are those of a request body.
func (t *Terms) check(c Caller, now time.Time) error {
	if t.Holder.Type == "" || t.Holder.ID == "" || len(t.Holder.Type)+len(t.Holder.ID) > maxEntity {
		return authzen.Invalid("/subject", "must have a type and an id of at most %d bytes", maxEntity)
	}
	if len(t.Tools) == 0 || len(t.Tools) > maxTools {
		return authzen.Invalid("/tools", "must have 1 to %d elements", maxTools)
	}
	for i, tool := range t.Tools {
		if err := checkTool(tool, c.AnyTool); err != "" {
			return authzen.Invalid(fmt.Sprintf("/tools/%d", i), "%s", err)
		}
		if slices.Contains(t.Tools[:i], tool) {
			return authzen.Invalid(fmt.Sprintf("/tools/%d", i), "is named twice")
		}
	}
	if len(t.Reason) > maxReason || !utf8.ValidString(t.Reason) {
		return authzen.Invalid("/reason", "must be text of at most %d bytes", maxReason)
	}
	if len(t.Session) > maxSession {
		return authzen.Invalid("/session", "is longer than %d bytes", maxSession)
	}
	if err := t.checkTime(now); err != nil {
		return err
	}
	return t.Constraints.check()
}

// everyTool is the pattern of all tools of all servers.
const everyTool = "*"

// checkTool returns why a text is no pattern of tools, or "".
func checkTool(pattern string, anyTool bool) string {
	if pattern == everyTool {
		if anyTool {
			return ""
		}
		return "must name a server, as in SERVER:* or SERVER:TOOL"
	}
	server, tool := cutTool(pattern)
	switch {
	case server == "" || tool == "":
		return "must be SERVER:TOOL or SERVER:*"
	case len(pattern) > maxToolSize:
		return fmt.Sprintf("is longer than %d bytes", maxToolSize)
	case strings.Contains(server, everyTool) || tool != everyTool && strings.Contains(tool, everyTool):
		return "must have * in place of a whole tool name, as in SERVER:*"
	case strings.ContainsFunc(pattern, func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return "must not have spaces or control characters"
	}
	return ""
}

// cutTool returns the server and the tool of SERVER:TOOL. Only a tool may contain a colon.
func cutTool(name string) (server, tool string) {
	server, tool, _ = strings.Cut(name, ":")
	return server, tool
}

// checkTime refuses terms without an end, or with one that is out of bounds.
func (t *Terms) checkTime(now time.Time) error {
	from, until, lasts := t.Constraints.ValidFrom, t.Constraints.ValidUntil, t.Duration.Duration
	switch {
	case lasts < 0 || lasts > maxLifetime || lasts%time.Second != 0:
		return authzen.Invalid("/duration", "must be whole seconds, at most %d", int64(maxLifetime.Seconds()))
	case lasts == 0 && until.IsZero():
		return authzen.Invalid("/duration", "is required")
	case !until.IsZero() && !until.Truncate(time.Second).After(now):
		return authzen.Invalid("/constraints/validUntil", "has passed")
	case until.After(now.Add(maxLifetime)):
		return authzen.Invalid("/constraints/validUntil", "is more than %d days ahead", int(maxLifetime.Hours()/24))
	case from.After(now.Add(maxLifetime)):
		return authzen.Invalid("/constraints/validFrom", "is more than %d days ahead", int(maxLifetime.Hours()/24))
	case !until.IsZero() && !from.Before(until):
		return authzen.Invalid("/constraints/validUntil", "must be after validFrom")
	}
	return nil
}

func (c *Constraints) check() error {
	if c.MaxUses < 0 || c.MaxUses > maxUses {
		return authzen.Invalid("/constraints/maxUses", "must be 1 to %d", maxUses)
	}
	size := 0
	for name, value := range c.Arguments {
		if _, err := jsonobject.Canonical(value); err != nil || value == nil {
			return authzen.Invalid("/constraints/arguments", "has the value of %.64q that is not unambiguous JSON", name)
		}
		size += len(name) + len(value)
	}
	if size > maxArguments {
		return authzen.Invalid("/constraints/arguments", "is larger than %d bytes", maxArguments)
	}
	if len(c.ArgumentsSchema) > maxSchema {
		return authzen.Invalid("/constraints/arguments_schema", "is larger than %d bytes", maxSchema)
	}
	if c.ArgumentsSchema == nil {
		return nil
	}
	if _, err := compileSchema(c.ArgumentsSchema); err != nil {
		return authzen.Invalid("/constraints/arguments_schema", "is not a JSON Schema that can be used: %s", err)
	}
	return nil
}

// stored returns the terms as they are stored: times in whole seconds and UTC, never earlier or later
// than asked, and the session as a digest.
func (t Terms) stored() Terms {
	t.Holder = *named(t.Holder)
	if from := t.Constraints.ValidFrom; !from.IsZero() {
		t.Constraints.ValidFrom = from.Add(time.Second - 1).UTC().Truncate(time.Second)
	}
	if until := t.Constraints.ValidUntil; !until.IsZero() {
		t.Constraints.ValidUntil = until.UTC().Truncate(time.Second)
	}
	if t.Session != "" {
		t.Session = sessionDigest(t.Session)
	}
	return t
}

// sessionDigest returns the stored form of a session id, which may be a secret elsewhere.
func sessionDigest(session string) string {
	sum := sha256.Sum256([]byte(session))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// fingerprint returns a digest of the canonical form of the terms.
func (t *Terms) fingerprint() ([]byte, error) {
	if t.asked != nil {
		return t.asked, nil
	}
	text, err := json.Marshal(t)
	if err == nil {
		text, err = jsonobject.Canonical(text)
	}
	if err != nil {
		return nil, fmt.Errorf("encode capability: %w", err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// idempotencyKey returns the key under which an Idempotency-Key of a caller is stored, or nil for none.
func idempotencyKey(c Caller, key string) []byte {
	if key = authzen.IdempotencyKey(key); key == "" {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Tenant, c.ID, key))
	return sum[:]
}
