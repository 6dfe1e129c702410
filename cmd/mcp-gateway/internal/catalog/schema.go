package catalog

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// An ArgumentsError says which arguments of a call do not fit the input schema of the
// tool.
type ArgumentsError struct {
	Path   string // JSON Pointer; "" is the arguments themselves
	Reason string
	// Faults are all that the schema has against the arguments, up to [maxFaults],
	// each with its path.
	Faults []string
}

func (e *ArgumentsError) Error() string { return "arguments" + e.Path + " " + e.Reason }

// Limits of a validation.
const (
	maxSteps    = 20_000                // schema objects that are evaluated
	maxSchemas  = 1024                  // compiled schemas that are kept
	patternTime = 50 * time.Millisecond // for all patterns that are not linear
)

var (
	errSteps   = errors.New("the input schema takes too long to compile")
	errPattern = errors.New("the patterns of the input schema take too long to match")
)

// A schema is a compiled input schema. It runs one validation at a time, and counts
// its steps.
type schema struct {
	compiled *jsonschema.Schema

	mu       sync.Mutex
	steps    int
	matching time.Duration // of patterns that are not linear
}

// Members of a definition that are schemas.
const (
	inputSchema  = "inputSchema"
	outputSchema = "outputSchema"
)

// schema returns a schema of a definition, which is compiled once.
func (c *Catalog) schema(digest string, definition jsontext.Value, member string) (*schema, error) {
	c.mu.Lock()
	key := digest + " " + member
	compile, ok := c.schemas[key]
	if !ok {
		if c.schemas == nil || len(c.schemas) >= maxSchemas {
			c.schemas = make(map[string]func() (*schema, error))
		}
		compile = sync.OnceValues(func() (*schema, error) { return compileSchema(definition, member) })
		c.schemas[key] = compile
	}
	c.mu.Unlock()
	return compile()
}

// compileSchema compiles a schema of a definition. One that is absent takes any input
// that is an object, and any output.
func compileSchema(definition jsontext.Value, member string) (s *schema, err error) {
	defer caught(&err)
	tool, err := jsonobject.Parse(definition)
	if err != nil {
		return nil, err
	}
	text := tool[member]
	switch {
	case text == nil && member == inputSchema:
		text = jsontext.Value(`{"type":"object"}`)
	case text == nil:
		text = jsontext.Value(`true`)
	}
	document, err := read(text, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	s = &schema{}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded
	c.UseRegexpEngine(s.pattern)
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "urn:mcp-gateway:steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return step{s}, nil
		},
	})
	c.AssertVocabs()
	const name = "urn:mcp-gateway:schema"
	if err := c.AddResource(name, document); err != nil {
		return nil, err
	}
	s.compiled, err = c.Compile(name)
	return s, err
}

// A step is part of every schema object and counts its evaluations.
type step struct{ *schema }

// Validate counts a step, and ends a validation with too many steps.
func (s step) Validate(*jsonschema.ValidatorContext, any) {
	if s.steps++; s.steps > maxSteps {
		panic(errSteps)
	}
}

// caught converts a panic to an error. jsonschema cannot be stopped otherwise.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}

// read parses a JSON text for jsonschema, which gets numbers as they were written.
// Numbers that are not exact, or that are expensive to compute with, are errors.
func read(text jsontext.Value, fits func(string) bool) (any, error) {
	return number.Read(text, func(raw string) (any, error) {
		if !bounded(raw) || !fits(raw) {
			return nil, fmt.Errorf("the number %.64s may be read differently by other parsers", raw)
		}
		return stdjson.Number(raw), nil
	})
}

// bounded reports whether exact arithmetic with a number is cheap.
func bounded(text string) bool {
	_, exponent, scientific := strings.Cut(strings.ToLower(text), "e")
	n, err := strconv.Atoi(exponent)
	return len(text) <= 64 && (!scientific || err == nil && -400 < n && n < 400)
}

// Check validates the arguments of a call against the input schema. Missing arguments
// are an empty object. The error is an [ArgumentsError] or a fault of the schema.
func (t *Tool) Check(arguments jsontext.Value) error {
	value, err := readArguments(arguments)
	if err != nil {
		return err
	}
	_, err = t.schema.check(value)
	return err
}

// CheckOutput validates structured content against the output schema, if the tool has
// one.
func (t *Tool) CheckOutput(structured jsontext.Value) error {
	s, err := t.catalog.schema(t.Digest, t.Definition, outputSchema)
	if err != nil {
		return fmt.Errorf("output schema: %w", err)
	}
	value, err := read(structured, func(string) bool { return true })
	if err != nil {
		return fmt.Errorf("read structured content: %w", err)
	}
	leaves, err := s.check(value)
	if len(leaves) > 0 {
		return fmt.Errorf("%s %s", path(leaves[0]), reason(leaves[0]))
	}
	return err
}

// readArguments parses the arguments of a call.
func readArguments(arguments jsontext.Value) (any, error) {
	if len(arguments) == 0 {
		arguments = jsontext.Value("{}")
	}
	if arguments.Kind() != '{' {
		return nil, &ArgumentsError{Reason: "are not an object"}
	}
	value, err := read(arguments, number.Exact)
	if err != nil {
		return nil, unread(err)
	}
	return value, nil
}

func unread(err error) error {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return &ArgumentsError{Path: string(semantic.JSONPointer), Reason: "cannot be read: " + fmt.Sprint(semantic.Err)}
	}
	return &ArgumentsError{Reason: "cannot be read: " + err.Error()}
}

// check validates a value, and returns the faults in addition to the error.
func (s *schema) check(value any) (leaves []*jsonschema.ValidationError, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer caught(&err)
	s.steps, s.matching = 0, 0
	var invalid *jsonschema.ValidationError
	if err := s.compiled.Validate(value); !errors.As(err, &invalid) {
		return nil, err
	}
	leaves = leavesOf(invalid, nil)
	slices.SortFunc(leaves, func(a, b *jsonschema.ValidationError) int { // properties are validated in no order
		return cmp.Or(strings.Compare(path(a), path(b)), strings.Compare(reason(a), reason(b)))
	})
	fault := &ArgumentsError{Path: path(leaves[0]), Reason: "do not fit the input schema: " + reason(leaves[0])}
	for _, leaf := range leaves[:min(len(leaves), maxFaults)] {
		fault.Faults = append(fault.Faults, strings.TrimSpace(path(leaf)+" "+reason(leaf)))
	}
	return leaves, fault
}

// maxFaults is the number of reported faults of arguments.
const maxFaults = 8

// leavesOf appends the errors that have no causes.
func leavesOf(e *jsonschema.ValidationError, all []*jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return append(all, e)
	}
	for _, cause := range e.Causes {
		all = leavesOf(cause, all)
	}
	return all
}

// path returns the JSON Pointer of the value that an error is about.
func path(e *jsonschema.ValidationError) string {
	pointer := jsontext.Pointer("")
	for _, name := range e.InstanceLocation {
		pointer = pointer.AppendToken(name)
	}
	return string(pointer)
}

func reason(e *jsonschema.ValidationError) string {
	_, reason, _ := strings.Cut(e.Error(), "': ")
	return reason
}

// A pattern has features of ECMA-262 that may take more than linear time.
type pattern struct {
	*regexp2.Regexp
	*schema
}

// MatchString reports whether text matches. It ends a validation that takes too
// long.
func (p pattern) MatchString(text string) bool {
	started := time.Now()
	matched, err := p.Regexp.MatchString(text)
	if p.matching += time.Since(started); err != nil || p.matching > patternTime {
		panic(errPattern)
	}
	return matched
}

// pattern compiles a pattern of JSON Schema, which is one of ECMA-262, for matching in
// linear time if possible.
func (s *schema) pattern(text string) (jsonschema.Regexp, error) {
	if linear, err := regexp.Compile(text); err == nil {
		return linear, nil
	}
	p, err := regexp2.Compile(text, regexp2.ECMAScript)
	if err != nil {
		return nil, err
	}
	p.MatchTimeout = patternTime
	return pattern{p, s}, nil
}
