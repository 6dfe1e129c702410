package evaluation

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Compile makes a snapshot of a policy store. It is all or nothing: with
// anything wrong there is no snapshot and the error is [Faults], every one of
// them.
func Compile(a Archive) (*Snapshot, error) {
	c := compiler{archive: a}
	snapshot := c.compile()
	if len(c.faults) == 0 {
		c.selfTest(snapshot)
	}
	if err := c.faults.sorted(); err != nil {
		return nil, err
	}
	return snapshot, nil
}

type compiler struct {
	archive Archive
	faults  Faults
	schema  *resolved.Schema
}

func (c *compiler) compile() *Snapshot {
	manifest, err := decisionlog.Manifest(c.archive)
	if err != nil {
		c.fault(".", 0, 0, err.Error(), "")
	}
	s := &Snapshot{archive: c.archive, revision: decisionlog.Revision(manifest)}
	s.settings = c.readSettings()
	c.schema = c.readSchema()
	s.schema = c.schema
	s.shapes = c.readShapes(s.settings)
	s.store = c.readEntities()
	s.policies = c.readPolicies()
	s.subjectTypes = c.readSubjectTypes(s.settings)
	s.templates = c.readTemplates(s.settings)
	c.checkApprovals(s.shapes)
	return s
}

// readSettings reads config.yaml, a tenant's over the root's.
func (c *compiler) readSettings() settings {
	var all settings
	for _, file := range c.archive.files(fileConfig) {
		own, faults := readSettings(file, c.archive[file])
		c.faults = append(c.faults, faults...)
		if err := all.add(own, tenantOf(file) != ""); err != nil {
			c.fault(file, 0, 0, err.Error(), "")
		}
	}
	all.fillDefaults()
	return all
}

// readSchema reads the schema, in either of its two forms. A tenant's is added
// to the root's. There may be none.
func (c *compiler) readSchema() *resolved.Schema {
	var text []byte
	var last string
	for _, file := range slices.Concat(c.archive.files(fileCedarSchema), c.archive.files(fileJSONSchema)) {
		if other := path.Join(path.Dir(file), fileCedarSchema); path.Base(file) == fileJSONSchema && c.archive[other] != nil {
			c.fault(file, 0, 0, "there is "+other+" as well", "keep one of them")
			continue
		}
		part, err := c.parseSchema(file)
		if err != nil {
			c.schemaFault(file, err)
			return nil
		}
		text, last = append(append(text, part...), '\n'), file
	}
	if last == "" {
		return nil
	}
	var parsed schema.Schema
	err := parsed.UnmarshalCedar(text)
	if err != nil {
		c.fault(last, 0, 0, err.Error(), "")
		return nil
	}
	out, err := parsed.Resolve()
	if err != nil {
		c.fault(last, 0, 0, err.Error(), "")
		return nil
	}
	return out
}

// schemaFault reports what a parser says about a schema file.
func (c *compiler) schemaFault(file string, err error) {
	if offset := jsonOffset(err); offset > 0 {
		line, column := lineAndColumn(c.archive[file], offset)
		c.fault(file, line, column, jsonMessage(err), "")
		return
	}
	c.parseFault(file, statement{text: c.archive[file], line: 1, column: 1}, err)
}

// parseSchema reads one schema file and returns it as Cedar text.
func (c *compiler) parseSchema(file string) ([]byte, error) {
	var parsed schema.Schema
	parsed.SetFilename(file)
	if path.Base(file) == fileCedarSchema {
		return c.archive[file], parsed.UnmarshalCedar(c.archive[file])
	}
	if err := parsed.UnmarshalJSON(c.archive[file]); err != nil {
		return nil, err
	}
	return parsed.MarshalCedar()
}

func (c *compiler) readShapes(set settings) shapes {
	if c.schema == nil {
		out, faults := shapesFrom(set.Attributes)
		c.faults = append(c.faults, faults...)
		return out
	}
	if len(set.Attributes) > 0 {
		c.fault(fileConfig, 0, 0, "attributes: the schema types attributes already", "declare them there")
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
		c.faults = append(c.faults, faults...)
		for _, st := range statements {
			if p := c.readPolicy(file, st); p != nil {
				out = append(out, p)
			}
		}
	}
	c.checkUnique(out)
	return newPolicies(out)
}

func (c *compiler) readPolicy(file string, st statement) *policy {
	list, err := cedar.NewPolicyListFromBytes(file, st.text)
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
	c.readAnnotations(p)
	if why := refused(p.syntax); why != "" {
		c.fault(file, p.line, p.column, why, "")
		return nil
	}
	c.validate(p)
	repair(p.syntax)
	p.conditions = withoutScope(p.syntax)
	return p
}

// readAnnotations takes the policy's id and terms from its annotations.
func (c *compiler) readAnnotations(p *policy) {
	annotations := map[string]string{}
	for _, a := range p.syntax.Annotations {
		annotations[string(a.Key)] = string(a.Value)
	}
	id := annotations["id"]
	if id == "" {
		c.fault(p.file, p.line, p.column, "this policy has no @id", `begin it with @id("a-unique-name")`)
	}
	p.id = cedar.PolicyID(id)
	terms, err := obligations.Parse(p.permits(), annotations)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			c.fault(p.file, p.line, p.column, "policy "+id+": "+strings.TrimSpace(line), "")
		}
	}
	p.terms = &terms
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
func (c *compiler) validate(p *policy) {
	if c.schema == nil {
		return
	}
	merged := mergeConditions(p.syntax)
	if err := validate.New(c.schema).Policy(string(p.id), merged); err != nil {
		for _, line := range slices.Sorted(strings.Lines(err.Error())) {
			c.fault(p.file, p.line, p.column, "policy "+string(p.id)+": "+strings.TrimSpace(line), "")
		}
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
		if err := test.run(s); err != nil {
			c.fault(fileConfig, 0, 0, fmt.Sprintf("self_test %d: %v", i+1, err), "")
		}
	}
}

func (t selfTest) run(s *Snapshot) error {
	body, err := json.Marshal(t.Request)
	if err != nil {
		return err
	}
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(body, &request); err != nil {
		return err
	}
	outcome, err := s.Decide(&request, Environment{})
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
