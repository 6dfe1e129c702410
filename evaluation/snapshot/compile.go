package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Compile compiles a policy store to a snapshot. It is all or nothing: on any fault it returns no
// snapshot, and the error is a [List] of every fault.
func Compile(a Archive) (*Snapshot, error) { return CompileContext(context.Background(), a) }

// CompileContext is [Compile] with a context. It returns [ErrSlow] when ctx ends.
func CompileContext(ctx context.Context, a Archive) (*Snapshot, error) {
	return CompileFor(ctx, a, nil)
}

// CompileFor is [CompileContext] for a service that notifies people in these ways. Approval templates
// may name no others. nil means that the ways are unknown, so that templates may name any.
func CompileFor(ctx context.Context, a Archive, ways []string) (s *Snapshot, err error) {
	defer recoverSlow(&err)
	return compileWhole(&compiler{ctx: ctx, archive: a, ways: ways}).whole()
}

// compileArchive compiles a snapshot. With logged, it accepts what older versions accepted, because
// the log holds decisions of that revision.
func compileArchive(ctx context.Context, a Archive, logged bool) (s *Snapshot, err error) {
	defer recoverSlow(&err)
	return compileWhole(&compiler{ctx: ctx, archive: a, logged: logged}).whole()
}

// A compileResult is a snapshot and its faults.
type compileResult struct {
	snapshot *Snapshot
	faults   faults.List
	partial  bool // the snapshot omits something that could not be read
}

// whole returns the snapshot, or all faults.
func (r compileResult) whole() (*Snapshot, error) {
	if err := r.faults.Unique().Sorted(); err != nil {
		return nil, err
	}
	return r.snapshot, nil
}

func compileWhole(c *compiler) compileResult {
	compiled := c.compile()
	if len(c.faults) == 0 {
		c.selfTest(compiled)
	}
	return compileResult{compiled, c.faults, c.partial}
}

func (c *compiler) compile() *Snapshot {
	manifest, err := decisionlog.Manifest(c.archive)
	if err != nil {
		c.fault(".", 0, 0, err.Error(), "")
	}
	s := &Snapshot{archive: c.archive, revision: decisionlog.Revision(manifest)}
	c.checkMarks()
	s.Settings = c.readSettings()
	c.notificationTo = s.Settings.NotificationTo
	c.schema = c.readSchema()
	s.Schema = c.schema
	c.partial = c.schema == nil && len(c.archive.Files(FileCedarSchema))+len(c.archive.Files(FileJSONSchema)) > 0 || len(c.faults) > 0
	s.Shapes = c.readShapes(s.Settings)
	s.Entities = c.readEntities()
	s.Policies = c.readPolicies(c.readAccess(s))
	s.entityIndexes = newEntityIndexes(s.Entities, s.Schema, s.Policies.Ordered)
	s.Actions = newActionIndex(actionsOf(s), s.hasAction)
	s.SubjectTypes = c.readSubjectTypes(s.Settings)
	s.Templates = c.readTemplates(s.Settings)
	c.checkFact(s.Shapes, ContextApproval, approvalShape)
	c.checkFact(s.Shapes, ContextCapability, capabilityShape)
	s.ReadsCapability = slices.ContainsFunc(s.Policies.Ordered, (*Policy).readsCapability)
	c.checkTemplates(s)
	c.checkSettingsNames(s)
	c.checkTenancy(s)
	return s
}

// checkMarks reports files that begin with a byte order mark, which Cedar's own tools reject. YAML
// allows one.
func (c *compiler) checkMarks() {
	var without Archive
	for file, text := range c.archive {
		if plain, found := bytes.CutPrefix(text, []byte("\ufeff")); found && path.Base(file) != FileConfig {
			c.fault(file, 1, 1, "begins with a byte order mark, which Cedar's own tools do not read", "save it as UTF-8 without BOM")
			if without == nil {
				without = maps.Clone(c.archive)
			}
			without[file] = plain
		}
	}
	if without != nil {
		c.archive = without
	}
}

// readSettings reads config.yaml and lays a tenant's over the root's.
func (c *compiler) readSettings() Settings {
	var all Settings
	c.settings = map[string]Settings{}
	for _, file := range c.archive.Files(FileConfig) {
		d, err := yamldoc.Parse(file, c.archive[file])
		if err != nil {
			c.yamlFault(file, err)
			continue
		}
		c.configs = append(c.configs, d)
		own, found := readSettings(d)
		c.faults = append(c.faults, found...)
		c.settings[TenantOf(file)] = own
		if err := all.add(own, TenantOf(file) != ""); err != nil {
			c.faults = append(c.faults, d.Fault(err.Error(), "", "on_policy_error"))
		}
	}
	all.fillDefaults()
	return all
}

func (c *compiler) readShapes(set Settings) shapes {
	if c.schema == nil {
		return shapesFrom(set.Attributes, func(path, message, hint string) {
			c.configFault("attributes: "+path+": "+message, hint, "attributes", path)
		})
	}
	if len(set.Attributes) > 0 {
		c.configFault("attributes: the schema types attributes already", "declare them there", "attributes")
	}
	return shapesOf(c.schema)
}

func (c *compiler) readSubjectTypes(set Settings) map[cedar.EntityType]bool {
	if set.SubjectTypes == nil {
		return nil
	}
	out := map[cedar.EntityType]bool{}
	for _, name := range set.SubjectTypes {
		out[cedar.EntityType(name)] = true
	}
	return out
}

// readTemplates compiles the templates and reports their faults in config.yaml.
func (c *compiler) readTemplates(set Settings) map[string]authzen.ApprovalTemplate {
	out := make(map[string]authzen.ApprovalTemplate, len(set.ApprovalTemplates))
	for name, template := range set.ApprovalTemplates {
		if terms, err := template.Compile(); err == nil {
			out[name] = terms
		}
	}
	return out
}

// readPolicies reads every policy file, and the policies of access documents.
func (c *compiler) readPolicies(access []accessStatement) policies {
	var out []*Policy
	for _, file := range c.archive.PolicyFiles() {
		statements, found := cedarsyntax.Scan(file, c.archive[file])
		c.faults, c.partial = append(c.faults, found...), c.partial || len(found) > 0
		for _, st := range statements {
			c.inTime()
			if p := c.readPolicy(file, st); p != nil {
				out = append(out, p)
			} else {
				c.partial = true
			}
		}
	}
	for _, st := range access {
		c.inTime()
		if p := c.readPolicy(st.file, st.Statement); p != nil {
			p.compiled = st.Text
			out = append(out, p)
		} else {
			c.partial = true
		}
	}
	c.checkUnique(out)
	return newPolicies(out)
}

func (c *compiler) readPolicy(file string, st cedarsyntax.Statement) *Policy {
	list, err := cedar.NewPolicyListFromBytes(file, st.Text)
	if err != nil && c.isTemplate(file, st) {
		return nil
	}
	if err != nil {
		c.parseFault(file, st, err)
		return nil
	}
	if len(list) != 1 {
		c.fault(file, st.Line, st.Column, fmt.Sprintf("%d policies in one statement", len(list)), "end each policy with a semicolon")
		return nil
	}
	p := &Policy{effect: list[0].Effect(), Syntax: (*xast.Policy)(list[0].AST()), File: file}
	at := list[0].Position()
	p.Line, p.Column = st.Position(at.Line, at.Column)
	c.readAnnotations(p, st)
	if why := cedarsyntax.Incompatible(p.Syntax); why != "" {
		c.fault(file, p.Line, p.Column, why, "")
		return nil
	}
	c.validate(p, st)
	cedarsyntax.Normalize(p.Syntax)
	p.conditions = withoutScope(p.Syntax)
	return p
}

// isTemplate reports a fault for a statement that is a policy template, and whether it is one.
func (c *compiler) isTemplate(file string, st cedarsyntax.Statement) bool {
	text := cedarsyntax.Tokenize(st)
	for _, slot := range []string{"principal", "resource"} {
		if at := text.Find("?", slot); at >= 0 {
			line, column := st.Position(faults.LineAndColumn(st.Text, int64(at)))
			c.fault(file, line, column, "policy templates (?principal, ?resource) are not supported", "write a policy for each entity, or for a group of them")
			return true
		}
	}
	return false
}

func (c *compiler) checkUnique(all []*Policy) {
	first := map[cedar.PolicyID]*Policy{}
	for _, p := range all {
		other, taken := first[p.ID]
		if taken && p.ID != "" {
			c.fault(p.File, p.Line, p.Column, fmt.Sprintf("@id(%q) is taken by %s:%d", string(p.ID), other.File, other.Line), "")
		}
		if !taken {
			first[p.ID] = p
		}
	}
}

// validate checks the policy against the schema.
func (c *compiler) validate(p *Policy, st cedarsyntax.Statement) {
	if c.schema == nil {
		return
	}
	typed, err := cedarsyntax.WithoutCertainty(mergeConditions(p.Syntax))
	if err == nil {
		err = validate.New(c.schema).Policy(string(p.ID), typed)
	}
	if err != nil {
		c.typeFaults(p, st, err)
	}
	if why := cedarsyntax.IncompatibleWithSchema(c.schema, p.Syntax); why != "" {
		c.fault(p.File, p.Line, p.Column, "policy "+string(p.ID)+": "+why, "")
	}
	for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
		if err := checkEnum(c.schema, uid); err != nil {
			c.fault(p.File, p.Line, p.Column, "policy "+string(p.ID)+": "+err.Error(), "")
		}
	}
}

// mergeConditions returns an equivalent policy with a single condition. The validator checks each
// condition alone. It would otherwise reject a read of an attribute whose presence an earlier
// condition has tested.
func mergeConditions(p *xast.Policy) *xast.Policy {
	if len(p.Conditions) < 2 {
		return p
	}
	merged := *p
	var all xast.Node
	for i, condition := range p.Conditions {
		node := xast.NewNode(condition.Body)
		if condition.Condition == xast.ConditionUnless {
			node = xast.Not(node)
		}
		if i == 0 {
			all = node
		} else {
			all = all.And(node)
		}
	}
	merged.Conditions = []xast.ConditionType{{Condition: xast.ConditionWhen, Body: all.AsIsNode()}}
	return &merged
}

// selfTest decides the requests of self_test with the snapshot.
func (c *compiler) selfTest(s *Snapshot) {
	for i, test := range s.Settings.SelfTest {
		c.inTime()
		if err := test.run(s); err != nil {
			c.selfTestFault(i, err)
		}
	}
}

// selfTestFault reports a fault of the self_test at index i of all tests.
func (c *compiler) selfTestFault(i int, err error) {
	for _, d := range c.configs {
		n := d.Elements("self_test")
		if i < n {
			c.faults = append(c.faults, d.Fault(fmt.Sprintf("self_test %d: %v", i+1, err), "", "self_test", strconv.Itoa(i)))
			return
		}
		i -= n
	}
	c.fault(FileConfig, 0, 0, fmt.Sprintf("self_test: %v", err), "")
}

func (t selfTest) run(s *Snapshot) error {
	request, err := t.evaluation()
	if err != nil {
		return err
	}
	outcome, err := s.Decide(request, Environment{})
	if err != nil {
		return err
	}
	if outcome.Decision != t.Decision {
		return fmt.Errorf("the decision is %t, not %t", outcome.Decision, t.Decision)
	}
	return nil
}
