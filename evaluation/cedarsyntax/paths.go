package cedarsyntax

import (
	"github.com/cedar-policy/cedar-go/types"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Paths yields the variables, attributes and tags that an expression reads, as expressions. It
// yields only the longest path of each. A presence test counts as a read of the attribute.
func Paths(n xast.IsNode) func(yield func(xast.IsNode) bool) {
	return func(yield func(xast.IsNode) bool) {
		more := true
		xast.Inspect(xast.NewNode(n), func(n xast.IsNode) bool {
			path := PathOf(n)
			if path != nil {
				more = more && yield(path)
			}
			return more && path == nil
		})
	}
}

// PathOf returns the path that an expression is, or whose presence it tests, or nil.
func PathOf(n xast.IsNode) xast.IsNode {
	switch n := n.(type) {
	case xast.NodeTypeHas:
		if IsPath(n.Arg) {
			return xast.NodeTypeAccess(n)
		}
	case xast.NodeTypeHasTag:
		if IsPath(n.Left) && isLiteral(n.Right) {
			return xast.NodeTypeGetTag(n)
		}
	}
	if IsPath(n) {
		return n
	}
	return nil
}

// IsPath reports whether an expression is a path.
func IsPath(n xast.IsNode) bool {
	switch n := n.(type) {
	case xast.NodeTypeVariable:
		return true
	case xast.NodeTypeAccess:
		return IsPath(n.Arg)
	case xast.NodeTypeGetTag:
		return IsPath(n.Left) && isLiteral(n.Right)
	}
	return false
}

func isLiteral(n xast.IsNode) bool {
	_, ok := n.(xast.NodeValue)
	return ok
}

// PathSteps returns the variable at the root of a path and the attribute names that follow it.
func PathSteps(path xast.IsNode) (variable types.String, names []string) {
	switch n := path.(type) {
	case xast.NodeTypeVariable:
		return n.Name, nil
	case xast.NodeTypeAccess:
		variable, names = PathSteps(n.Arg)
		return variable, append(names, string(n.Value))
	case xast.NodeTypeGetTag:
		return PathSteps(n.Left)
	}
	return "", nil
}
