package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// ErrSlow means that a policy store takes longer to compile than
// Config.CompileDeadline.
var ErrSlow = errors.New("the policy store takes too long to compile")

// Compile makes a snapshot of a policy store. It is all or nothing: with
// anything wrong there is no snapshot and the error is [Faults], every one of
// them.
func Compile(a Archive) (*Snapshot, error) { return CompileContext(context.Background(), a) }

// CompileContext is [Compile] until ctx ends, which is [ErrSlow].
func CompileContext(ctx context.Context, a Archive) (*Snapshot, error) {
	return compileArchive(ctx, a, false)
}

// compileArchive makes a snapshot. What was compiled before and logged may have
// what is refused today.
func compileArchive(ctx context.Context, a Archive, logged bool) (s *Snapshot, err error) {
	defer recoverSlow(&err)
	one := compileWhole(ctx, a, logged)
	if err := one.faults.unique().sorted(); err != nil {
		return nil, err
	}
	return one.snapshot, nil
}

// A compileResult is a snapshot and what is wrong with it.
type compileResult struct {
	snapshot *Snapshot
	faults   Faults
	partial  bool // something could not be read, and is not in the snapshot
}

func compileWhole(ctx context.Context, a Archive, logged bool) compileResult {
	c := compiler{ctx: ctx, archive: a, logged: logged}
	snapshot := c.compile()
	if len(c.faults) == 0 {
		c.selfTest(snapshot)
	}
	return compileResult{snapshot, c.faults, c.partial}
}

// slow is what the compiler panics with when its context has ended.
type slow struct{}

// inTime ends the compilation when its context has ended.
func (c *compiler) inTime() {
	if c.ctx.Err() != nil {
		panic(slow{})
	}
}

// recoverSlow makes an error of that panic.
func recoverSlow(err *error) {
	switch p := recover().(type) {
	case nil:
	case slow:
		*err = ErrSlow
	default:
		panic(p)
	}
}

type compiler struct {
	ctx      context.Context
	archive  Archive
	logged   bool                // it decided once, so that what tenants may add is not asked
	configs  []*yamldoc.Document // config.yaml, the root's first
	settings map[string]settings // by tenant, "" for the root
	entities []writtenEntity
	faults   Faults
	partial  bool // something could not be read
	schema   *resolved.Schema

	notificationTo string // of the settings
}

func (c *compiler) compile() *Snapshot {
	manifest, err := decisionlog.Manifest(c.archive)
	if err != nil {
		c.fault(".", 0, 0, err.Error(), "")
	}
	s := &Snapshot{archive: c.archive, revision: decisionlog.Revision(manifest)}
	c.checkMarks()
	s.settings = c.readSettings()
	c.notificationTo = s.settings.NotificationTo
	c.schema = c.readSchema()
	s.schema = c.schema
	c.partial = c.schema == nil && len(c.archive.files(fileCedarSchema))+len(c.archive.files(fileJSONSchema)) > 0 || len(c.faults) > 0
	s.shapes = c.readShapes(s.settings)
	s.store = c.readEntities()
	s.policies = c.readPolicies()
	s.populations = newPopulations(s.store, s.schema, s.policies.ordered)
	s.actions = newActionIndex(s)
	s.subjectTypes = c.readSubjectTypes(s.settings)
	s.templates = c.readTemplates(s.settings)
	c.checkApprovals(s.shapes)
	c.checkTemplates(s)
	c.checkSettingsNames(s)
	c.checkTenancy(s)
	return s
}

// checkMarks reports files that begin with a byte order mark, which Cedar's own
// tools do not read. YAML may.
func (c *compiler) checkMarks() {
	var without Archive
	for file, text := range c.archive {
		if plain, found := bytes.CutPrefix(text, []byte("\ufeff")); found && path.Base(file) != fileConfig {
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

// readSettings reads config.yaml, a tenant's over the root's.
func (c *compiler) readSettings() settings {
	var all settings
	c.settings = map[string]settings{}
	for _, file := range c.archive.files(fileConfig) {
		d, err := yamldoc.Parse(file, c.archive[file])
		if err != nil {
			c.yamlFault(file, err)
			continue
		}
		c.configs = append(c.configs, d)
		own, faults := readSettings(d)
		c.faults = append(c.faults, faults...)
		c.settings[tenantOf(file)] = own
		if err := all.add(own, tenantOf(file) != ""); err != nil {
			c.faults = append(c.faults, d.Fault(err.Error(), "", "on_policy_error"))
		}
	}
	all.fillDefaults()
	return all
}

func (c *compiler) yamlFault(file string, err error) {
	var fault Fault
	if !errors.As(err, &fault) {
		fault = Fault{File: file, Message: err.Error()}
	}
	c.faults = append(c.faults, fault)
}

// configFault reports a fault at its place in the first config.yaml that has the
// path, if there is one: what came by way of an alias has no place.
func (c *compiler) configFault(message, hint string, path ...string) {
	for _, d := range c.configs {
		if d.Has(path...) {
			c.faults = append(c.faults, d.Fault(message, hint, path...))
			return
		}
	}
	c.fault(fileConfig, 0, 0, message, hint)
}

func (c *compiler) readShapes(set settings) shapes {
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

func (c *compiler) readSubjectTypes(set settings) map[cedar.EntityType]bool {
	if set.SubjectTypes == nil {
		return nil
	}
	out := map[cedar.EntityType]bool{}
	for _, name := range set.SubjectTypes {
		out[cedar.EntityType(name)] = true
	}
	return out
}

// readPolicies reads every policy file.
func (c *compiler) readPolicies() policies {
	var out []*policy
	for _, file := range c.archive.policyFiles() {
		statements, faults := scan(file, c.archive[file])
		c.faults, c.partial = append(c.faults, faults...), c.partial || len(faults) > 0
		for _, st := range statements {
			c.inTime()
			if p := c.readPolicy(file, st); p != nil {
				out = append(out, p)
			} else {
				c.partial = true
			}
		}
	}
	c.checkUnique(out)
	return newPolicies(out)
}

func (c *compiler) readPolicy(file string, st statement) *policy {
	list, err := cedar.NewPolicyListFromBytes(file, st.text)
	if err != nil && c.isTemplate(file, st) {
		return nil
	}
	if err != nil {
		c.parseFault(file, st, err)
		return nil
	}
	if len(list) != 1 {
		c.fault(file, st.line, st.column, fmt.Sprintf("%d policies in one statement", len(list)), "end each policy with a semicolon")
		return nil
	}
	p := &policy{effect: list[0].Effect(), syntax: (*xast.Policy)(list[0].AST()), file: file}
	at := list[0].Position()
	p.line, p.column = st.position(at.Line, at.Column)
	c.readAnnotations(p, st)
	if why := refused(p.syntax); why != "" {
		c.fault(file, p.line, p.column, why, "")
		return nil
	}
	c.validate(p, st)
	repair(p.syntax)
	p.conditions = withoutScope(p.syntax)
	return p
}

// isTemplate reports a statement that is a template of policies.
func (c *compiler) isTemplate(file string, st statement) bool {
	text := readPassage(st)
	for _, slot := range []string{"principal", "resource"} {
		if at := text.find("?", slot); at >= 0 {
			line, column := st.position(lineAndColumn(st.text, int64(at)))
			c.fault(file, line, column, "policy templates (?principal, ?resource) are not supported", "write a policy for each entity, or for a group of them")
			return true
		}
	}
	return false
}

func (c *compiler) checkUnique(all []*policy) {
	first := map[cedar.PolicyID]*policy{}
	for _, p := range all {
		other, taken := first[p.id]
		if taken && p.id != "" {
			c.fault(p.file, p.line, p.column, fmt.Sprintf("@id(%q) is taken by %s:%d", string(p.id), other.file, other.line), "")
		}
		if !taken {
			first[p.id] = p
		}
	}
}

// validate holds the policy against the schema.
func (c *compiler) validate(p *policy, st statement) {
	if c.schema == nil {
		return
	}
	typed, err := withoutCertainty(mergeConditions(p.syntax))
	if err == nil {
		err = validate.New(c.schema).Policy(string(p.id), typed)
	}
	if err != nil {
		c.typeFaults(p, st, err)
	}
	if why := refusedTyped(c.schema, p.syntax); why != "" {
		c.fault(p.file, p.line, p.column, "policy "+string(p.id)+": "+why, "")
	}
	for _, uid := range literals(p.syntax) {
		if err := checkEnum(c.schema, uid); err != nil {
			c.fault(p.file, p.line, p.column, "policy "+string(p.id)+": "+err.Error(), "")
		}
	}
}

// mergeConditions returns the policy with its conditions as one, which means
// the same. The validator looks at each condition alone and would otherwise
// refuse an attribute whose presence an earlier condition has established.
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

// selfTest has the snapshot decide the requests of its self_test.
func (c *compiler) selfTest(s *Snapshot) {
	for i, test := range s.settings.SelfTest {
		c.inTime()
		if err := test.run(s); err != nil {
			c.selfTestFault(i, err)
		}
	}
}

// selfTestFault reports a fault of a self_test by its index among all.
func (c *compiler) selfTestFault(i int, err error) {
	for _, d := range c.configs {
		n := d.Elements("self_test")
		if i < n {
			c.faults = append(c.faults, d.Fault(fmt.Sprintf("self_test %d: %v", i+1, err), "", "self_test", strconv.Itoa(i)))
			return
		}
		i -= n
	}
	c.fault(fileConfig, 0, 0, fmt.Sprintf("self_test: %v", err), "")
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

func (c *compiler) fault(file string, line, column int, message, hint string) {
	c.faults = append(c.faults, Fault{File: file, Line: line, Column: column, Message: message, Hint: hint})
}

// parseFault reports what a parser says about a statement.
func (c *compiler) parseFault(file string, st statement, err error) {
	said := readParseError(err.Error())
	if said.isPastIt() {
		said.stepBack(st.text)
	}
	line, column := st.line, st.column
	if said.line > 0 {
		line, column = st.position(said.line, said.column)
	}
	c.fault(file, line, column, "does not parse: "+said.why(), "")
}
