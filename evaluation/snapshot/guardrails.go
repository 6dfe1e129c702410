package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
)

// guardrails holds the names that the root of a policy store uses. A tenant must not change their
// meaning. Each name maps to the place of its use, for the fault.
type guardrails struct {
	settings Settings         // the root's alone
	schema   *resolved.Schema // the root's alone; nil without one
	entities map[cedar.EntityUID]string
	types    map[string]string
	read     map[string]string // attributes, and members of the context, that policies read
	whole    string            // a policy that reads the context as a whole, or ""
	template map[string]string // approval templates that policies name

	forbidden map[string]string // attributes and tags that a forbid reads
	tags      string            // a forbid that reads tags by names which are not written down, or ""
	within    string            // a forbid that tests membership in what is not written down, or ""
}

// guardrailsOf returns the names that the root of the compiler's archive uses.
func (c *compiler) guardrailsOf(all policies, set Settings) *guardrails {
	g := &guardrails{
		settings: set, entities: map[cedar.EntityUID]string{}, types: map[string]string{},
		read: map[string]string{}, template: map[string]string{}, forbidden: map[string]string{},
	}
	root := compiler{ctx: c.ctx, archive: c.archive.ForTenant("")}
	g.schema = root.readSchema() // the whole store's compilation reports its faults
	for _, p := range all.Ordered {
		if TenantOf(p.File) == "" {
			g.policy(p)
		}
	}
	for _, e := range c.entities {
		if TenantOf(e.file) == "" {
			g.entity(e)
		}
	}
	g.fromSchema()
	g.fromSettings()
	return g
}

// note records the first place where a name is used.
func note[K comparable](names map[K]string, name K, where string) {
	if _, known := names[name]; !known {
		names[name] = where
	}
}

func (g *guardrails) policy(p *Policy) {
	where := fmt.Sprintf("policy %s (%s:%d)", p.ID, p.File, p.Line)
	for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
		note(g.entities, uid, where)
	}
	var v Names
	v.Types, v.IDs, v.Read = map[cedar.EntityType]bool{}, map[cedar.EntityType][]string{}, map[string]map[string]bool{}
	v.addPolicy(p.Syntax)
	for _, name := range slices.Sorted(maps.Keys(v.Types)) {
		note(g.types, string(name), where)
	}
	for _, name := range []string{p.Terms.Approval, p.Terms.Requestable, p.Terms.Capability} {
		if name != "" {
			note(g.template, name, where)
		}
	}
	for _, chain := range AttributePaths(p.Syntax) {
		for _, name := range chain.Names {
			note(g.read, name, where)
			if !p.Permits() {
				note(g.forbidden, name, where)
			}
		}
		if chain.InContext && len(chain.Names) == 0 {
			g.whole = where
		}
	}
	if !p.Permits() {
		g.forbid(p, where)
	}
}

// forbid records what a forbid reads other than attributes.
func (g *guardrails) forbid(p *Policy, where string) {
	for _, condition := range p.Syntax.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			switch n := n.(type) {
			case xast.NodeTypeIn:
				g.membership(n.Right, where)
			case xast.NodeTypeIsIn:
				g.membership(n.Entity, where)
			case xast.NodeTypeGetTag:
				g.tag(n.Right, where)
			case xast.NodeTypeHasTag:
				g.tag(n.Right, where)
			}
			return true
		})
	}
}

// membership records a membership test against anything but literals.
func (g *guardrails) membership(in xast.IsNode, where string) {
	elements := []xast.IsNode{in}
	if set, ok := in.(xast.NodeTypeSet); ok {
		elements = set.Elements
	}
	for _, element := range elements {
		if _, ok := cedarsyntax.EntityLiteral(element); !ok && !isEntitySet(element) {
			g.within = where
		}
	}
}

// isEntitySet reports whether a node is a set of literal entities. [EntityLiterals] finds only
// literals that are nodes of their own.
func isEntitySet(n xast.IsNode) bool {
	value, ok := n.(xast.NodeValue)
	if !ok {
		return false
	}
	set, ok := value.Value.(cedar.Set)
	return ok && set.Len() == 0
}

func (g *guardrails) tag(key xast.IsNode, where string) {
	value, ok := key.(xast.NodeValue)
	name, isText := value.Value.(cedar.String)
	if !ok || !isText {
		g.tags = where
		return
	}
	note(g.forbidden, string(name), where)
}

func (g *guardrails) entity(e writtenEntity) {
	where := fmt.Sprintf("entity %s (%s)", e.UID, e.file)
	named := append([]cedar.EntityUID{e.UID}, slices.SortedFunc(e.Parents.All(), CompareUID)...)
	named = append(append(named, entitiesIn(e.Attributes)...), entitiesIn(e.Tags)...)
	for _, uid := range named {
		note(g.entities, uid, where)
		note(g.types, string(uid.Type), where)
	}
}

func (g *guardrails) fromSchema() {
	if g.schema == nil {
		return
	}
	const where = "the root's schema"
	for name := range g.schema.Entities {
		note(g.types, string(name), where)
	}
	for name, enum := range g.schema.Enums {
		note(g.types, string(name), where)
		for _, uid := range enum.Values {
			note(g.entities, uid, where)
		}
	}
	for uid := range g.schema.Actions {
		note(g.entities, uid, where)
	}
}

// fromSettings records the names in the root's config.yaml.
func (g *guardrails) fromSettings() {
	at := func(key string) string { return key + " (" + FileConfig + ")" }
	for _, sent := range slices.Sorted(maps.Keys(g.settings.TypeAliases)) {
		note(g.types, sent, at("type_aliases"))
		note(g.types, g.settings.TypeAliases[sent], at("type_aliases"))
	}
	for _, name := range g.settings.SubjectTypes {
		note(g.types, name, at("subject_types"))
	}
	for _, property := range slices.Sorted(maps.Keys(g.settings.Parents)) {
		note(g.read, property, at("parents"))
		note(g.types, g.settings.Parents[property], at("parents"))
	}
	for _, path := range slices.Sorted(maps.Keys(g.settings.Attributes)) {
		owner, names, _ := strings.Cut(path, ".")
		if owner != "context" {
			note(g.types, owner, at("attributes"))
		}
		for name := range strings.SplitSeq(names, ".") {
			note(g.read, name, at("attributes"))
		}
	}
	for _, name := range g.settings.PEPAuthoritative {
		owner, attribute, found := strings.Cut(name, ".")
		note(g.types, owner, at("pep_authoritative"))
		if found {
			note(g.read, attribute, at("pep_authoritative"))
		}
	}
}
