package snapshot

import (
	"slices"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A chain is what an expression reads of another: the names of attributes one
// below the other, as in context.a.b. It is as long as it can be.
type AttributePath struct {
	InContext bool // it begins at the context
	Names     []string
	presence  bool // it asks whether the last is there, and does not read it
}

// AttributePaths lists the chains of a policy. A record that is read otherwise than by
// its attributes, such as one that is compared, ends a chain, and all that is
// below it is read.
func AttributePaths(p *xast.Policy) (all []AttributePath) {
	for _, condition := range p.Conditions {
		all = append(all, attributePathsIn(condition.Body)...)
	}
	return all
}

func attributePathsIn(n xast.IsNode) (all []AttributePath) {
	xast.Inspect(xast.NewNode(n), func(n xast.IsNode) bool {
		c, base := attributePathOf(n)
		if c.InContext || len(c.Names) > 0 {
			all = append(all, c)
		}
		if len(c.Names) == 0 {
			return true
		}
		if _, isVariable := base.(xast.NodeTypeVariable); !isVariable {
			all = append(all, attributePathsIn(base)...)
		}
		return false
	})
	return all
}

// attributePathOf returns the chain that ends with n, and what it is read of: n itself,
// where n reads no attribute.
func attributePathOf(n xast.IsNode) (c AttributePath, base xast.IsNode) {
	for base = n; ; {
		var of xast.StrOpNode
		switch a := base.(type) {
		case xast.NodeTypeAccess:
			of = a.StrOpNode
		case xast.NodeTypeHas:
			of, c.presence = a.StrOpNode, true
		default:
			variable, ok := base.(xast.NodeTypeVariable)
			c.InContext = ok && variable.Name == "context"
			slices.Reverse(c.Names)
			return c, base
		}
		c.Names, base = append(c.Names, string(of.Value)), of.Arg
	}
}

// Matches reports whether the chain, from its ith name on, is a path, leads to
// it, or leads on from it. That something is there does not depend on what is
// below it.
func (c AttributePath) Matches(i int, path []string) bool {
	names := c.Names[i:]
	n := min(len(names), len(path))
	return slices.Equal(names[:n], path[:n]) && !(c.presence && len(names) < len(path))
}
