package evaluation_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var corpusAll = flag.Bool("corpus.all", false, "run the whole corpus of the official engine, not a sample of it")

const (
	corpusSample = "7" // begins the names, which are hashes, of the tests in the sample: one of 16
	corpusWindow = 50  // tests whose policies are put together
)

// A corpusTest is a policy store and its requests, with the answers of the
// official engine.
type corpusTest struct {
	PoliciesFile   string          `json:"policies"`
	SchemaFile     string          `json:"schema"`
	EntitiesFile   string          `json:"entities"`
	ShouldValidate bool            `json:"shouldValidate"`
	Requests       []corpusRequest `json:"requests"`

	name     string
	policies string
	schema   []byte
	entities []byte
}

type corpusRequest struct {
	Principal uid            `json:"principal"`
	Action    uid            `json:"action"`
	Resource  uid            `json:"resource"`
	Context   jsontext.Value `json:"context"`
	Decision  string         `json:"decision"`
	Reasons   []string       `json:"reason"`
	Errors    []string       `json:"errors"`
}

// TestCorpus holds decisions against those of the official engine on the
// cases that a fuzzer collected to cover all of it.
func TestCorpus(t *testing.T) {
	start, seen := time.Now(), map[string]int{}
	for _, test := range readCorpus(t) {
		seen["tests"]++
		config, asked := test.ask()
		compiled := test.compile(t, test.policy("policy0"), config)
		for i, r := range test.Requests {
			seen["requests "+asked[i].way]++
			if diff := cmp.Diff(r.verdict(), asked[i].decide(t, compiled)); diff != "" {
				t.Errorf("%s: request %d (-official +ours):\n%s", test.name, i, diff)
			}
		}
	}
	logCounts(t, start, seen)
}

// TestCorpusTogether puts the policies of many of these cases into one store,
// where the index has something to leave out, and holds decisions against
// cedar-go's own loop.
func TestCorpusTogether(t *testing.T) {
	start, seen := time.Now(), map[string]int{}
	for window := range slices.Chunk(readCorpus(t), corpusWindow) {
		var policies strings.Builder
		for i, test := range window {
			policies.WriteString(test.policy(fmt.Sprintf("policy%02d", i)))
		}
		seen["windows"]++
		for _, test := range window {
			config, asked := test.ask()
			compiled := test.compile(t, policies.String(), config)
			linear, err := newLinear(policies.String(), string(test.entities))
			if err != nil {
				t.Fatal(err)
			}
			for i := range test.Requests {
				want := linear.decide(asked[i].cedar)
				want.count(seen)
				if diff := cmp.Diff(want, asked[i].decide(t, compiled)); diff != "" {
					t.Errorf("%s: request %d among others (-linear +index):\n%s", test.name, i, diff)
				}
			}
		}
	}
	logCounts(t, start, seen)
}

// TestCorpusWithSchema compiles each case with its schema. What the official
// validator refuses must be refused, and a request that is accepted must be
// decided as the official engine decides it.
func TestCorpusWithSchema(t *testing.T) {
	start, seen := time.Now(), map[string]int{}
	for _, test := range readCorpus(t) {
		_, asked := test.ask()
		compiled, err := snapshot.Compile(snapshot.Archive{
			"policies.cedar": []byte(test.policy("policy0")), "entities.json": test.entities,
			"schema.cedarschema": test.schema, "config.yaml": []byte("on_policy_error: skip\n"),
		})
		seen[fmt.Sprintf("stores valid=%t accepted=%t", test.ShouldValidate, err == nil)]++
		if err == nil && !test.ShouldValidate {
			t.Errorf("%s: accepted, and the official validator refuses it:\n%s", test.name, test.policies)
		}
		if err != nil {
			continue
		}
		for i, r := range test.Requests {
			if asked[i].way != throughAuthZEN {
				continue
			}
			got, err := decideIn(compiled, asked[i].request)
			if err != nil {
				seen["requests refused"]++
			} else if diff := cmp.Diff(r.verdict(), got); diff != "" {
				t.Errorf("%s: request %d with a schema (-official +ours):\n%s", test.name, i, diff)
			} else {
				seen["requests decided"]++
			}
		}
	}
	logCounts(t, start, seen)
}

func logCounts(t *testing.T, start time.Time, seen map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d %s", seen[name], name)
	}
	t.Logf("in %v", time.Since(start).Round(time.Millisecond))
}

// readCorpus returns the corpus that comes with cedar-go, or a sample of it,
// in the order of its names.
func readCorpus(t *testing.T) []corpusTest {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cedar-policy/cedar-go").Output()
	if err != nil {
		t.Fatalf("find cedar-go: %v", err)
	}
	files := readTar(t, filepath.Join(strings.TrimSpace(string(dir)), "corpus-tests.tar.gz"))
	var tests []corpusTest
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".json" || strings.HasSuffix(name, ".entities.json") {
			continue
		}
		test := corpusTest{name: name}
		if err := json.Unmarshal(files[name], &test); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		test.policies, test.schema, test.entities = string(files[test.PoliciesFile]), files[test.SchemaFile], files[test.EntitiesFile]
		tests = append(tests, test)
	}
	return tests
}

func readTar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || !*corpusAll && !strings.HasPrefix(filepath.Base(header.Name), corpusSample) {
			continue
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// policy returns the case's one policy under an id.
func (test corpusTest) policy(id string) string {
	return fmt.Sprintf("@id(%q)\n%s\n", id, test.policies)
}

func (test corpusTest) compile(t *testing.T, policies string, config []byte) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Compile(snapshot.Archive{"policies.cedar": []byte(policies), "entities.json": test.entities, "config.yaml": config})
	if err != nil {
		t.Fatalf("%s: %v", test.name, err)
	}
	return s
}

func (r corpusRequest) verdict() verdict {
	return verdict{r.Decision == "allow", sorted(r.Reasons), sorted(r.Errors)}
}

// sorted returns the ids in order: nil for none.
func sorted(ids []string) []string { return slices.Sorted(slices.Values(ids)) }

// The ways a request of the corpus goes.
const (
	throughAuthZEN   = "through AuthZEN"
	foreignAction    = "in Cedar's form: the action is not of type Action"
	foreignAttribute = "in Cedar's form: no path of config.yaml names the attribute"
)

// An asking is a request in Cedar's form and, where it can be said so, in
// AuthZEN's.
type asking struct {
	way     string
	untyped []string // paths of what is plain JSON; those of arrays end in []
	cedar   cedar.Request
	request *authzen.EvaluationRequest
}

// ask returns the requests of the case, and the config.yaml that types what
// JSON cannot say.
func (test corpusTest) ask() (config []byte, asked []asking) {
	p := plainer{types: map[string]string{}}
	subjects := map[string]bool{}
	for _, r := range test.Requests {
		subjects[quote(r.Principal.Type)] = true
		asked = append(asked, p.ask(r))
	}
	for i, a := range asked {
		if a.way == throughAuthZEN && slices.ContainsFunc(a.untyped, p.hasType) {
			asked[i].way = foreignAttribute
		}
	}
	lines := []string{"on_policy_error: skip", "subject_types: [" + strings.Join(slices.Sorted(maps.Keys(subjects)), ", ") + "]"}
	if len(p.types) > 0 {
		lines = append(lines, "attributes:")
	}
	for _, path := range slices.Sorted(maps.Keys(p.types)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", quote(path), quote(p.types[path])))
	}
	return []byte(strings.Join(lines, "\n")), asked
}

// A plainer takes the escapes of Cedar's JSON form out of contexts, and
// collects what types they gave.
type plainer struct {
	types   map[string]string // by path
	way     string            // of the current request
	untyped []string
}

// hasType reports whether a path of plain JSON has a type in some request of
// the case, or what is in an array has one.
func (p *plainer) hasType(path string) bool {
	array, ok := strings.CutSuffix(path, "[]")
	for typed := range p.types {
		if typed == path || ok && strings.HasPrefix(typed, array+".") {
			return true
		}
	}
	return false
}

func (p *plainer) ask(r corpusRequest) asking {
	var context cedar.Record
	if err := context.UnmarshalJSON(r.Context); err != nil {
		panic(err)
	}
	p.way, p.untyped = throughAuthZEN, nil
	if r.Action.Type != "Action" {
		p.way = foreignAction
	}
	plain := p.plain(r.Context, "context")
	return asking{
		way:     p.way,
		untyped: p.untyped,
		cedar:   cedar.Request{Principal: r.Principal.cedar(), Action: r.Action.cedar(), Resource: r.Resource.cedar(), Context: context},
		request: &authzen.EvaluationRequest{
			Subject:  authzen.Subject{Type: r.Principal.Type, ID: r.Principal.ID},
			Action:   authzen.Action{Name: r.Action.ID},
			Resource: authzen.Resource{Type: r.Resource.Type, ID: r.Resource.ID},
			Context:  plain,
		},
	}
}

func (u uid) cedar() cedar.EntityUID {
	return cedar.NewEntityUID(cedar.EntityType(u.Type), cedar.String(u.ID))
}

// plain returns the value at path without escapes.
func (p *plainer) plain(raw jsontext.Value, path string) jsontext.Value {
	switch raw.Kind() {
	case '[':
		return p.elements(raw, path)
	case '{':
		var escape struct {
			Entity *uid `json:"__entity"`
			Extn   *struct {
				Constructor string `json:"fn"`
				Argument    string `json:"arg"`
			} `json:"__extn"`
		}
		if err := json.Unmarshal(raw, &escape); err != nil {
			panic(err)
		}
		switch {
		case escape.Entity != nil:
			return p.typed(path, escape.Entity.Type, escape.Entity.ID)
		case escape.Extn != nil:
			return p.typed(path, strings.Replace(escape.Extn.Constructor, "ip", "ipaddr", 1), escape.Extn.Argument)
		}
		p.untyped = append(p.untyped, path)
		return p.members(raw, path)
	}
	p.untyped = append(p.untyped, path)
	return raw
}

func (p *plainer) elements(raw jsontext.Value, path string) jsontext.Value {
	var elements []jsontext.Value
	if err := json.Unmarshal(raw, &elements); err != nil {
		panic(err)
	}
	p.untyped = append(p.untyped, path+"[]")
	for i := range elements {
		elements[i] = p.plain(elements[i], path)
	}
	return must(json.Marshal(elements))
}

func (p *plainer) members(raw jsontext.Value, path string) jsontext.Value {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		panic(err)
	}
	for name := range members {
		below := path + "." + name
		if strings.Contains(name, ".") {
			below = ""
		}
		members[name] = p.plain(members[name], below)
	}
	return must(json.Marshal(members))
}

// typed notes the type of the value at path, of which text is left.
func (p *plainer) typed(path, kind, text string) jsontext.Value {
	known, ok := p.types[path]
	if path == "" || strings.HasPrefix(path, ".") || ok && known != kind || p.isRecord(path) {
		p.way = foreignAttribute
	} else {
		p.types[path] = kind
	}
	return jsontext.Value(quote(text))
}

// isRecord reports whether another request has a record with types at path, or a
// typed value where this one has a record.
func (p *plainer) isRecord(path string) bool {
	for typed := range p.types {
		if strings.HasPrefix(typed, path+".") || strings.HasPrefix(path, typed+".") {
			return true
		}
	}
	return false
}

func (a asking) decide(t *testing.T, s *snapshot.Snapshot) verdict {
	t.Helper()
	if a.way != throughAuthZEN {
		return verdictOf(evaluation.DecideCedar(s, a.cedar))
	}
	v, err := decideIn(s, a.request)
	if err != nil {
		t.Error(err)
	}
	return v
}

// decideIn decides a request. It is an error when the request is refused.
func decideIn(s *snapshot.Snapshot, r *authzen.EvaluationRequest) (verdict, error) {
	outcome, err := s.Decide(r, snapshot.Environment{})
	if err != nil {
		return verdict{}, err
	}
	if len(outcome.Errors) > 0 && outcome.Errors[0].Policy == "" {
		return verdict{}, errors.New(outcome.Errors[0].Message)
	}
	return verdictOf(outcome), nil
}
