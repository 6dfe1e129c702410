package evaluation

import (
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// The functions that cedar-go computes otherwise than the official engine
// does, where that can change a decision: what it does with an argument is
// right for some arguments, and these expressions give it such a one that
// stands for the argument.
//
//	d.toDate()  drops the time of day toward 1970, not toward the past
//	d.toTime()  is negative before 1970
//	decimal(s)  reads a plus sign
var repairs = map[types.Path]func(xast.Node) xast.Node{
	"toDate": func(d xast.Node) xast.Node {
		return xast.IfThenElse(d.LessThan(epoch()), d.Offset(duration("-86399999ms")), d)
	},
	"toTime": func(d xast.Node) xast.Node { // later by as many days as there can be
		return xast.IfThenElse(d.LessThan(epoch()), d.Offset(duration("106751991167d")), d)
	},
	"decimal": func(s xast.Node) xast.Node {
		return xast.IfThenElse(s.Like(types.NewPattern("+", types.Wildcard{})), xast.String(""), s)
	},
}

func epoch() xast.Node { return xast.ExtensionCall("datetime", xast.String("1970-01-01")) }

func duration(d types.String) xast.Node { return xast.ExtensionCall("duration", xast.String(d)) }

// repair changes, in place, the arguments that a policy gives to functions
// with repairs. It must be called once.
func repair(p *xast.Policy) {
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), repairCall)
	}
}

// repairCall repairs the innermost calls first and goes no further below a
// call it has repaired, because what stands there now has the argument twice.
func repairCall(n xast.IsNode) bool {
	call, ok := n.(xast.NodeTypeExtensionCall)
	if !ok {
		return true
	}
	fix, ok := repairs[call.Name]
	if !ok || len(call.Args) != 1 {
		return true
	}
	argument := xast.NewNode(call.Args[0])
	xast.Inspect(argument, repairCall)
	call.Args[0] = fix(argument).AsIsNode()
	return false
}

// refused says why the official engine does not accept a policy that cedar-go
// parses, or "".
func refused(p *xast.Policy) string {
	for _, test := range actionTests(p.Action) {
		var uid cedar.EntityUID
		switch t := test.(type) {
		case xast.ScopeTypeEq:
			uid = t.Entity
		case xast.ScopeTypeIn:
			uid = t.Entity
		default:
			continue
		}
		if !isActionType(uid.Type) {
			return uid.String() + " is not an action: its type must be Action"
		}
	}
	return ""
}

func isActionType(t cedar.EntityType) bool {
	return t == "Action" || strings.HasSuffix(string(t), "::Action")
}
