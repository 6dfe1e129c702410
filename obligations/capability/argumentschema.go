package capability

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// maxSteps limits the schema objects that one validation evaluates: a caller wrote the schema, and one
// of a few lines may need more steps than anybody can wait for.
const maxSteps = 10_000

var errSteps = errors.New("it takes too long to evaluate")

// A schema is a compiled arguments_schema. It runs one validation at a time, and counts its steps.
type schema struct {
	compiled *jsonschema.Schema

	mu    sync.Mutex
	steps int
}

// compileSchema compiles a JSON Schema. External references are not allowed.
func compileSchema(text jsontext.Value) (s *schema, err error) {
	defer recovered(&err)
	text, err = jsonobject.Canonical(text) // bounds the exponents of numbers
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	s = &schema{}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "urn:policy-service:steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return step{s}, nil
		},
	})
	c.AssertVocabs()
	const name = "urn:policy-service:arguments_schema"
	if err := c.AddResource(name, document); err != nil {
		return nil, err
	}
	s.compiled, err = c.Compile(name)
	return s, err
}

// CheckArguments returns an error unless arguments satisfy a JSON Schema, which may have any author. The
// path, a JSON Pointer, says where the first fault is.
func CheckArguments(schema, arguments jsontext.Value) (path string, err error) {
	if len(schema) > maxInputSchema {
		return "", fmt.Errorf("the schema is larger than %d bytes", maxInputSchema)
	}
	compiled, err := compileSchema(schema)
	if err != nil {
		return "", fmt.Errorf("compile schema: %w", err)
	}
	canonical, err := jsonobject.Canonical(arguments)
	if err != nil {
		return "", err
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.check(canonical); !errors.As(err, &invalid) {
		return "", err
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	for _, name := range invalid.InstanceLocation {
		path = string(jsontext.Pointer(path).AppendToken(name))
	}
	return path, errors.New(invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
}

// maxInputSchema is the size in bytes of the largest schema that CheckArguments compiles.
const maxInputSchema = 64 << 10

// A step is part of every schema object and counts its evaluations.
type step struct{ *schema }

// Validate counts a step, and ends a validation with too many steps.
func (s step) Validate(*jsonschema.ValidatorContext, any) {
	if s.steps++; s.steps > maxSteps {
		panic(errSteps)
	}
}

// recovered converts a panic to an error. jsonschema cannot be stopped otherwise.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}

// check returns an error unless a value, in its canonical form, satisfies the schema.
func (s *schema) check(value jsontext.Value) (err error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = 0
	defer recovered(&err)
	return s.compiled.Validate(document)
}
