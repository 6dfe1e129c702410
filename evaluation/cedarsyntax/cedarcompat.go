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

// The functions that cedar-go computes otherwise than the official engine
// does, where that can change a decision: what it does with an argument is
// right for some arguments, and these expressions give it such a one that
// stands for the argument.
//
//	d.toDate()  drops the time of day toward 1970, not toward the past
//	d.toTime()  is negative before 1970
//	decimal(s)  reads a plus sign
//
// The first moves d by half of all time, so that it is after 1970, and back.
// Dates more than 146 million years from then have no place to go: there it is
// an error, before 1970 because d is moved back first.
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

// Normalize changes, in place, the arguments that a policy gives to functions
// with repairs. It must be called once.
func Normalize(p *xast.Policy) {
	r := normalizer{}
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), r.visit)
	}
}

// A repairer knows which arguments it has repaired, by where they are: what
// stands before a has path is in the tree once for each of its attributes, and
// these share their arguments.
type normalizer map[*xast.IsNode]bool

// visit repairs the innermost calls first and goes no further below a call it
// has repaired, because what stands there now has calls of its own.
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

// Incompatible says why the official engine does not accept a policy that cedar-go
// parses, or "".
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

// nestsDecimal reports whether a policy has a decimal() in the argument of
// another, which nobody writes; each would double what the repair makes of it.
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

// IncompatibleWithSchema says why, with a schema, the official engine does not accept a
// policy that cedar-go's validator accepts, or "".
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

// WritesPlus reports whether a decimal in the value has a plus sign where it is
// written, as JSON.
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

// plusDecimal reports whether a call makes a decimal of a text with a plus sign.
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

// WithoutCertainty returns a policy that is typed as the official engine types
// p. cedar-go's validator takes a variable to equal itself and looks at nothing
// that this decides; the official one does not see it. In its place stands what
// both take for true or false.
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

// itself is a variable compared with itself, in Cedar's JSON form: no string has
// a quote without a backslash.
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

func IsActionType(t cedar.EntityType) bool {
	return t == "Action" || strings.HasSuffix(string(t), "::Action")
}
