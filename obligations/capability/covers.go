package capability

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A question is a request for which a capability is wanted. It reads the parts of the request that it
// needs, once.
type question struct {
	*authzen.CapabilityQuestion
	now time.Time

	hasTool bool
	tool    string // SERVER:TOOL

	parsed    bool
	arguments jsontext.Value // canonical; nil for none, or for what is not an object
	invalid   bool           // they are not an object
	digest    *string
}

func newQuestion(q *authzen.CapabilityQuestion, now time.Time) *question {
	tool, ok := q.Request.Tool()
	return &question{CapabilityQuestion: q, now: now, hasTool: ok, tool: tool}
}

// claim returns the claim of the question, which may be the zero one.
func (q *question) claim() authzen.CapabilityClaim {
	if q.Claim == nil {
		return authzen.CapabilityClaim{}
	}
	return *q.Claim
}

// callArguments returns the canonical arguments of the call. It returns nil if there are none, and
// false if they are not an object.
func (q *question) callArguments() (jsontext.Value, bool) {
	if q.parsed {
		return q.arguments, !q.invalid
	}
	q.parsed = true
	var context struct {
		Arguments jsontext.Value `json:"arguments"`
	}
	if q.Request.Context == nil {
		return nil, true
	}
	if err := json.Unmarshal(q.Request.Context, &context); err != nil {
		q.invalid = true
		return nil, false
	}
	if context.Arguments == nil {
		return nil, true
	}
	canonical, err := jsonobject.Canonical(context.Arguments)
	if q.invalid = err != nil || canonical.Kind() != '{'; q.invalid {
		return nil, false
	}
	q.arguments = canonical
	return q.arguments, true
}

// call returns a digest of request id, tool and arguments, by which a repetition is recognized, or "".
// An id with replacement characters identifies nothing, because it may stand for any other invalid id.
func (q *question) call() string {
	if q.digest != nil {
		return *q.digest
	}
	q.digest = new(string)
	arguments, ok := q.callArguments()
	if !ok || q.RequestID == "" || strings.ContainsRune(q.RequestID, '\uFFFD') {
		return ""
	}
	if arguments == nil {
		arguments = jsontext.Value("{}")
	}
	text, err := json.Marshal([]string{q.RequestID, q.tool, string(arguments)})
	if err != nil { // the request id is not valid UTF-8
		return ""
	}
	*q.digest = shortDigest(string(text))
	return *q.digest
}

func shortDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// covers returns why a capability does not cover a question, or "". It does not look at the holder and
// at uses.
func (e *entry) covers(q *question) authzen.CapabilityReason {
	if reason := e.permits(q); reason != "" {
		return reason
	}
	if e.Session != "" && sessionDigest(q.claim().Session) != e.Session {
		return authzen.CapabilityWrongSession
	}
	return ""
}

// permits is covers for any session.
func (e *entry) permits(q *question) authzen.CapabilityReason {
	if reason := e.valid(q.now); reason != "" {
		return reason
	}
	if !e.names(q) {
		return authzen.CapabilityToolNotCovered
	}
	return e.arguments.violated(q)
}

// names reports whether the question is about one of the tools.
func (e *entry) names(q *question) bool {
	return q.hasTool && slices.ContainsFunc(e.Tools, func(pattern string) bool { return matches(pattern, q.tool) })
}

// valid returns why a capability does not count at a time, or "". An exhausted one counts, because the
// repetition of its last use does.
func (c *Capability) valid(now time.Time) authzen.CapabilityReason {
	switch {
	case c.Issued.IsZero():
		return authzen.CapabilityUnknown
	case c.State == Revoked:
		return authzen.CapabilityRevoked
	case c.State == Expired, !now.Before(c.Constraints.ValidUntil):
		return authzen.CapabilityExpired
	case now.Before(c.Constraints.ValidFrom):
		return authzen.CapabilityNotYetValid
	}
	return ""
}

// matches reports whether a pattern has a tool SERVER:TOOL.
func matches(pattern, tool string) bool {
	if pattern == everyTool || pattern == tool {
		return true
	}
	server, ok := strings.CutSuffix(pattern, ":"+everyTool)
	if !ok {
		return false
	}
	of, name := cutTool(tool)
	return of == server && name != ""
}

// An argumentRule is what a capability demands of arguments.
type argumentRule struct {
	values map[string]jsontext.Value // canonical
	schema *schema                   // nil for any
	broken bool                      // it cannot be satisfied
}

// newArgumentRule returns the rule of constraints, which were checked before, or nil for none.
func newArgumentRule(c *Constraints) *argumentRule {
	if len(c.Arguments) == 0 && c.ArgumentsSchema == nil {
		return nil
	}
	rule := &argumentRule{values: map[string]jsontext.Value{}}
	for name, value := range c.Arguments {
		canonical, err := jsonobject.Canonical(value)
		rule.values[name], rule.broken = canonical, rule.broken || err != nil
	}
	if c.ArgumentsSchema != nil {
		compiled, err := compileSchema(c.ArgumentsSchema)
		rule.schema, rule.broken = compiled, rule.broken || err != nil
	}
	return rule
}

// violated returns why the arguments of a question violate the rule, or "".
func (r *argumentRule) violated(q *question) authzen.CapabilityReason {
	if r == nil {
		return ""
	}
	arguments, ok := q.callArguments()
	if ok && arguments == nil {
		return authzen.CapabilityArgumentsMissing
	}
	if !ok || r.broken || !r.hasValues(arguments) || r.schema != nil && r.schema.check(arguments) != nil {
		return authzen.CapabilityArgumentsViolate
	}
	return ""
}

// hasValues reports whether canonical arguments have all values of the rule.
func (r *argumentRule) hasValues(arguments jsontext.Value) bool {
	if len(r.values) == 0 {
		return true
	}
	all, err := jsonobject.Parse(arguments)
	if err != nil {
		return false
	}
	for name, want := range r.values {
		if got, ok := all[name]; !ok || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}
