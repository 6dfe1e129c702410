package conformance_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/process"
)

const module = "github.com/policy-service/policy-service/"

// A wall says what a package may see of the module.
type wall struct {
	pkg   string
	floor int
	sees  []string
	why   string
}

// walls are the packages of the module, from the ground up.
var walls = []wall{
	{"schemas", 1, nil, "schemas are data for anyone, also for programs that are not ours"},
	{"schemas/authzen", 1, nil, "the vocabulary is what all others speak; it depends on none of them"},
	{"schemas/jsonobject", 1, nil, "members of an object are changed in one way, whoever changes them"},
	{"schemas/yamldoc", 1, nil, "what people write in YAML is read in one way, whichever program reads it"},
	{"schemas/schematest", 1, []string{"schemas"}, "tests of any package may hold an answer against its schema"},
	{"schemas/prooftest", 1, []string{"schemas/authzen"}, "tests of any package may have a holder with a key"},
	{"policies", 1, nil, "policies are data; what they mean is the engine's to say"},

	{"evaluation/durable", 1, nil, "what is on disk is put there in one way, whoever keeps it"},

	{"obligations", 2, []string{"schemas/authzen", "schemas/jsonobject", "obligations/result"}, "what a policy asks for is read without knowing how policies are evaluated"},
	{"obligations/result", 2, nil, "a policy store and a PEP read the same obligation the same way"},
	{"obligations/plain", 2, nil, "what people decide by is made readable in one place, for whoever shows it"},
	{"obligations/outbox", 2, nil, "a transition and its log entry are committed in one way, whatever changes"},
	{"obligations/recordfile", 2, nil, "files of records are opened and listed in one way, whatever they keep"},
	{"obligations/approval", 2, []string{"obligations/plain", "obligations/outbox", "obligations/recordfile", "schemas/jsonobject", "schemas/authzen"}, "who may approve and what is logged come in as functions, so that an approval cannot decide"},
	{"obligations/capability", 2, []string{"obligations/outbox", "obligations/recordfile", "schemas/jsonobject", "schemas/authzen"}, "a capability is a fact that policies ask for; the store must not be able to ask a policy"},

	{"evaluation/decisionlog", 3, []string{"evaluation/durable", "schemas/authzen", "schemas/yamldoc", "obligations/plain"}, "the log keeps bytes and outlives every engine; it must not need one to be verified"},
	{"evaluation/faults", 1, []string{"schemas/yamldoc"}, "what is wrong in a store is said the same way by every room"},
	{"evaluation/cedarsyntax", 2, []string{"evaluation/faults"}, "the text and the syntax of Cedar, without entities or settings"},
	{"evaluation/accesspolicy", 2, []string{"obligations/plain", "evaluation/faults"}, "an access document becomes Cedar without entities or settings; what it names comes in as a function"},
	{"evaluation/snapshot", 3, []string{"schemas/authzen", "schemas/yamldoc", "obligations", "evaluation/accesspolicy", "evaluation/decisionlog", "evaluation/faults", "evaluation/cedarsyntax"}, "the pure function: it reads no clock, no file and no network"},
	{"evaluation/explain", 3, []string{"schemas/authzen", "evaluation/decisionlog", "evaluation/faults", "evaluation/cedarsyntax", "evaluation/snapshot"}, "it says how a snapshot decides, and changes nothing"},
	{"evaluation/lint", 3, []string{"schemas/authzen", "schemas/yamldoc", "evaluation/faults", "evaluation/cedarsyntax", "evaluation/snapshot"}, "it warns of what a snapshot permits to be written"},
	{"evaluation/replay", 3, []string{"obligations/plain", "schemas/authzen", "evaluation/decisionlog", "evaluation/explain", "evaluation/snapshot"}, "it decides again what the log has"},
	{"evaluation/revisions", 3, []string{"evaluation/explain", "evaluation/snapshot"}, "it lists what a snapshot has, and changes nothing"},
	{"evaluation", 3, []string{"schemas/authzen", "evaluation/decisionlog", "evaluation/faults", "evaluation/replay", "evaluation/snapshot"}, "a decision is made of these and recorded; no network, no directory"},
	{"evaluation/policystore", 3, []string{"schemas/yamldoc", "evaluation/faults", "evaluation/snapshot"}, "a directory becomes an archive; what is right in it the engine says"},
	{"evaluation/policytest", 3, []string{"schemas/authzen", "schemas/yamldoc", "evaluation/cedarsyntax", "evaluation/explain", "evaluation/faults", "evaluation/replay", "evaluation/snapshot"}, "a policy test is a snapshot, a request and a wanted decision, and nothing that runs"},

	{"pdp/client", 4, []string{"schemas/jsonobject", "schemas/authzen"}, "a PEP imports it and must not import a PDP with it"},
	{"pdp/jwks/jwkstest", 4, nil, "tests of any package may have an issuer of tokens"},
	{"pdp/jwks", 4, nil, "whoever verifies tokens reads an issuer's keys alike, a gateway without a PDP, too"},
	{"pdp/filereload", 4, nil, "credentials that are replaced are followed in one way, by the PDP and a gateway before it"},
	{"pdp/callers", 4, []string{"pdp/jwks", "schemas/authzen", "schemas/yamldoc"}, "credentials are verified in one place, for the PDP and a gateway before it, without a router and without policies"},
	{"pdp/webhook", 4, []string{"pdp/jwks"}, "URLs of others are called in one way, whoever names them"},
	{"pdp/notify/notifytest", 4, nil, "tests of any package may have a server of mail"},
	{"pdp/notify", 4, []string{"obligations/approval", "obligations/plain", "pdp/jwks", "pdp/webhook", "schemas/authzen", "schemas/yamldoc"}, "a message is sent in one way, whoever gets it; to whom and about what comes in as data"},
	{"pdp/admission", 4, nil, "what runs under overload is decided without a router, a request or a policy"},
	{"pdp/rates", 4, nil, "what is counted does not depend on what is decided"},
	{"pdp/console", 4, []string{"evaluation/decisionlog", "pdp/callers", "pdp/jwks", "schemas/authzen", "schemas/yamldoc", "obligations/approval", "obligations/plain"}, "pages for people are made from answers of the admin API, which comes in as a handler"},
	{"pdp", 4, []string{
		"pdp/admission", "pdp/console", "pdp/filereload", "pdp/notify", "pdp/rates", "pdp/webhook",
		"pdp/callers", "pdp/jwks", "schemas", "schemas/authzen", "schemas/jsonobject", "schemas/yamldoc", "policies", "obligations", "obligations/approval", "obligations/capability", "obligations/plain", "evaluation", "evaluation/decisionlog", "evaluation/policystore", "evaluation/policytest", "evaluation/explain", "evaluation/faults", "evaluation/lint", "evaluation/replay", "evaluation/revisions", "evaluation/snapshot",
	}, "everything is joined here; it is no client of itself"},

	{"cmd/policy-service", 5, []string{
		"cmd/internal/environment", "cmd/internal/telemetry", "cmd/internal/tuning", "schemas", "schemas/authzen", "schemas/yamldoc", "policies", "obligations", "obligations/approval", "obligations/capability", "obligations/plain", "evaluation", "evaluation/accesspolicy", "evaluation/decisionlog", "evaluation/durable", "evaluation/policystore", "evaluation/policytest", "pdp", "pdp/notify", "pdp/callers", "pdp/client", "pdp/console", "evaluation/explain", "evaluation/faults", "evaluation/lint", "evaluation/replay", "evaluation/snapshot",
	}, "a command may use all there is"},
	{"cmd/internal/environment", 5, []string{"schemas/yamldoc"}, "both programs refuse variables that name nothing, in one way"},
	{"cmd/internal/tuning", 5, nil, "both programs serve with the same runtime"},
	{"cmd/internal/telemetry", 5, []string{"cmd/internal/environment", "schemas/yamldoc"}, "both programs follow the variables of OpenTelemetry, in one way"},
	{"cmd/mcp-gateway", 5, []string{
		"cmd/internal/environment", "cmd/internal/tuning", "schemas/yamldoc", "obligations/plain", "cmd/mcp-gateway/internal/catalog", "cmd/mcp-gateway/internal/gateway", "cmd/mcp-gateway/internal/identity", "cmd/mcp-gateway/internal/observation", "cmd/mcp-gateway/internal/setup",
	}, "it has the flags and the configuration file; what a gateway does, the component does"},
	{"cmd/mcp-gateway/internal/gateway", 5, []string{
		"cmd/internal/telemetry", "schemas/jsonobject", "schemas/authzen", "schemas/yamldoc", "pdp/client", "pdp/filereload", "pdp/jwks", "cmd/mcp-gateway/internal/access", "cmd/mcp-gateway/internal/approval", "cmd/mcp-gateway/internal/audit", "cmd/mcp-gateway/internal/calllimit", "cmd/mcp-gateway/internal/consent",
		"cmd/mcp-gateway/internal/catalog", "cmd/mcp-gateway/internal/coaz", "cmd/mcp-gateway/internal/credential", "cmd/mcp-gateway/internal/endpoint", "cmd/mcp-gateway/internal/enforce", "cmd/mcp-gateway/internal/union",
		"cmd/mcp-gateway/internal/labels", "cmd/mcp-gateway/internal/identity", "cmd/mcp-gateway/internal/observation", "cmd/mcp-gateway/internal/process", "cmd/mcp-gateway/internal/proxy", "cmd/mcp-gateway/internal/seal", "cmd/mcp-gateway/internal/tasks",
		"cmd/mcp-gateway/internal/wire", "obligations/plain",
	}, "it joins the parts of a gateway, and is a PEP like any other: what a PDP is made of it does not see"},
	{"cmd/log-parquet", 5, []string{"evaluation/decisionlog"}, "it reads lines of the log, and nothing else of the service"},
	{"cmd/verify-log", 5, nil, "who verifies the log must not need the program that wrote it"},
	{"cmd/mcp-gateway/internal/wire", 5, []string{"schemas/jsonobject", "cmd/mcp-gateway/internal/number"}, "what a message is does not depend on who may send it"},
	{"cmd/mcp-gateway/internal/wire/wiretest", 5, nil, "other parsers are asked without asking ours"},
	{"cmd/mcp-gateway/internal/clientconfig", 5, []string{"schemas/yamldoc"}, "a client's file is edited without knowing for what"},
	{"cmd/mcp-gateway/internal/setup", 5, []string{"cmd/internal/environment", "cmd/mcp-gateway/internal/clientconfig", "evaluation/durable", "obligations/plain", "pdp/jwks"}, "what is set up is checked by a function that comes in"},
	{"cmd/mcp-gateway/internal/observation", 5, []string{"cmd/mcp-gateway/internal/boltfile", "obligations/plain"}, "calls are counted whatever was decided on them"},
	{"cmd/mcp-gateway/internal/boltfile", 5, nil, "a database is shared whatever is in it"},
	{"cmd/mcp-gateway/internal/seal", 5, nil, "a seal is good for whatever is put under it"},
	{"cmd/mcp-gateway/internal/enforce/enforcetest", 5, []string{"cmd/mcp-gateway/internal/enforce", "cmd/mcp-gateway/internal/wire"}, "tests of any package of the gateway may have a gate"},
	{"cmd/mcp-gateway/internal/labels", 5, []string{"cmd/mcp-gateway/internal/boltfile"}, "who has which labels does not depend on what gives them"},
	{"cmd/mcp-gateway/internal/results", 5, []string{"schemas/jsonobject", "obligations/result", "cmd/mcp-gateway/internal/wire"}, "what becomes of a response depends on the obligations and the response alone"},
	{"cmd/mcp-gateway/internal/enforce", 5, []string{"obligations/result", "cmd/mcp-gateway/internal/results", "schemas/jsonobject", "schemas/authzen", "pdp/client", "cmd/mcp-gateway/internal/wire", "obligations/plain"}, "it decides on messages, and neither carries them nor knows how"},
	{"cmd/mcp-gateway/internal/approval", 5, []string{"cmd/mcp-gateway/internal/results", "schemas/jsonobject", "schemas/authzen", "pdp/client", "cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/seal", "obligations/plain", "cmd/mcp-gateway/internal/enforce", "cmd/mcp-gateway/internal/boltfile"}, "a call waits here however it came; that it may go on the gate says"},
	{"cmd/mcp-gateway/internal/access", 5, []string{"schemas/jsonobject", "schemas/authzen", "schemas/yamldoc", "pdp/client", "cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/enforce", "cmd/mcp-gateway/internal/calllimit"}, "what a caller holds the PDP knows; who the caller is comes in as a function"},
	{"cmd/mcp-gateway/internal/endpoint", 5, []string{"cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/enforce"}, "clients find the same way in at every endpoint, whatever is behind it"},
	{"cmd/mcp-gateway/internal/proxy", 5, []string{"cmd/mcp-gateway/internal/child", "cmd/mcp-gateway/internal/results", "cmd/mcp-gateway/internal/endpoint", "cmd/mcp-gateway/internal/lines", "cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/seal", "cmd/mcp-gateway/internal/enforce", "obligations/plain"}, "it carries messages, and asks one gate about each"},
	{"cmd/mcp-gateway/internal/union", 5, []string{"schemas/jsonobject", "obligations/plain", "cmd/mcp-gateway/internal/endpoint", "cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/seal", "cmd/mcp-gateway/internal/enforce"}, "it gives names and decides nothing: what is behind it are the endpoints of the servers"},
	{"cmd/mcp-gateway/internal/tasks", 5, []string{"cmd/mcp-gateway/internal/results", "schemas/jsonobject", "cmd/mcp-gateway/internal/wire", "cmd/mcp-gateway/internal/enforce"}, "whose a task is does not depend on who may do what with it"},
	{"cmd/mcp-gateway/internal/calllimit", 5, nil, "what is counted does not depend on what counts it"},
	{"cmd/mcp-gateway/internal/number", 5, nil, "which numbers are the same for everybody is said once"},
	{"cmd/mcp-gateway/internal/coaz", 5, []string{"schemas/jsonobject", "schemas/authzen", "schemas/yamldoc", "cmd/mcp-gateway/internal/number", "obligations/plain"}, "a call becomes questions, and nobody is asked"},
	{"cmd/mcp-gateway/internal/identity", 5, []string{"schemas/authzen", "schemas/yamldoc", "pdp/callers", "pdp/jwks", "cmd/mcp-gateway/internal/seal"}, "who calls is told by credentials alone, before anything is known of the call"},
	{"cmd/mcp-gateway/internal/lines", 5, []string{"cmd/mcp-gateway/internal/wire"}, "messages on standard input and output are read in one way, whoever runs the server"},
	{"cmd/mcp-gateway/internal/child", 5, nil, "a program is ended without knowing what it says"},
	{"cmd/mcp-gateway/internal/process", 5, []string{"cmd/mcp-gateway/internal/child", "schemas/jsonobject", "obligations/plain", "cmd/mcp-gateway/internal/endpoint", "cmd/mcp-gateway/internal/lines", "cmd/mcp-gateway/internal/wire"}, "a server is run without knowing what is decided on its calls"},
	{"cmd/mcp-gateway/internal/credential", 5, []string{"schemas/yamldoc", "pdp/jwks", "obligations/plain", "cmd/mcp-gateway/internal/boltfile", "cmd/mcp-gateway/internal/seal"}, "a token is for a caller and a server, whatever is called there"},
	{"cmd/mcp-gateway/internal/consent", 5, []string{"obligations/plain", "cmd/mcp-gateway/internal/credential", "cmd/mcp-gateway/internal/seal"}, "a person grants whatever is called afterwards"},
	{"cmd/mcp-gateway/internal/catalog", 5, []string{"schemas/jsonobject", "schemas/authzen", "cmd/mcp-gateway/internal/number", "cmd/mcp-gateway/internal/boltfile"}, "whom a list is filtered for, and what to ask, comes in as functions: it judges definitions, not calls"},
	{"cmd/mcp-gateway/internal/audit", 5, []string{"evaluation/decisionlog", "schemas/authzen"}, "a call's fate is kept in the one tamper-evident log, without knowing how it was decided"},
	{"conformance/external", 5, nil, "a test of any package may need a program of others"},
	{"conformance/collector", 5, nil, "a test of any package may collect telemetry"},
	{"conformance/console", 5, nil, "it has tests alone: pages are asked by a browser"},
	{"conformance/process", 5, nil, "a test of any package may run the program"},
	{"conformance/docpage", 5, nil, "a test of any package may write the part of a page that its package knows"},
	{"docs/examples/mcpx-room", 5, []string{"schemas/authzen", "schemas/jsonobject", "schemas/yamldoc", "pdp/client"}, "it shows how a PEP is built on the client alone"},
	{"conformance", 5, []string{"schemas/authzen", "policies", "pdp/client"}, "a black box is asked over HTTP"},
	{"conformance/benchmark", 5, nil, "servers are measured from outside, ours like all others"},
}

// A tenancy says which packages of the module may import from elsewhere.
type tenancy struct {
	path  string
	users []string
	why   string
}

var tenancies = []tenancy{
	{"github.com/cedar-policy/cedar-go", []string{"evaluation/accesspolicy", "evaluation/cedarsyntax", "evaluation/snapshot", "evaluation/explain", "evaluation/lint", "conformance/benchmark"}, "a request changes form once; nobody else knows Cedar, but what the service is measured beside"},
	{"go.etcd.io/bbolt", []string{
		"evaluation/decisionlog", "obligations/outbox", "obligations/recordfile", "obligations/approval", "obligations/capability", "cmd/mcp-gateway/internal/approval", "cmd/mcp-gateway/internal/catalog",
		"cmd/mcp-gateway/internal/tasks", "cmd/mcp-gateway/internal/boltfile", "cmd/mcp-gateway/internal/credential", "cmd/mcp-gateway/internal/labels", "cmd/mcp-gateway/internal/observation",
		"docs/examples/mcpx-room",
	}, "what is kept on disk is kept by few packages"},
	{"golang.org/x/mod/sumdb", []string{"evaluation/decisionlog"}, "proofs about the log come from the log"},
	{"github.com/fsnotify/fsnotify", []string{"evaluation/policystore"}, "only the policy store watches a directory"},
	{"github.com/dlclark/regexp2", []string{"cmd/mcp-gateway/internal/catalog"}, "patterns that may take long are matched where a call can be refused for it"},
	{"github.com/labstack/echo", []string{"pdp", "conformance/benchmark"}, "the router is a matter of the server, and of what it is measured beside"},
	{"github.com/parquet-go/parquet-go", []string{"cmd/log-parquet"}, "a service that answers does not carry what writes tables"},
	{"cel.dev/cel-go", []string{"cmd/mcp-gateway/internal/coaz"}, "a stranger's expressions are run in one place, within bounds"},
	{"github.com/wneessen/go-mail", []string{"pdp/notify"}, "mail is sent in one place"},
	{"github.com/coder/websocket", []string{"docs/examples/mcpx-room"}, "neither program speaks WebSocket"},
	{"github.com/tailscale/hujson", []string{"cmd/mcp-gateway/internal/clientconfig"}, "only files of others have comments in JSON"},
	{"github.com/sony/gobreaker", []string{"cmd/mcp-gateway/internal/enforce"}, "who asks the PDP knows when not to"},
	{"html/template", []string{"pdp/console", "cmd/mcp-gateway/internal/consent", "pdp/jwks/jwkstest"}, "pages are made where people are"},
	{"golang.org/x/oauth2", []string{"cmd/mcp-gateway/internal/credential", "pdp/console"}, "tokens are requested where a program or a person signs in"},
	{"znkr.io/diff", []string{"evaluation/revisions"}, "texts are compared in one place, so that pages and programs see the same differences"},
	{"github.com/coreos/go-oidc", []string{"pdp/console"}, "people sign in in one place"},
	{"net/http", []string{
		"pdp", "pdp/callers", "pdp/client", "pdp/console", "pdp/jwks", "pdp/jwks/jwkstest", "pdp/webhook", "pdp/notify", "pdp/notify/notifytest", "cmd/policy-service", "cmd/mcp-gateway/internal/audit", "cmd/mcp-gateway/internal/consent", "cmd/mcp-gateway/internal/credential", "cmd/mcp-gateway/internal/gateway", "cmd/mcp-gateway/internal/identity",
		"cmd/mcp-gateway/internal/enforce", "cmd/mcp-gateway/internal/endpoint", "cmd/mcp-gateway/internal/process", "cmd/mcp-gateway/internal/proxy", "cmd/mcp-gateway/internal/union", "conformance", "conformance/benchmark", "conformance/collector", "docs/examples/mcpx-room",
	}, "below the top two floors nothing knows of HTTP"},
	{"github.com/go-jose/go-jose", []string{"pdp/callers", "pdp/jwks", "pdp/jwks/jwkstest", "obligations/approval", "obligations/capability", "cmd/mcp-gateway/internal/credential", "cmd/mcp-gateway/internal/identity"}, "signatures are made and verified by few packages"},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/policy-service", "cmd/internal/telemetry"}, "where telemetry goes is the operator's choice; the rest uses the API"},
	{"go.opentelemetry.io/otel/exporters", []string{"cmd/policy-service", "cmd/internal/telemetry"}, "where telemetry goes is the operator's choice; the rest uses the API"},
}

func TestWalls(t *testing.T) {
	for _, fault := range trespasses(imports(t)) {
		t.Error(fault)
	}
}

// A pkg is a package of the module and what it imports outside its tests.
type pkg struct {
	path    string
	imports []string
}

func imports(t *testing.T) []pkg {
	t.Helper()
	if err := process.Look(); err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all = append(all, pkg{fields[0], fields[1:]})
	}
	return all
}

// trespasses lists every import that goes through a wall.
func trespasses(all []pkg) []string {
	var faults []string
	for _, p := range all {
		name := strings.TrimPrefix(p.path, module)
		i := slices.IndexFunc(walls, func(w wall) bool { return w.pkg == name })
		if i < 0 {
			faults = append(faults, fmt.Sprintf("%s has no walls: say in this table what it may import, and why", name))
			continue
		}
		for _, imported := range p.imports {
			if fault := walls[i].trespass(imported); fault != "" {
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

// trespass says what is wrong with an import, or "".
func (w wall) trespass(imported string) string {
	if below, ok := strings.CutPrefix(imported, module); ok {
		if !slices.Contains(w.sees, below) {
			return fmt.Sprintf("%s imports %s: %s", w.pkg, below, w.why)
		}
		return ""
	}
	for _, tenancy := range tenancies {
		if tenancy.has(imported) && !slices.Contains(tenancy.users, w.pkg) {
			return fmt.Sprintf("%s imports %s: %s", w.pkg, imported, tenancy.why)
		}
	}
	return ""
}

func (t tenancy) has(imported string) bool {
	return imported == t.path || strings.HasPrefix(imported, t.path+"/")
}

// No wall lets an import run up.
func TestWallsStand(t *testing.T) {
	floors := make(map[string]int)
	for _, w := range walls {
		floors[w.pkg] = w.floor
	}
	for _, w := range walls {
		for _, seen := range w.sees {
			if floors[seen] == 0 || floors[seen] > w.floor {
				t.Errorf("%s on floor %d sees %s on floor %d", w.pkg, w.floor, seen, floors[seen])
			}
		}
	}
}

// An import that goes through a wall is seen.
func TestTrespassesAreSeen(t *testing.T) {
	got := trespasses([]pkg{
		{module + "schemas/authzen", []string{"fmt", "github.com/go-json-experiment/json"}},
		{module + "obligations", []string{module + "schemas/authzen", module + "pdp"}},
		{module + "evaluation/policystore", []string{"github.com/cedar-policy/cedar-go/types"}},
		{module + "evaluation", []string{"net/http", "net/httptrap"}},
		{module + "pdp", []string{module + "pdp/client", "github.com/labstack/echo/v4", "go.opentelemetry.io/otel/sdk/metric"}},
		{module + "helpers", []string{"fmt"}},
	})
	want := []string{
		"obligations imports pdp: what a policy asks for is read without knowing how policies are evaluated",
		"evaluation/policystore imports github.com/cedar-policy/cedar-go/types: a request changes form once; nobody else knows Cedar, but what the service is measured beside",
		"evaluation imports net/http: below the top two floors nothing knows of HTTP",
		"pdp imports pdp/client: everything is joined here; it is no client of itself",
		"pdp imports go.opentelemetry.io/otel/sdk/metric: where telemetry goes is the operator's choice; the rest uses the API",
		"helpers has no walls: say in this table what it may import, and why",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trespasses (-want +got):\n%s", diff)
	}
}
