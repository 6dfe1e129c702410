package snapshot

import (
	"slices"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// An AttributePath is a maximal chain of attribute reads in an expression, such as context.a.b.
type AttributePath struct {
	InContext bool // the path begins at the context
	Names     []string
	presence  bool // the expression tests whether the last attribute is present, and does not read it
}

// AttributePaths lists the attribute paths of a policy. A path ends at a record that the policy uses
// as a whole, for example in a comparison. That counts as a read of everything below the record.
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

// attributePathOf returns the path that ends with n and the expression at its base. The base is n
// itself if n reads no attribute.
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

// Matches reports whether the names of c from index i on equal path, or either is a prefix of the
// other. A presence test does not depend on the attributes below it.
func (c AttributePath) Matches(i int, path []string) bool {
	names := c.Names[i:]
	n := min(len(names), len(path))
	return slices.Equal(names[:n], path[:n]) && !(c.presence && len(names) < len(path))
}
