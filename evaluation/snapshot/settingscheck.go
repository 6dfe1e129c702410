package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A settingsChecker checks the names in one config.yaml against the schema. A misspelled name has no
// effect, so a restriction would be lost.
type settingsChecker struct {
	*compiler
	snapshot *Snapshot
	config   *yamldoc.Document
	own      Settings
}

// checkSettingsNames checks the names in config.yaml, and template values that would bind nothing. It
// skips logged revisions, which have already decided with their settings.
func (c *compiler) checkSettingsNames(s *Snapshot) {
	if c.logged {
		return
	}
	for _, d := range c.configs {
		check := settingsChecker{c, s, d, c.settings[TenantOf(d.File())]}
		check.templates()
		if s.Schema != nil {
			check.types()
			check.authoritative()
			check.tenantEntities()
			check.selfTests()
		}
	}
}

func (c *settingsChecker) fault(message, hint string, path ...string) {
	c.faults = append(c.faults, c.config.Fault(message, hint, path...))
}

// types checks the entity types that settings name.
func (c *settingsChecker) types() {
	for _, sent := range slices.Sorted(maps.Keys(c.own.TypeAliases)) {
		c.entityType(c.own.TypeAliases[sent], "type_aliases", sent)
	}
	for i, name := range c.own.SubjectTypes {
		c.entityType(name, "subject_types", strconv.Itoa(i))
	}
	for _, property := range slices.Sorted(maps.Keys(c.own.Parents)) {
		c.entityType(c.own.Parents[property], "parents", property)
	}
	for _, id := range slices.Sorted(maps.Keys(c.own.Access.Agents)) {
		c.entityType(c.own.Access.Agents[id], "access", "agents", id)
	}
	if c.own.Access.Default != "" {
		c.entityType(c.own.Access.Default, "access", "default")
	}
	for _, name := range slices.Sorted(maps.Keys(c.own.ApprovalTemplates)) {
		if a := c.own.ApprovalTemplates[name].AutoApprover; a != nil {
			c.entityType(a.Type, "approval_templates", name, "auto_approver", "type")
		}
	}
}

// entityType reports a fault unless the schema declares the type, and returns whether it does. Another
// check covers the syntax of the name.
func (c *settingsChecker) entityType(name string, path ...string) bool {
	if _, err := types.NewEntityType(name); err != nil {
		return false
	}
	if c.snapshot.Shapes.Entities[cedar.EntityType(name)] != nil {
		return true
	}
	c.fault(strings.Join(path, ".")+": the schema has no entity type "+name, c.snapshot.typeHint(name), path...)
	return false
}

// typeHint suggests a type of the schema for an unknown name.
func (s *Snapshot) typeHint(name string) string {
	if alias, ok := s.Settings.TypeAliases[name]; ok && s.Shapes.Entities[cedar.EntityType(alias)] != nil {
		return fmt.Sprintf("write %s, as type_aliases does", alias)
	}
	known := typeNames(s.Schema)
	if whole := inNamespace(name, known); whole != "" {
		return fmt.Sprintf("did you mean %q?", whole)
	}
	return faults.DidYouMean(name, known)
}

// authoritative checks the types and attributes for which PEPs are authoritative.
func (c *settingsChecker) authoritative() {
	for i, name := range c.own.PEPAuthoritative {
		at := []string{"pep_authoritative", strconv.Itoa(i)}
		of, attribute, whole := strings.Cut(name, ".")
		if !c.entityType(of, at...) || !whole {
			continue
		}
		shape := c.snapshot.Shapes.Entities[cedar.EntityType(of)]
		if _, declared := shape.Members[attribute]; !declared {
			c.fault(fmt.Sprintf("%s: the schema has no attribute %s of %s", strings.Join(at, "."), attribute, of), faults.DidYouMean(attribute, shape.Names()), at...)
		}
	}
}

// tenantEntities reports names that misspell one of the schema's. Other unknown names are allowed,
// because they may belong to the schema of some tenants.
func (c *settingsChecker) tenantEntities() {
	if c.own.TenantEntities == nil {
		return
	}
	for i, name := range c.own.TenantEntities.Parents {
		of, _, _ := strings.Cut(name, `::"`)
		if faults.SpellingHint(of, typeNames(c.snapshot.Schema)) != "" {
			c.entityType(of, "tenant_entities", "parents", strconv.Itoa(i))
		}
	}
	for i, name := range c.own.TenantEntities.Attributes {
		known := c.snapshot.declaredAttributes()
		_, attribute, dotted := strings.Cut(name, ".")
		if !dotted {
			attribute = name
		}
		if hint := faults.SpellingHint(attribute, known); hint != "" && !slices.Contains(known, attribute) {
			c.fault(fmt.Sprintf("tenant_entities.attributes.%d: the schema has no attribute %s", i, attribute), hint, "tenant_entities", "attributes", strconv.Itoa(i))
		}
	}
}

// declaredAttributes lists the attributes of all entity types.
func (s *Snapshot) declaredAttributes() (names []string) {
	for _, shape := range s.Shapes.Entities {
		names = append(names, shape.Names()...)
	}
	return names
}

// templates checks the context members and the quorum of approval templates.
func (c *settingsChecker) templates() {
	for _, name := range slices.Sorted(maps.Keys(c.own.ApprovalTemplates)) {
		template := c.own.ApprovalTemplates[name]
		at := []string{"approval_templates", name}
		if template.Quorum != nil && *template.Quorum == 0 {
			c.fault("approval_templates."+name+".quorum: must be at least 1", "leave it out for one person", append(at, "quorum")...)
		}
		if template.Context != nil && len(template.Context) == 0 {
			c.fault("approval_templates."+name+".context: an empty list would bind an approval to nothing of the context",
				"leave context out to bind all of it", append(at, "context")...)
		}
		c.boundMembers(name, template.Context)
		c.ways(name, template.Notify)
	}
}

// ways checks that the service has the ways in which a template notifies people.
func (c *settingsChecker) ways(template string, names []string) {
	if c.compiler.ways == nil {
		return
	}
	for i, name := range names {
		if slices.Contains(c.compiler.ways, name) {
			continue
		}
		hint := cmp.Or(faults.DidYouMean(name, c.compiler.ways), "name one of console.notify.ways in the configuration of the service: "+strings.Join(c.compiler.ways, ", "))
		path := []string{"approval_templates", template, "notify", strconv.Itoa(i)}
		c.fault(fmt.Sprintf("%s: the service has no way %q", strings.Join(path, "."), name), hint, path...)
	}
}

// boundMembers checks that requests for a template can have the context members that it names.
func (c *settingsChecker) boundMembers(template string, members []string) {
	var known []string
	of := "the schema's actions"
	if c.snapshot.Schema != nil {
		used := false
		if known, used = c.snapshot.contextOf(template); used {
			of = "the actions of its policies"
		}
	}
	for i, member := range members {
		path := []string{"approval_templates", template, "context", strconv.Itoa(i)}
		switch {
		case member == ContextAction || slices.Contains(authzen.UnboundContext, member):
			c.fault(fmt.Sprintf("%s: no approval is bound to context.%s", strings.Join(path, "."), member), "leave it out", path...)
		case c.snapshot.Schema != nil && !slices.Contains(known, member):
			c.fault(fmt.Sprintf("%s: none of %s has %q in its context", strings.Join(path, "."), of, member), faults.DidYouMean(member, known), path...)
		}
	}
}

// contextOf lists the context members that the schema declares for the actions of all policies that
// name a template. If no policy names it, contextOf uses all actions.
func (s *Snapshot) contextOf(template string) (names []string, used bool) {
	var tests []xast.IsScopeNode
	for _, p := range s.Policies.Ordered {
		if _, name := p.Template(); name == template {
			tests, used = append(tests, p.Scope.Actions...), true
		}
	}
	for uid, context := range s.Shapes.Contexts {
		q := ResolvedEntity{UID: uid, Ancestors: s.Entities.ByUID[uid].Ancestors}
		if !used || slices.ContainsFunc(tests, q.Passes) {
			names = append(names, context.Names()...)
		}
	}
	return names, used
}

// selfTests checks the names in the requests of self_test.
func (c *settingsChecker) selfTests() {
	for i, test := range c.own.SelfTest {
		request, err := test.evaluation()
		if err != nil || test.Unknown {
			continue // the test itself reports the error
		}
		for _, unknown := range c.snapshot.UnknownNames(request) {
			c.fault(fmt.Sprintf("self_test %d: %s", i+1, unknown.Message), unknown.Hint, "self_test", strconv.Itoa(i))
		}
	}
}

// UnknownNames lists the names in a request that the schema does not declare: the action, types,
// properties and context members. A request with such a name is denied or decided without it. The
// faults have no position. If undeclared attributes are dropped, UnknownNames lists only misspellings
// of declared ones.
func (s *Snapshot) UnknownNames(r *authzen.EvaluationRequest) faults.List {
	if s.Schema == nil {
		return nil
	}
	var out faults.List
	action, err := s.Action(r.Action.Name)
	if _, declared := s.Schema.Actions[action]; err == nil && !declared {
		out = append(out, faults.Fault{Message: "the schema has no action " + r.Action.Name, Hint: s.actionHint(r.Action.Name)})
	}
	out = append(out, s.unknownInEntity("subject", authzen.Entity(r.Subject), s.Settings.Parents)...)
	out = append(out, s.unknownInEntity("resource", authzen.Entity(r.Resource), nil)...)
	if context := s.Shapes.Contexts[action]; err == nil && context != nil {
		known := map[string]string{}
		for _, name := range serviceMembers {
			known[name] = ""
		}
		out = append(out, s.undeclared("context", context, r.Context, known, false)...)
	}
	return out
}

func (s *Snapshot) actionHint(name string) string {
	if near := faults.Nearest(name, s.Actions.Names, len(name)/2); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

func (s *Snapshot) unknownInEntity(part string, e authzen.Entity, parents map[string]string) faults.List {
	of, err := s.Settings.entityType(e.Type)
	if err != nil {
		return nil // deciding the request reports the error
	}
	shape := s.Shapes.Entities[of]
	if shape == nil {
		return faults.List{{Message: fmt.Sprintf("%s: the schema has no entity type %s", part, of), Hint: s.typeHint(string(of))}}
	}
	return s.undeclared(part+".properties", shape, e.Properties, parents, isSupplied(of))
}

// undeclared lists the members of an object that its shape does not declare.
func (s *Snapshot) undeclared(path string, shape *shape, object []byte, known map[string]string, drop bool) (out faults.List) {
	var members map[string]any
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	drop = drop || s.Settings.UndeclaredAttributes == undeclaredDrop
	missing := slices.DeleteFunc(shape.Names(), func(name string) bool { _, sent := members[name]; return sent })
	for _, name := range slices.Sorted(maps.Keys(members)) {
		_, declared := shape.Members[name]
		_, special := known[name]
		hint := faults.SpellingHint(name, missing)
		if !declared && !special && (hint != "" || !drop) {
			out = append(out, faults.Fault{Message: fmt.Sprintf("the schema does not declare %s.%s", path, name), Hint: hint})
		}
	}
	return out
}
