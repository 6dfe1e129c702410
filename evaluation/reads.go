package evaluation

import (
	"slices"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A chain is what an expression reads of another: the names of attributes one
// below the other, as in context.a.b. It is as long as it can be.
type chain struct {
	inContext bool // it begins at the context
	names     []string
	presence  bool // it asks whether the last is there, and does not read it
}

// readsOf lists the chains of a policy. A record that is read otherwise than by
// its attributes, such as one that is compared, ends a chain, and all that is
// below it is read.
func readsOf(p *xast.Policy) (all []chain) {
	for _, condition := range p.Conditions {
		all = append(all, readsIn(condition.Body)...)
	}
	return all
}

func readsIn(n xast.IsNode) (all []chain) {
	xast.Inspect(xast.NewNode(n), func(n xast.IsNode) bool {
		c, base := chainOf(n)
		if c.inContext || len(c.names) > 0 {
			all = append(all, c)
		}
		if len(c.names) == 0 {
			return true
		}
		if _, isVariable := base.(xast.NodeTypeVariable); !isVariable {
			all = append(all, readsIn(base)...)
		}
		return false
	})
	return all
}

// chainOf returns the chain that ends with n, and what it is read of: n itself,
// where n reads no attribute.
func chainOf(n xast.IsNode) (c chain, base xast.IsNode) {
	for base = n; ; {
		var of xast.StrOpNode
		switch a := base.(type) {
		case xast.NodeTypeAccess:
			of = a.StrOpNode
		case xast.NodeTypeHas:
			of, c.presence = a.StrOpNode, true
		default:
			variable, ok := base.(xast.NodeTypeVariable)
			c.inContext = ok && variable.Name == "context"
			slices.Reverse(c.names)
			return c, base
		}
		c.names, base = append(c.names, string(of.Value)), of.Arg
	}
}

// reads reports whether the chain, from its ith name on, is a path, leads to
// it, or leads on from it. That something is there does not depend on what is
// below it.
func (c chain) reads(i int, path []string) bool {
	names := c.names[i:]
	n := min(len(names), len(path))
	return slices.Equal(names[:n], path[:n]) && !(c.presence && len(names) < len(path))
}
