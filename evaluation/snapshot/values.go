package snapshot

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A reader converts one JSON object of a request to Cedar values. A PEP sends data only. The reader
// never uses Cedar's own JSON form, in which data can name entities and extension values.
type reader struct {
	dec  jsontext.Decoder
	raw  bytes.Buffer // input of dec
	path string       // path of the object in the request
	*Settings
	drop bool // drop members that a declared record does not declare
	tally
}

// A tally holds a reader's counts.
type tally struct {
	elements, nested int // elements of arrays so far, and those that are arrays or objects
	arrays           int // open arrays
	inner            int // arrays and objects so far inside arrays of arrays
}

// Limits on the arrays of one object in total. A set takes quadratic time in the number of colliding
// elements, and nested sets take the square of that. So the limit on arrays and objects inside arrays
// of arrays is, in total, the limit of one array.
const (
	maxElements = 16384
	maxNested   = 2048
)

// members calls visit for each member of an object. It skips values that visit does not read. It treats
// nulls as absent members.
func (r *reader) members(visit func(name string) error) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err)
	}
	for r.dec.PeekKind() == '"' {
		token, err := r.dec.ReadToken()
		if err != nil {
			return r.syntax(err)
		}
		name := token.String()
		if isReserved(name) {
			return r.invalid("is a reserved name")
		}
		before := r.dec.InputOffset()
		if r.dec.PeekKind() != 'n' {
			if err := visit(name); err != nil {
				return err
			}
		}
		if r.dec.InputOffset() == before {
			if err := r.dec.SkipValue(); err != nil {
				return r.syntax(err)
			}
		}
	}
	_, err := r.dec.ReadToken()
	return r.syntax(err)
}

// record reads an object, each member in its shape.
func (r *reader) record(s *shape) (cedar.Record, error) {
	values := cedar.RecordMap{}
	err := r.members(func(name string) error {
		value, err := r.member(s, name)
		if value != nil {
			values[cedar.String(name)] = value
		}
		return err
	})
	if err == nil {
		err = r.missing(s, values)
	}
	return cedar.NewRecord(values), err
}

// missing reports a member that the shape requires and that the values of the object lack.
func (r *reader) missing(s *shape, values cedar.RecordMap) error {
	if name := missing(s, values); name != "" {
		return authzen.Invalid(below(r.here(), name), "is required by the schema")
	}
	return nil
}

func missing(s *shape, values cedar.RecordMap) string {
	if s == nil || !s.declared {
		return ""
	}
	first := ""
	for name, member := range s.Members {
		if _, ok := values[cedar.String(name)]; !ok && member.required && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// member reads the value of a record's member. It returns nil for a dropped member, whose value must
// be valid nevertheless.
func (r *reader) member(s *shape, name string) (cedar.Value, error) {
	declared, ok := s.member(name)
	switch {
	case ok:
		return r.value(declared)
	case r.drop && s.drops(name):
		_, err := r.value(nil)
		return nil, err
	}
	return nil, r.invalid("is not declared by the schema%s", Parenthesized(faults.DidYouMean(name, s.Names())))
}

func Parenthesized(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

// value reads one value in its shape. Its errors are *authzen.ValidationError.
func (r *reader) value(s *shape) (cedar.Value, error) {
	s = s.OrAny()
	switch r.dec.PeekKind() {
	case '{':
		return r.object(s)
	case '[':
		return r.array(s)
	}
	token, err := r.dec.ReadToken()
	if err != nil {
		return nil, r.syntax(err)
	}
	switch token.Kind() {
	case '"':
		return r.text(s, token.String())
	case '0':
		return r.number(s, token.String())
	case 't', 'f':
		if s.Kind == kindAny || s.Kind == kindBool {
			return cedar.Boolean(token.Bool()), nil
		}
	case 'n':
		return nil, r.invalid("must not be null")
	}
	return nil, r.mismatch(s)
}

func (r *reader) object(s *shape) (cedar.Value, error) {
	switch s.Kind {
	case kindAny, kindRecord:
		if s.Kind == kindAny {
			s = nil
		}
		return r.record(s)
	case KindEntity:
		return r.reference(s)
	}
	r.skip()
	return nil, r.mismatch(s)
}

// reference reads {"type":…,"id":…} if the shape is an entity.
func (r *reader) reference(s *shape) (cedar.Value, error) {
	sent := map[string]string{}
	err := r.members(func(name string) error {
		token, err := r.dec.ReadToken()
		if err != nil {
			return r.syntax(err)
		}
		if token.Kind() != '"' || name != "type" && name != "id" {
			return r.invalid("does not belong in an entity: write {\"type\",\"id\"}")
		}
		sent[name] = token.String()
		return nil
	})
	if err != nil {
		return nil, err
	}
	id, ok := sent["id"]
	if !ok {
		return nil, authzen.Invalid(r.here()+"/id", "is required")
	}
	if named, ok := sent["type"]; ok {
		if entity, err := r.entityType(named); err != nil || entity != s.Entity {
			return nil, authzen.Invalid(r.here()+"/type", "must be %s, not %q", s.Entity, named)
		}
	}
	return r.entityNamed(s, id)
}

func (r *reader) entityNamed(s *shape, id string) (cedar.Value, error) {
	if s.ids != nil && !slices.Contains(s.ids, cedar.String(id)) {
		return nil, r.invalid("must be one of the %s entities of the schema, not %q", s.Entity, id)
	}
	return cedar.NewEntityUID(s.Entity, cedar.String(id)), nil
}

func (r *reader) array(s *shape) (cedar.Value, error) {
	element := s
	switch s.Kind {
	case kindAny:
		element = nil
	case kindSet:
		element = s.element
	default:
		if !s.orArray {
			r.skip()
			return nil, r.mismatch(s)
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, r.syntax(err)
	}
	r.arrays++
	limit := r.Limits.ArrayElements
	var elements []cedar.Value
	for r.dec.PeekKind() != ']' {
		if k := r.dec.PeekKind(); k == '{' || k == '[' {
			limit = min(limit, r.Limits.NestedArrayElements)
			r.nested++
			if r.arrays > 1 {
				r.inner++
			}
		}
		value, err := r.value(element)
		if err != nil {
			return nil, err
		}
		r.elements++
		if elements = append(elements, value); len(elements) > limit {
			return nil, authzen.Invalid(r.path+string(r.dec.StackPointer().Parent()), "has more than %d elements", limit)
		}
		if err := r.crowded(); err != nil {
			return nil, err
		}
	}
	r.arrays--
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, r.syntax(err)
	}
	return cedar.NewSet(elements...), nil
}

// crowded reports arrays that exceed the limits in total.
func (r *reader) crowded() error {
	switch {
	case r.nested > maxNested || r.elements > maxElements:
		return authzen.Invalid(r.path, "has more than %d elements in arrays, or %d that are arrays or objects", maxElements, maxNested)
	case r.inner > r.Limits.NestedArrayElements:
		return authzen.Invalid(r.path, "has more than %d arrays or objects in arrays that are in arrays", r.Limits.NestedArrayElements)
	}
	return nil
}

func (r *reader) text(s *shape, text string) (cedar.Value, error) {
	if len(text) > r.Limits.StringBytes {
		return nil, r.invalid("is longer than %d bytes", r.Limits.StringBytes)
	}
	var value cedar.Value
	var err error
	switch s.Kind {
	case kindAny, kindString:
		return cedar.String(text), nil
	case KindEntity:
		return r.entityNamed(s, text)
	case kindDecimal:
		value, err = parseDecimal(text)
	case kindIPAddr:
		value, err = types.ParseIPAddr(text)
	case KindDatetime:
		value, err = types.ParseDatetime(text)
	case kindDuration:
		value, err = types.ParseDuration(text)
	default:
		return nil, r.mismatch(s)
	}
	if err != nil {
		return nil, r.mismatch(s)
	}
	return value, nil
}

// parseDecimal parses a decimal as the official engine does, without a plus sign.
func parseDecimal(text string) (cedar.Decimal, error) {
	if strings.HasPrefix(text, "+") {
		return cedar.Decimal{}, strconv.ErrSyntax
	}
	return types.ParseDecimal(text)
}

// number reads a JSON number. An integral number is a Long, and one with up to four decimals is a
// decimal. It never rounds.
func (r *reader) number(s *shape, text string) (cedar.Value, error) {
	digits, exponent, ok := splitNumber(text)
	switch {
	case !ok || exponent < -4:
		return nil, r.invalid("must be a 64-bit integer or have at most four decimals: %s", text)
	case s.Kind == kindDecimal || s.Kind == kindAny && exponent < 0:
		value, err := types.NewDecimal(digits, exponent)
		if err != nil {
			return nil, r.invalid("is out of the range of a decimal: %s", text)
		}
		return value, nil
	case s.Kind == kindLong && exponent < 0 || s.Kind != kindAny && s.Kind != kindLong:
		return nil, r.mismatch(s)
	}
	return cedar.Long(digits), nil
}

// splitNumber returns digits and exponent such that text is digits * 10^exponent. The exponent is 0 if
// and only if the number is integral. It returns false if the digits do not fit an int64.
func splitNumber(text string) (digits int64, exponent int, ok bool) {
	mantissa, power, scientific := strings.Cut(strings.ToLower(text), "e")
	if scientific {
		e, err := strconv.Atoi(power)
		if err != nil {
			return 0, 0, false
		}
		exponent = e
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(all, "0")
	if significant == "" {
		return 0, 0, true
	}
	exponent += len(all) - len(significant) - len(fraction)
	if exponent > 18 {
		return 0, 0, false
	}
	if exponent > 0 {
		significant, exponent = significant+strings.Repeat("0", exponent), 0
	}
	if mantissa[0] == '-' {
		significant = "-" + significant
	}
	digits, err := strconv.ParseInt(significant, 10, 64)
	return digits, exponent, err == nil
}

// skip skips a value, so that an error's path is that of the value.
func (r *reader) skip() { _ = r.dec.SkipValue() }

func (r *reader) here() string { return r.path + string(r.dec.StackPointer()) }

func (r *reader) invalid(format string, args ...any) error {
	return authzen.Invalid(r.here(), format, args...)
}

func (r *reader) mismatch(s *shape) error {
	what := s.Kind.String()
	if s.Kind == KindEntity {
		what = "a " + string(s.Entity) + " entity: its id, or {\"type\",\"id\"}"
	}
	return r.invalid("must be %s", what)
}

// syntax wraps an error of the JSON reader. Requests are parsed strictly before, so only callers that
// build requests themselves see it.
func (r *reader) syntax(err error) error {
	if err == nil {
		return nil
	}
	return authzen.Invalid(r.here(), "is not valid JSON: %v", err)
}

// readers holds readers for reuse.
var readers = sync.Pool{New: func() any { return new(reader) }}

// newReader returns a reader of the object raw at path in a request. The caller must close it.
func newReader(raw jsontext.Value, path string, s *Settings) *reader {
	r := readers.Get().(*reader)
	r.raw = *bytes.NewBuffer(raw)
	r.dec.Reset(&r.raw)
	r.path, r.Settings, r.drop, r.tally = path, s, s.UndeclaredAttributes == undeclaredDrop, tally{}
	return r
}

func (r *reader) close() { readers.Put(r) }
