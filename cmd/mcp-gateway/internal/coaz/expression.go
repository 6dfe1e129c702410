package coaz

import (
	"errors"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of expressions. The evaluator counts its steps as their cost.
const (
	maxExpression  = 2 << 10 // bytes
	maxExpressions = 8 << 10 // bytes, of those of one mapping
	maxNesting     = 32
	maxCost        = 50_000 // of one, and of those of one call
)

// A compiler compiles mappings. Expressions see params and token, and the standard
// functions of CEL.
type compiler struct {
	env *cel.Env
}

func newCompiler() (*compiler, error) {
	env, err := cel.NewEnv(
		cel.OptionalTypes(),
		cel.Variable("params", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("token", cel.MapType(cel.StringType, cel.DynType)),
		cel.ParserRecursionLimit(maxNesting),
		cel.ParserExpressionSizeLimit(maxExpression),
	)
	return &compiler{env}, err
}

// An expression is a leaf of a template that is evaluated.
type expression struct {
	at      string // JSON Pointer in the mapping
	program cel.Program
	claim   string // the claim that it is, if it is only that
	token   bool   // it reads the token
}

// expression compiles the text of an expression.
func (c *compiler) expression(at, text string) (*expression, error) {
	if len(text) > maxExpression {
		return nil, unmapped("the expression at %s has more than %d bytes", at, maxExpression)
	}
	checked, issues := c.env.Compile(text)
	if issues.Err() != nil {
		return nil, &MappingError{"the expression at " + at + " does not compile", issues.Err()}
	}
	program, err := c.env.Program(checked, cel.CostLimit(maxCost))
	if err != nil {
		return nil, &MappingError{"the expression at " + at + " does not compile", err}
	}
	root := checked.NativeRep().Expr()
	e := &expression{at: at, program: program, claim: claimOf(root)}
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		e.token = e.token || isToken(x)
	}))
	return e, nil
}

func isToken(x ast.Expr) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == "token" }

// claimOf returns the claim that an expression consists of, in any notation:
// token.sub, token.?sub, token["sub"] or token[?"sub"].
func claimOf(x ast.Expr) string {
	switch x.Kind() {
	case ast.SelectKind:
		if s := x.AsSelect(); !s.IsTestOnly() && isToken(s.Operand()) {
			return s.FieldName()
		}
	case ast.CallKind:
		call := x.AsCall()
		reads := map[string]bool{operators.Index: true, operators.OptIndex: true, operators.OptSelect: true}
		if args := call.Args(); reads[call.FunctionName()] && len(args) == 2 && isToken(args[0]) && args[1].Kind() == ast.LiteralKind {
			name, _ := args[1].AsLiteral().Value().(string)
			return name
		}
	}
	return ""
}

// resolve evaluates the expression. An absent value is nil.
func (e *expression) resolve(in *inputs) (jsontext.Value, error) {
	if e.token {
		if err := in.readToken(); err != nil {
			return nil, err
		}
	}
	value, details, err := e.program.Eval(map[string]any{"params": in.params, "token": in.token})
	if err != nil {
		return nil, e.fault(err)
	}
	if cost := details.ActualCost(); cost != nil {
		in.cost += *cost
	}
	if in.cost > maxCost {
		return nil, unmapped("the mapping costs too much")
	}
	text, err := write(value)
	if err != nil {
		return nil, e.fault(err)
	}
	return text, nil
}

// fault returns the error for the caller, without the values that CEL's errors may
// contain.
func (e *expression) fault(err error) error {
	reason := "the expression at " + e.at
	switch text := err.Error(); {
	case strings.HasPrefix(text, "no such key: "):
		reason += ": " + text
	case strings.Contains(text, "cost limit exceeded"):
		reason += " costs too much"
	case errors.Is(err, errTooLong):
		reason += ": " + err.Error()
	default:
		reason += " cannot be evaluated"
	}
	return &MappingError{reason, err}
}
