package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A tenantChecker checks that a tenant's files do not change what the root's policies read. Then a
// tenant cannot lift a forbid of the root.
type tenantChecker struct {
	*compiler
	*guardrails
	config *yamldoc.Document // the tenant's
	own    Settings
}

// checkTenancy checks the tenants of the compiler's archive.
func (c *compiler) checkTenancy(s *Snapshot) {
	if c.logged || len(c.archive.Tenants()) == 0 {
		return
	}
	t := tenantChecker{compiler: c, guardrails: c.guardrailsOf(s.Policies, c.settings[""])}
	for _, d := range c.configs {
		if tenant := TenantOf(d.File()); tenant != "" {
			t.config, t.own = d, c.settings[tenant]
			t.checkSettings()
		}
	}
	for _, e := range c.entities {
		if TenantOf(e.file) != "" {
			t.checkEntity(e)
		}
	}
	t.checkSchema(s.Schema)
	t.checkAccess()
	t.keepForbidden(s)
}

// keepForbidden preserves the names that a forbid of the root reads in requests that only the tenant's
// schema declares. If undeclared names are dropped, a tenant's schema without the name would otherwise
// lift the forbid.
func (t *tenantChecker) keepForbidden(s *Snapshot) {
	var root resolved.Schema
	if t.guardrails.schema != nil {
		root = *t.guardrails.schema
	}
	for name, shape := range s.Shapes.Entities {
		_, entity := root.Entities[name]
		if _, enum := root.Enums[name]; !entity && !enum {
			shape.keep(t.forbidden)
		}
	}
	for uid, shape := range s.Shapes.Contexts {
		if _, declared := root.Actions[uid]; declared {
			continue
		}
		if shape.keep(t.forbidden); t.whole != "" {
			shape.keepAll()
		}
	}
}

// used reports a setting of the tenant that names something the root uses.
func (t *tenantChecker) used(what, name, where string, path ...string) {
	t.faults = append(t.faults, t.config.Fault(
		fmt.Sprintf("%s: the root uses %s %s: %s", strings.Join(path, "."), what, name, where),
		"a tenant does not change what the root's policies read: set it in the root", path...))
}

func (t *tenantChecker) typed(name string, path ...string) {
	if where, used := t.types[name]; used {
		t.used("the type", name, where, path...)
	}
}

// named reports the first of the names that the root reads.
func (t *tenantChecker) named(names []string, path ...string) {
	for _, name := range names {
		if where, used := t.read[name]; used {
			t.used("the name", name, where, path...)
			return
		}
	}
}

// checkSettings checks the settings that map requests to what policies read.
func (t *tenantChecker) checkSettings() {
	for _, sent := range slices.Sorted(maps.Keys(t.own.TypeAliases)) {
		t.typed(sent, "type_aliases", sent)
		if target := t.own.TypeAliases[sent]; target != sent {
			t.typed(target, "type_aliases", sent)
		}
	}
	for _, property := range slices.Sorted(maps.Keys(t.own.Parents)) {
		t.named([]string{property}, "parents", property)
		t.checkParents(property, t.own.Parents[property])
	}
	for _, name := range slices.Sorted(maps.Keys(t.own.Attributes)) {
		t.checkAttribute(name)
	}
	for i, name := range t.own.PEPAuthoritative {
		owner, attribute, _ := strings.Cut(name, ".")
		t.typed(owner, "pep_authoritative", strconv.Itoa(i))
		t.named([]string{attribute}, "pep_authoritative", strconv.Itoa(i))
	}
	t.checkSubjects()
	t.checkClock()
	t.checkLaxity()
}

// checkParents checks a type whose entities a property adds as parents of the subject.
func (t *tenantChecker) checkParents(property, of string) {
	_, used := t.types[of]
	switch where := t.taken(cedar.NewEntityUID(cedar.EntityType(of), "")); {
	case used:
		t.typed(of, "parents", property)
	case where != "":
		t.used("membership in any", of, where, "parents", property)
	}
}

// checkAttribute checks the type of an attribute, by its path.
func (t *tenantChecker) checkAttribute(name string) {
	parts := strings.Split(name, ".")
	owner, names := parts[0], parts[1:]
	if owner != "context" {
		t.typed(owner, "attributes", name)
	} else if t.whole != "" {
		t.used("the whole", "context", t.whole, "attributes", name)
	}
	t.named(names, "attributes", name)
}

func (t *tenantChecker) checkSubjects() {
	for i, name := range t.own.SubjectTypes {
		at := []string{"subject_types", strconv.Itoa(i)}
		switch root := t.guardrails.settings.SubjectTypes; {
		case slices.Contains(root, name):
		case root != nil:
			t.used("another list,", strings.Join(root, ", "), "subject_types ("+FileConfig+")", at...)
		default:
			t.typed(name, at...)
		}
	}
}

func (t *tenantChecker) checkClock() {
	root := t.guardrails.settings.Clock
	switch {
	case t.own.Clock == "" || t.own.Clock == root:
	case root != "":
		t.used("another clock,", root, "clock ("+FileConfig+")", "clock")
	case t.whole != "":
		t.used("the whole", "context", t.whole, "clock")
	default:
		t.named([]string{t.own.Clock}, "clock")
	}
}

// checkLaxity checks the settings that have stricter and laxer values.
func (t *tenantChecker) checkLaxity() {
	root := t.guardrails.settings
	root.fillDefaults()
	if t.own.UndeclaredAttributes == undeclaredDrop && root.UndeclaredAttributes != undeclaredDrop {
		t.lax("undeclared_attributes", undeclaredDrop, root.UndeclaredAttributes)
	}
	t.bound("array_elements", t.own.Limits.ArrayElements, root.Limits.ArrayElements)
	t.bound("nested_array_elements", t.own.Limits.NestedArrayElements, root.Limits.NestedArrayElements)
	t.bound("string_bytes", t.own.Limits.StringBytes, root.Limits.StringBytes)
	for _, name := range slices.Sorted(maps.Keys(t.own.ApprovalTemplates)) {
		if where, used := t.template[name]; used {
			t.used("the template", name, where, "approval_templates", name)
		}
	}
	if t.own.TenantEntities != nil {
		t.faults = append(t.faults, t.config.Fault("tenant_entities: it is the root that says what entities of tenants may have", "", "tenant_entities"))
	}
}

func (t *tenantChecker) lax(key, own, root string) {
	t.faults = append(t.faults, t.config.Fault(fmt.Sprintf("%s: %s is laxer than the root's %s", key, own, root), "", strings.Split(key, ".")...))
}

func (t *tenantChecker) bound(key string, own, root int) {
	if own > root {
		t.lax("limits."+key, strconv.Itoa(own), strconv.Itoa(root))
	}
}

// checkEntity checks an entity of the tenant.
func (t *tenantChecker) checkEntity(e writtenEntity) {
	for _, parent := range slices.SortedFunc(e.Parents.All(), CompareUID) {
		if where := t.taken(parent); where != "" {
			t.entityFault(e.place, fmt.Sprintf("%s may not have the parent %s, which the root uses: %s; list it in the root's %s under tenant_entities.parents to allow that", e.UID, parent, where, FileConfig))
		}
	}
	for name := range sortedNames(e.Attributes) {
		if where := t.forbidden[name]; where != "" && !t.listed(e.UID.Type, name) {
			t.attributeFault(e, name, where)
		}
	}
	for name := range sortedNames(e.Tags) {
		if where := cmp.Or(t.forbidden[name], t.tags); where != "" && !t.listed(e.UID.Type, name) {
			t.attributeFault(e, name, where)
		}
	}
}

func (t *tenantChecker) attributeFault(e writtenEntity, name, where string) {
	t.entityFault(e.place, fmt.Sprintf("%s may not have the attribute %q, which the root uses to forbid: %s; list it in the root's %s under tenant_entities.attributes to allow that", e.UID, name, where, FileConfig))
}

func sortedNames(r cedar.Record) func(func(string) bool) {
	var names []string
	for name := range r.All() {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return slices.Values(names)
}

// taken returns where the root uses an entity, or membership in any, so that a tenant's entity must not
// be below it. It returns "" if it may be.
func (t *tenantChecker) taken(parent cedar.EntityUID) string {
	if open := t.guardrails.settings.TenantEntities; open != nil &&
		(slices.Contains(open.Parents, string(parent.Type)) || slices.Contains(open.Parents, parent.String())) {
		return ""
	}
	if where := t.guardrails.entities[parent]; where != "" {
		return where
	}
	return t.within
}

// listed reports whether the root allows an attribute in a tenant's entities.
func (t *tenantChecker) listed(of cedar.EntityType, name string) bool {
	open := t.guardrails.settings.TenantEntities
	return open != nil && (slices.Contains(open.Attributes, name) || slices.Contains(open.Attributes, string(of)+"."+name))
}

// checkSchema checks what the tenant's schema adds to the root's. The root may have no schema.
func (t *tenantChecker) checkSchema(all *resolved.Schema) {
	files := slices.DeleteFunc(slices.Concat(t.archive.Files(FileCedarSchema), t.archive.Files(FileJSONSchema)),
		func(file string) bool { return TenantOf(file) == "" })
	if all == nil || len(files) == 0 {
		return
	}
	s := schemaTenancy{t, files, &resolved.Schema{}, map[string][]resolved.IsType{}}
	if t.guardrails.schema != nil {
		s.root = t.guardrails.schema
		s.rootTypes()
	}
	for _, name := range slices.Sorted(maps.Keys(all.Entities)) {
		if root, declared := s.root.Entities[name]; !declared {
			s.record("entity", string(name), all.Entities[name].Shape)
		} else if !reflect.DeepEqual(root, all.Entities[name]) {
			s.fault("entity", string(name), fmt.Sprintf("changes the type %s of the root's schema", name))
		}
	}
	for _, uid := range slices.SortedFunc(maps.Keys(all.Actions), CompareUID) {
		s.action(uid, all.Actions[uid])
	}
}

// A schemaTenancy checks a tenant's schema.
type schemaTenancy struct {
	*tenantChecker
	files []string // the tenant's
	root  *resolved.Schema
	typed map[string][]resolved.IsType // types of the attributes in the root's schema, by name
}

func (s *schemaTenancy) fault(keyword, name, message string) {
	file, line, column := s.declaration(s.files, keyword, name)
	s.compiler.fault(file, line, column, message, "a tenant does not change what the root's policies read")
}

// rootTypes collects the types of the attributes in the root's schema.
func (s *schemaTenancy) rootTypes() {
	for _, e := range s.root.Entities {
		s.collect(e.Shape)
	}
	for _, a := range s.root.Actions {
		if a.AppliesTo != nil {
			s.collect(a.AppliesTo.Context)
		}
	}
}

func (s *schemaTenancy) collect(r resolved.RecordType) {
	for name, attribute := range r {
		s.typed[string(name)] = append(s.typed[string(name)], attribute.Type)
		if inner, ok := attribute.Type.(resolved.RecordType); ok {
			s.collect(inner)
		}
	}
}

// action checks an action of the tenant's schema.
func (s *schemaTenancy) action(uid cedar.EntityUID, a resolved.Action) {
	if root, declared := s.root.Actions[uid]; declared {
		if !reflect.DeepEqual(root, a) {
			s.fault("action", string(uid.ID), fmt.Sprintf("changes %s of the root's schema", uid))
		}
		return
	}
	for _, parent := range slices.SortedFunc(a.Entity.Parents.All(), CompareUID) {
		if where := s.taken(parent); where != "" {
			s.fault("action", string(uid.ID), fmt.Sprintf("%s may not be in %s, which the root uses: %s", uid, parent, where))
		}
	}
	if a.AppliesTo != nil {
		s.record("action", string(uid.ID), a.AppliesTo.Context)
	}
}

// record checks the attributes in a tenant's declaration. An attribute that the root's policies read
// must have a type that they read in the same way.
func (s *schemaTenancy) record(keyword, name string, r resolved.RecordType) {
	for _, attribute := range slices.Sorted(maps.Keys(r)) {
		is := r[attribute].Type
		if where, used := s.read[string(attribute)]; used && !s.alike(string(attribute), is) {
			s.fault(keyword, name, fmt.Sprintf("%s %s: the root uses the name %s of another type: %s", keyword, name, attribute, where))
		}
		if inner, ok := is.(resolved.RecordType); ok {
			s.record(keyword, name, inner)
		}
	}
}

// alike reports whether an attribute's type reads as the root's policies expect: by the root's schema
// or, without a declaration there, by plain JSON.
func (s *schemaTenancy) alike(name string, is resolved.IsType) bool {
	if s.guardrails.schema != nil && len(s.typed[name]) > 0 {
		return slices.ContainsFunc(s.typed[name], func(t resolved.IsType) bool { return reflect.DeepEqual(t, is) })
	}
	return isPlain(is)
}

// isPlain reports whether JSON alone determines values of the type.
func isPlain(t resolved.IsType) bool {
	switch t := t.(type) {
	case resolved.BoolType, resolved.LongType, resolved.StringType:
		return true
	case resolved.SetType:
		return isPlain(t.Element)
	case resolved.RecordType:
		for _, attribute := range t {
			if !isPlain(attribute.Type) {
				return false
			}
		}
		return true
	}
	return false
}

// checkAccess reports documents of a tenant for which the service would set a member of the context
// that policies of the root read from requests.
func (t *tenantChecker) checkAccess() {
	files := t.archive.AccessFiles()
	if len(files) == 0 || TenantOf(files[0]) == "" { // the root's are first
		return
	}
	where := t.read[accesspolicy.CalledTool]
	if where == "" {
		where = t.whole
	}
	if where != "" {
		t.compiler.fault(files[0], 1, 1, "access documents set context."+accesspolicy.CalledTool+", which the root's policies read from requests: "+where, "have an access document in the root")
	}
}
