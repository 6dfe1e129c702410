package cedarsyntax

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// normalizations lists the functions that cedar-go computes differently from the official engine
// in a way that can change a decision. cedar-go computes each one correctly for some arguments.
// Each rewrite replaces the argument by an equivalent one from that range.
//
//	d.toDate()  truncates toward 1970 instead of toward the past
//	d.toTime()  is negative before 1970
//	decimal(s)  accepts a plus sign
//
// The first moves d past 1970 by half of the representable range, and back. Dates more than
// 146 million years from 1970 overflow and are an error. This includes dates before 1970,
// because the rewrite moves d back first.
var normalizations = map[types.Path]func(xast.Node) xast.Node{
	"toDate": func(d xast.Node) xast.Node {
		return d.Offset(duration("-53375995583d")).Offset(duration("106751991166d")).ToDate().Offset(duration("-53375995583d"))
	},
	"toTime": func(d xast.Node) xast.Node {
		return xast.ExtensionCall("datetime", xast.String("1970-01-01")).Offset(d.ToTime()).Offset(duration("1d"))
	},
	"decimal": func(s xast.Node) xast.Node {
		return xast.IfThenElse(s.Like(types.NewPattern("+", types.Wildcard{})), xast.String(""), s)
	},
}

func duration(d types.String) xast.Node { return xast.ExtensionCall("duration", xast.String(d)) }

// Normalize rewrites, in place, the arguments of the functions in normalizations. Call it once
// for each policy.
func Normalize(p *xast.Policy) {
	r := normalizer{}
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), r.visit)
	}
}

// A normalizer records the argument slots that it has rewritten. The parser expands a has path
// into one copy of its operand for each attribute, and the copies share their arguments.
type normalizer map[*xast.IsNode]bool

// visit rewrites the innermost calls first. It does not descend into a rewritten argument,
// because the rewrite itself contains calls.
func (r normalizer) visit(n xast.IsNode) bool {
	call, ok := n.(xast.NodeTypeExtensionCall)
	if !ok {
		return true
	}
	fix, ok := normalizations[call.Name]
	if !ok || len(call.Args) != 1 {
		return true
	}
	at := &call.Args[0]
	if !r[at] {
		argument := xast.NewNode(*at)
		xast.Inspect(argument, r.visit)
		*at = fix(argument).AsIsNode()
		r[at] = true
	}
	return false
}

// Incompatible returns why the official engine rejects a policy that cedar-go parses, or "".
func Incompatible(p *xast.Policy) string {
	for _, test := range ActionTests(p.Action) {
		var uid cedar.EntityUID
		switch t := test.(type) {
		case xast.ScopeTypeEq:
			uid = t.Entity
		case xast.ScopeTypeIn:
			uid = t.Entity
		default:
			continue
		}
		if !IsActionType(uid.Type) {
			return uid.String() + " is not an action: its type must be Action"
		}
	}
	if nestsDecimal(p) {
		return "decimal() inside the argument of decimal()"
	}
	return ""
}

// nestsDecimal reports whether the argument of a decimal() contains another decimal(). Each
// level of nesting would double the rewritten expression, and nobody writes it.
func nestsDecimal(p *xast.Policy) bool {
	nested := false
	isDecimal := func(n xast.IsNode) bool {
		call, ok := n.(xast.NodeTypeExtensionCall)
		return ok && call.Name == "decimal"
	}
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			if !isDecimal(n) {
				return !nested
			}
			for _, argument := range n.(xast.NodeTypeExtensionCall).Args {
				xast.Inspect(xast.NewNode(argument), func(inner xast.IsNode) bool {
					nested = nested || isDecimal(inner)
					return !nested
				})
			}
			return false
		})
	}
	return nested
}

// IncompatibleWithSchema returns why the official engine, given the schema, rejects a policy
// that cedar-go's validator accepts, or "".
func IncompatibleWithSchema(schema *resolved.Schema, p *xast.Policy) (why string) {
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			switch n := n.(type) {
			case xast.NodeTypeIs:
				why = cmp.Or(why, unknownType(schema, n.EntityType))
			case xast.NodeTypeIsIn:
				why = cmp.Or(why, unknownType(schema, n.EntityType))
			case xast.NodeTypeExtensionCall:
				if plusDecimal(n) {
					why = cmp.Or(why, "a decimal has no plus sign")
				}
			}
			return why == ""
		})
	}
	return why
}

func unknownType(schema *resolved.Schema, t cedar.EntityType) string {
	_, entity := schema.Entities[t]
	_, enum := schema.Enums[t]
	if entity || enum || IsActionType(t) {
		return ""
	}
	return "the schema has no entity type " + string(t)
}

// WritesPlus reports whether a decimal in the value is written with a plus sign in raw, its JSON.
func WritesPlus(v cedar.Value, raw jsontext.Value) bool {
	switch v := v.(type) {
	case cedar.Decimal:
		plain := raw.Clone()
		return plain.Canonicalize() == nil && bytes.Contains(plain, []byte(`"+`))
	case cedar.Record:
		var members map[string]jsontext.Value
		if json.Unmarshal(raw, &members) != nil {
			return false
		}
		for name, member := range members {
			if value, ok := v.Get(cedar.String(name)); ok && WritesPlus(value, member) {
				return true
			}
		}
	case cedar.Set:
		var elements []jsontext.Value
		if json.Unmarshal(raw, &elements) != nil {
			return false
		}
		for value := range v.All() {
			if slices.ContainsFunc(elements, func(element jsontext.Value) bool { return WritesPlus(value, element) }) {
				return true
			}
		}
	}
	return false
}

// plusDecimal reports whether the call is decimal() of a literal with a plus sign.
func plusDecimal(call xast.NodeTypeExtensionCall) bool {
	if call.Name != "decimal" || len(call.Args) != 1 {
		return false
	}
	literal, ok := call.Args[0].(xast.NodeValue)
	if !ok {
		return false
	}
	text, ok := literal.Value.(types.String)
	return ok && strings.HasPrefix(string(text), "+")
}

// WithoutCertainty returns a copy of p that cedar-go's validator types as the official engine
// types p. cedar-go's validator knows that a variable equals itself and skips the branches this
// decides. The official validator does not. The copy compares with literals that both validators
// treat as true or false.
func WithoutCertainty(p *xast.Policy) (*xast.Policy, error) {
	if !comparesItself(p) {
		return p, nil
	}
	text, err := (*ast.Policy)(p).MarshalJSON()
	if err != nil {
		return nil, err
	}
	var q ast.Policy
	if err := q.UnmarshalJSON(itself.ReplaceAll(text, trueOrFalse)); err != nil {
		return nil, err
	}
	return (*xast.Policy)(&q), nil
}

// itself matches a variable compared with itself in Cedar's JSON form. A string literal cannot
// match, because JSON escapes its quotes.
var (
	itself      = regexp.MustCompile(`\{"[!=]=":\{"left":\{"Var":"(?:principal"\},"right":\{"Var":"principal|action"\},"right":\{"Var":"action|resource"\},"right":\{"Var":"resource|context"\},"right":\{"Var":"context)"\}\}\}`)
	trueOrFalse = []byte(`{"like":{"left":{"Value":""},"pattern":["Wildcard"]}}`)
)

func comparesItself(p *xast.Policy) (found bool) {
	same := func(left, right xast.IsNode) bool {
		variable, ok := left.(xast.NodeTypeVariable)
		return ok && variable == right
	}
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			switch n := n.(type) {
			case xast.NodeTypeEquals:
				found = found || same(n.Left, n.Right)
			case xast.NodeTypeNotEquals:
				found = found || same(n.Left, n.Right)
			}
			return !found
		})
	}
	return found
}

// IsActionType reports whether t is the type Action, with or without a namespace.
func IsActionType(t cedar.EntityType) bool {
	return t == "Action" || strings.HasSuffix(string(t), "::Action")
}
