package yamldoc

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// An expansion replaces aliases by their nodes and removes anchors. The nodes are shared but
// counted each time, so the size of the decoded value is known before decoding.
type expansion struct {
	doc     *Document
	anchors map[string]*anchored
}

// An anchored is a node with an anchor. The node is nil while it is being expanded.
type anchored struct {
	node ast.Node
	size int
}

// expand returns a node without anchors and aliases, and its number of nodes. It panics with a
// [Fault].
func (x *expansion) expand(node ast.Node) (ast.Node, int) {
	size := 1
	switch n := node.(type) {
	case *ast.AnchorNode:
		return x.anchor(n)
	case *ast.AliasNode:
		return x.alias(n)
	case *ast.TagNode:
		if n.GetToken().Value != "!!str" {
			panic(x.doc.at(n, "the tag "+quoted(n.GetToken().Value)+" is not understood", "leave it out"))
		}
		size = x.into(&n.Value, size)
	case *ast.MappingKeyNode:
		panic(x.doc.at(n, "a key of several lines is not understood", "write KEY: VALUE"))
	case *ast.MappingNode:
		for _, pair := range n.Values {
			size = x.pair(pair, size)
		}
	case *ast.MappingValueNode:
		size = x.pair(n, size)
	case *ast.SequenceNode:
		for i := range n.Values {
			size = x.into(&n.Values[i], size)
		}
	case *ast.DirectiveNode:
		panic(x.doc.at(n, "a directive is not understood", "leave it out"))
	}
	if size > maxNodes {
		panic(x.doc.at(node, fmt.Sprintf("this stands for more than %d values", maxNodes), "aliases repeat all that they stand for"))
	}
	return node, size
}

// into expands a child in place and returns the sum of the sizes.
func (x *expansion) into(part *ast.Node, size int) int {
	if *part == nil {
		return size
	}
	expanded, n := x.expand(*part)
	*part = expanded
	return size + n
}

// pair expands a key and its value.
func (x *expansion) pair(pair *ast.MappingValueNode, size int) int {
	key, n := x.expand(pair.Key)
	named, ok := key.(ast.MapKeyNode)
	if _, scalar := key.(ast.ScalarNode); !ok || !scalar {
		panic(x.doc.at(pair.Key, "a key must be text", ""))
	}
	pair.Key = named
	return x.into(&pair.Value, size+n)
}

func (x *expansion) anchor(n *ast.AnchorNode) (ast.Node, int) {
	name := n.Name.GetToken().Value
	if _, taken := x.anchors[name]; taken {
		panic(x.doc.at(n, "the anchor &"+name+" is there twice", ""))
	}
	x.anchors[name] = nil
	node, size := x.expand(n.Value)
	x.anchors[name] = &anchored{node, size}
	return node, size
}

func (x *expansion) alias(n *ast.AliasNode) (ast.Node, int) {
	name := n.Value.GetToken().Value
	target, known := x.anchors[name]
	switch {
	case !known:
		panic(x.doc.at(n, "there is no anchor &"+name+" before this alias", ""))
	case target == nil:
		panic(x.doc.at(n, "the alias *"+name+" is part of what it stands for", ""))
	}
	return target.node, target.size
}
