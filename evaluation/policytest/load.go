package policytest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Test is a request and what is wanted of it.
type Test struct {
	Name     string
	Tenant   string // whose test it is; "" for one of the store's root
	File     string // path from the root of the policy store
	Line     int    // from 1
	Request  *authzen.EvaluationRequest
	Time     time.Time                 // of the decision; zero when the test does not say
	Approval *authzen.VerifiedApproval // that stands; nil for none
	Want     Expectation
}

// An Expectation is what a test wants of an outcome, or what it got. Nil
// policies or obligations are not wanted in particular.
type Expectation struct {
	Decision    bool     `json:"decision"`
	Policies    []string `json:"policies,omitzero"`    // ids of the determining policies, all of them
	Obligations []string `json:"obligations,omitzero"` // types of the obligations, all of them
}

// Load reads the tests of the policy store at the root of fsys, in the order
// of their files, those of tenants last. The error is an [evaluation.Faults]
// with everything that is wrong in them.
func Load(fsys fs.FS) ([]Test, error) {
	var names []string
	for _, pattern := range []string{"tests/*.yaml", "tenants/*/tests/*.yaml"} {
		found, err := fs.Glob(fsys, pattern)
		if err != nil {
			return nil, fmt.Errorf("list policy tests: %w", err)
		}
		names = append(names, found...)
	}
	var tests []Test
	var faults evaluation.Faults
	for _, name := range names {
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read policy tests: %w", err)
		}
		found, wrong := parse(name, src)
		tests = append(tests, found...)
		faults = append(faults, wrong...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return tests, nil
}

// parse reads one file of tests. The rows are read by the decoder that read the
// file, which knows the file's anchors. What makes the decoder panic is a fault
// like any other.
func parse(name string, src []byte) (tests []Test, faults evaluation.Faults) {
	defer func() {
		if p := recover(); p != nil {
			faults = append(faults, fault(name, 1, fmt.Errorf("is not understood: %v", p)))
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict())
	nodes, err := rows(dec)
	if err != nil {
		return nil, evaluation.Faults{fault(name, 1, err)}
	}
	names := make(map[string]bool)
	for _, node := range nodes {
		test, err := read(dec, node)
		if err == nil && names[test.Name] {
			err = fmt.Errorf("%q names two tests", test.Name)
		}
		if err != nil {
			faults = append(faults, fault(name, line(node), err))
			continue
		}
		test.Tenant, test.File, test.Line = tenantOf(name), name, line(node)
		names[test.Name] = true
		tests = append(tests, test)
	}
	return tests, faults
}

// tenantOf returns the tenant whose file of tests it is.
func tenantOf(name string) string {
	below, ok := strings.CutPrefix(name, "tenants/")
	if !ok {
		return ""
	}
	tenant, _, _ := strings.Cut(below, "/")
	return tenant
}

// rows reads the one document of a file.
func rows(dec *yaml.Decoder) ([]ast.Node, error) {
	var file struct {
		Tests []ast.Node `yaml:"tests"`
	}
	switch err := dec.Decode(&file); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("there is no list of tests")
	case err != nil:
		return nil, err
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	return file.Tests, nil
}

func line(node ast.Node) int {
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 1
	}
	return node.GetToken().Position.Line
}

// A row is a test as it is written. Pointers tell what is missing from what is
// empty.
type row struct {
	Name        string    `yaml:"name"`
	Time        string    `yaml:"time"`
	Request     *request  `yaml:"request"`
	Approval    *approval `yaml:"approval,omitempty"`
	Decision    *bool     `yaml:"decision"`
	Policies    *[]string `yaml:"policies,flow"`
	Obligations *[]string `yaml:"obligations,flow"`
}

// A request has the members of an authzen.EvaluationRequest and no others.
// What their values must be, that package says.
type request struct {
	Subject  *entity        `yaml:"subject,flow"          json:"subject,omitzero"`
	Action   *action        `yaml:"action,flow"           json:"action,omitzero"`
	Resource *entity        `yaml:"resource,flow"         json:"resource,omitzero"`
	Context  map[string]any `yaml:"context,flow,omitzero" json:"context,omitzero"`
}

type entity struct {
	Type       any            `yaml:"type"                json:"type"`
	ID         any            `yaml:"id"                  json:"id"`
	Properties map[string]any `yaml:"properties,omitzero" json:"properties,omitzero"`
}

type action struct {
	Name       any            `yaml:"name"                json:"name"`
	Properties map[string]any `yaml:"properties,omitzero" json:"properties,omitzero"`
}

// An approval is one that stands for the request.
type approval struct {
	Template  string     `yaml:"template"`
	Approvers []approver `yaml:"approvers,omitempty"`
	Until     string     `yaml:"until,omitempty"`
	Channel   string     `yaml:"channel,omitempty"`
	UsesLeft  int        `yaml:"uses_left,omitempty"`
}

type approver struct {
	Type string `yaml:"type"`
	ID   string `yaml:"id"`
}

// verified returns the approval as the service would have verified it.
func (a *approval) verified() (*authzen.VerifiedApproval, error) {
	if a == nil {
		return nil, nil
	}
	if a.Template == "" {
		return nil, errors.New("approval: template is required")
	}
	until, err := moment("approval: until", a.Until)
	if err != nil {
		return nil, err
	}
	out := &authzen.VerifiedApproval{Template: a.Template, Until: until, Channel: a.Channel, UsesLeft: a.UsesLeft}
	for _, by := range a.Approvers {
		out.Approvers = append(out.Approvers, authzen.Subject{Type: by.Type, ID: by.ID})
	}
	return out, nil
}

func read(dec *yaml.Decoder, node ast.Node) (Test, error) {
	var row row
	if node == nil {
		return Test{}, errors.New("a test is empty")
	}
	if err := dec.DecodeFromNode(node, &row); err != nil {
		return Test{}, err
	}
	if row.Name == "" {
		return Test{}, errors.New("name is required")
	}
	test, err := row.test()
	if err != nil {
		return Test{}, fmt.Errorf("%q: %w", row.Name, err)
	}
	return test, nil
}

func (r *row) test() (Test, error) {
	if r.Request == nil {
		return Test{}, errors.New("request is required")
	}
	if r.Decision == nil {
		return Test{}, errors.New("decision is required")
	}
	decided, err := moment("time", r.Time)
	if err != nil {
		return Test{}, err
	}
	approval, err := r.Approval.verified()
	if err != nil {
		return Test{}, err
	}
	sent, err := r.Request.evaluation()
	if err != nil {
		return Test{}, err
	}
	return Test{Name: r.Name, Time: decided, Request: sent, Approval: approval, Want: r.want()}, nil
}

// moment reads a time; "" is zero.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %q, not of the form 2026-01-31T12:00:00Z", name, text)
	}
	return t, nil
}

// evaluation returns the request as it would have come over the wire, by the
// same reading.
func (r *request) evaluation() (*authzen.EvaluationRequest, error) {
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var out authzen.EvaluationRequest
	if err := authzen.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (r *row) want() Expectation {
	want := Expectation{Decision: *r.Decision}
	if r.Policies != nil {
		want.Policies = sorted(*r.Policies)
	}
	if r.Obligations != nil {
		want.Obligations = sorted(*r.Obligations)
	}
	return want
}

// fault turns what is wrong with the test at that line into a fault, at a
// better place where the YAML reader knows one.
func fault(file string, line int, err error) evaluation.Fault {
	out := evaluation.Fault{File: file, Line: line, Column: 1, Message: strings.TrimSpace(err.Error())}
	var at yaml.Error
	if errors.As(err, &at) {
		out.Message = at.GetMessage()
		if token := at.GetToken(); token != nil && token.Position != nil {
			out.Line, out.Column = cmp.Or(token.Position.Line, line), token.Position.Column
		}
	}
	return out
}
