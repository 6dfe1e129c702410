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
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Settings is the config.yaml of a policy store: how requests map to Cedar. It is part of the snapshot
// because decisions depend on it.
type Settings struct {
	// TypeAliases maps types that PEPs send to entity types: identity: user.
	TypeAliases map[string]string `yaml:"type_aliases"`
	// SubjectTypes lists the types that a subject may have. The default is the schema's principal types
	// for the action. Without a schema it is every type that is not a parent of a stored entity.
	SubjectTypes []string `yaml:"subject_types"`
	// Parents maps subject properties that list parents of the subject to the parents' type: roles: Role.
	Parents map[string]string `yaml:"parents"`
	// Attributes declares types that JSON cannot express, if there is no schema: todo.ownerID: user,
	// context.ip: ipaddr.
	Attributes map[string]string `yaml:"attributes"`
	// PEPAuthoritative lists the types (device) and attributes (user.location) for which the value in the
	// request wins over the stored value.
	PEPAuthoritative []string `yaml:"pep_authoritative"`
	// UndeclaredAttributes sets how to handle properties and context members that the schema does not
	// declare: refuse (the default) or drop.
	UndeclaredAttributes string `yaml:"undeclared_attributes"`
	// OnPolicyError sets how to handle a policy that errors. With deny (the default), a forbid that errors
	// denies. With deny_any, any policy that errors denies. With skip, none does.
	OnPolicyError string `yaml:"on_policy_error"`
	// Clock names the context attribute that holds the time of the decision, as a datetime. By default
	// there is none.
	Clock string `yaml:"clock"`
	// NotificationTo sets the form of notifications: array (the default), or string, as in the profile's
	// draft of July 2026.
	NotificationTo string `yaml:"notification_to"`
	// ApprovalTemplates sets the terms of approvals, by the names that policies use.
	ApprovalTemplates map[string]ApprovalTemplate `yaml:"approval_templates"`
	// SelfTest lists requests with their expected decisions. A store that decides one of them differently
	// does not load.
	SelfTest []selfTest `yaml:"self_test"`
	// TenantEntities lists what tenants' entities may have although the root's policies read it. Only the
	// root may set it.
	TenantEntities *tenantEntities `yaml:"tenant_entities"`
	// Access gives the agents of access documents a type where they are written without one.
	Access agentTypes `yaml:"access"`
	// Limits limits what a request may send.
	Limits limits `yaml:"limits"`
}

// agentTypes gives ids without a type an entity type.
type agentTypes struct {
	// Agents maps ids, or prefixes that end with *, to types: user-*: user. The longest one counts.
	Agents map[string]string `yaml:"agents"`
	// Default is the type of all others.
	Default string `yaml:"default"`
}

// typeOf returns the type of an id, or "".
func (a agentTypes) typeOf(id string) string {
	if of, found := a.Agents[id]; found {
		return of
	}
	longest, of := -1, a.Default
	for pattern, t := range a.Agents {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if isPrefix && strings.HasPrefix(id, prefix) && len(prefix) > longest {
			longest, of = len(prefix), t
		}
	}
	return of
}

// types lists the types in the setting.
func (a agentTypes) types() []string {
	all := slices.Collect(maps.Values(a.Agents))
	if a.Default != "" {
		all = append(all, a.Default)
	}
	return all
}

// tenantEntities lists what the root allows in tenants' entities although its policies read it.
type tenantEntities struct {
	// Parents lists entities (Role::"staff") and entity types (Team).
	Parents []string `yaml:"parents"`
	// Attributes lists attributes of every type (env) or of one (tool.env).
	Attributes []string `yaml:"attributes"`
}

// A selfTest is an AuthZEN evaluation request and its expected decision.
type selfTest struct {
	Request  map[string]any `yaml:"request"`
	Decision bool           `yaml:"decision"`
	Unknown  bool           `yaml:"unknown"` // the request may use names that the schema does not declare
}

// evaluation returns the request of the test.
func (t selfTest) evaluation() (*authzen.EvaluationRequest, error) {
	body, err := json.Marshal(t.Request)
	if err != nil {
		return nil, err
	}
	request := new(authzen.EvaluationRequest)
	return request, authzen.Unmarshal(body, request)
}

// limits holds limits on the values of a request. Zero means the default.
type limits struct {
	ArrayElements       int `yaml:"array_elements"`        // elements of an array; default 1024
	NestedArrayElements int `yaml:"nested_array_elements"` // elements of an array of arrays or objects; default 64
	StringBytes         int `yaml:"string_bytes"`          // length of a string in bytes; default 8192
}

// Values of UndeclaredAttributes, NotificationTo and OnPolicyError.
const (
	undeclaredRefuse = "refuse"
	undeclaredDrop   = "drop"

	notifyArray  = "array"
	notifyString = "string"

	onErrorDeny    = "deny"
	onErrorDenyAny = "deny_any"
	onErrorSkip    = "skip"
)

// readSettings reads a config.yaml.
func readSettings(d *yamldoc.Document) (Settings, faults.List) {
	var s Settings
	found := d.Decode(&s)
	return s, append(found, s.check(d)...)
}

// strictness lists the values of on_policy_error from lax to strict.
var strictness = []string{onErrorSkip, onErrorDeny, onErrorDenyAny}

// add lays settings over the existing ones. A tenant's must not weaken on_policy_error.
func (s *Settings) add(own Settings, tenant bool) error {
	s.TypeAliases = joined(s.TypeAliases, own.TypeAliases)
	s.Parents = joined(s.Parents, own.Parents)
	s.Attributes = joined(s.Attributes, own.Attributes)
	if own.SubjectTypes != nil { // an empty list allows no subject
		s.SubjectTypes = append([]string{}, slices.Concat(s.SubjectTypes, own.SubjectTypes)...)
	}
	s.PEPAuthoritative = append(s.PEPAuthoritative, own.PEPAuthoritative...)
	s.SelfTest = append(s.SelfTest, own.SelfTest...)
	s.UndeclaredAttributes = cmp.Or(own.UndeclaredAttributes, s.UndeclaredAttributes)
	s.Clock = cmp.Or(own.Clock, s.Clock)
	s.Access = agentTypes{joined(s.Access.Agents, own.Access.Agents), cmp.Or(own.Access.Default, s.Access.Default)}
	s.NotificationTo = cmp.Or(own.NotificationTo, s.NotificationTo)
	s.Limits.ArrayElements = cmp.Or(own.Limits.ArrayElements, s.Limits.ArrayElements)
	s.Limits.NestedArrayElements = cmp.Or(own.Limits.NestedArrayElements, s.Limits.NestedArrayElements)
	s.Limits.StringBytes = cmp.Or(own.Limits.StringBytes, s.Limits.StringBytes)
	guard := cmp.Or(s.OnPolicyError, onErrorDeny)
	if strict := slices.Index(strictness, own.OnPolicyError); tenant && strict >= 0 && strict < slices.Index(strictness, guard) {
		return fmt.Errorf("on_policy_error: %s is laxer than the guardrails' %s", own.OnPolicyError, guard)
	}
	s.OnPolicyError = cmp.Or(own.OnPolicyError, s.OnPolicyError)
	return s.addTemplates(own.ApprovalTemplates)
}

// addTemplates lays templates over the existing ones. A tenant cannot change the guardrails' terms.
func (s *Settings) addTemplates(own map[string]ApprovalTemplate) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, taken := s.ApprovalTemplates[name]; taken {
			return fmt.Errorf("approval_templates: %s is the guardrails'", name)
		}
	}
	if len(own) > 0 {
		all := maps.Clone(own)
		maps.Copy(all, s.ApprovalTemplates)
		s.ApprovalTemplates = all
	}
	return nil
}

func joined(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	both := maps.Clone(b)
	for key, value := range a {
		if _, ok := both[key]; !ok {
			both[key] = value
		}
	}
	return both
}

func (s *Settings) fillDefaults() {
	s.UndeclaredAttributes = cmp.Or(s.UndeclaredAttributes, undeclaredRefuse)
	s.OnPolicyError = cmp.Or(s.OnPolicyError, onErrorDeny)
	s.Limits.ArrayElements = cmp.Or(s.Limits.ArrayElements, 1024)
	s.Limits.NestedArrayElements = cmp.Or(s.Limits.NestedArrayElements, 64)
	s.Limits.StringBytes = cmp.Or(s.Limits.StringBytes, 8192)
}

func (s *Settings) check(d *yamldoc.Document) faults.List {
	var found faults.List
	fault := func(message, hint string, path ...string) {
		found = append(found, d.Fault(message, hint, path...))
	}
	oneOf := func(key, value string, allowed ...string) {
		if value != "" && !slices.Contains(allowed, value) {
			fault(key+": "+value+" is not one of "+strings.Join(allowed, ", "), faults.DidYouMean(value, allowed), key)
		}
	}
	typeName := func(name string, path ...string) {
		if _, err := types.NewEntityType(name); err != nil {
			fault(name+" is not the name of a Cedar entity type", "", path...)
		}
	}
	oneOf("undeclared_attributes", s.UndeclaredAttributes, undeclaredRefuse, undeclaredDrop)
	oneOf("notification_to", s.NotificationTo, notifyArray, notifyString)
	oneOf("on_policy_error", s.OnPolicyError, onErrorDeny, onErrorDenyAny, onErrorSkip)
	for i, name := range s.SubjectTypes {
		typeName(name, "subject_types", strconv.Itoa(i))
	}
	for _, sent := range slices.Sorted(maps.Keys(s.TypeAliases)) {
		typeName(s.TypeAliases[sent], "type_aliases", sent)
	}
	for _, property := range slices.Sorted(maps.Keys(s.Parents)) {
		typeName(s.Parents[property], "parents", property)
	}
	for _, id := range slices.Sorted(maps.Keys(s.Access.Agents)) {
		typeName(s.Access.Agents[id], "access", "agents", id)
		if strings.Contains(strings.TrimSuffix(id, "*"), "*") {
			fault("access.agents: "+id+" has a * that is not at its end", "", "access", "agents", id)
		}
	}
	if s.Access.Default != "" {
		typeName(s.Access.Default, "access", "default")
	}
	for i, name := range s.PEPAuthoritative {
		entityType, _, _ := strings.Cut(name, ".")
		if _, err := types.NewEntityType(entityType); err != nil {
			fault("pep_authoritative: "+name+" is neither an entity type nor an attribute of one", "", "pep_authoritative", strconv.Itoa(i))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.ApprovalTemplates)) {
		if _, err := s.ApprovalTemplates[name].Compile(); err != nil {
			fault("approval_templates: "+name+": "+err.Error(), "", "approval_templates", name)
		}
	}
	if slices.Contains(serviceMembers, s.Clock) {
		fault("clock: context."+s.Clock+" is taken", "", "clock")
	}
	s.checkTenantEntities(fault)
	return found
}

// checkTenantEntities checks the syntax of tenant_entities.
func (s *Settings) checkTenantEntities(fault func(message, hint string, path ...string)) {
	if s.TenantEntities == nil {
		return
	}
	for i, name := range s.TenantEntities.Parents {
		kind, _, isEntity := strings.Cut(name, `::"`)
		if _, err := types.NewEntityType(kind); err != nil || isEntity && !strings.HasSuffix(name, `"`) {
			fault("tenant_entities.parents: "+name+" is neither an entity nor an entity type", `write Role::"staff" or Role`, "tenant_entities", "parents", strconv.Itoa(i))
		}
	}
}

// entityType returns the Cedar type for a type that a PEP sent.
func (s *Settings) entityType(sent string) (cedar.EntityType, error) {
	if alias, ok := s.TypeAliases[sent]; ok {
		sent = alias
	}
	return types.NewEntityType(sent)
}

// isParentType reports whether a request may give subjects parents of that type.
func (s *Settings) isParentType(t cedar.EntityType) bool {
	for _, name := range s.Parents {
		if name == string(t) {
			return true
		}
	}
	return false
}

// pepWins reports whether the PEP is authoritative for an attribute.
func (s *Settings) pepWins(entity cedar.EntityType, attribute string) bool {
	if len(s.PEPAuthoritative) == 0 {
		return false
	}
	return slices.Contains(s.PEPAuthoritative, string(entity)) ||
		slices.Contains(s.PEPAuthoritative, string(entity)+"."+attribute)
}

// SettingsKeys lists the keys of config.yaml.
func SettingsKeys() []string {
	var keys []string
	for field := range reflect.TypeFor[Settings]().Fields() {
		keys = append(keys, field.Tag.Get("yaml"))
	}
	return keys
}
