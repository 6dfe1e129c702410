package coaz

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Trust says how far the mappings count that an upstream's tools declare.
type Trust string

const (
	// DeclaredTighten asks with the default mapping and with the declared one: both
	// must be permitted. It is the default: a server can ask for more, and cannot make
	// its tool look harmless.
	DeclaredTighten Trust = "declared_tighten"
	// Declared asks with the declared mapping instead of the default one, as the
	// binding says.
	Declared Trust = "declared"
	// DefaultOnly ignores declared mappings.
	DefaultOnly Trust = "default_only"
)

// A Profile is the default question about a tools/call.
type Profile string

const (
	// ProfileMCP uses the binding's default mappings, with resources whose ids begin
	// with the name of the server: tools/call on tool::SERVER:NAME. It is the default:
	// a policy about a tool never covers a tool of the same name at another server.
	ProfileMCP Profile = "mcp"
	// ProfileCOAZ uses the binding's default mappings unchanged. They do not name the
	// server: tools/call on tool::NAME.
	ProfileCOAZ Profile = "coaz"
	// ProfileToolInvoke is ProfileMCP, except that a tool call is tool.invoke, with
	// purpose and param_summary, and that claims describe the subject of every
	// question.
	ProfileToolInvoke Profile = "tool.invoke"
)

// Annotations says whether the annotations of an upstream's tools count.
type Annotations string

const (
	// AnnotationsIgnored ignores them, because a server may claim anything. It is the
	// default.
	AnnotationsIgnored Annotations = "ignored"
	// AnnotationsTrusted makes them the label impact of tools without such a label of
	// the operator.
	AnnotationsTrusted Annotations = "trusted"
)

// An Upstream configures the mapping of the calls to a server. The zero Upstream
// trusts the server least.
type Upstream struct {
	Trust   Trust   `yaml:"mapping_trust"`
	Profile Profile `yaml:"mapping_profile"`
	// Annotations says whether readOnlyHint and destructiveHint count.
	Annotations Annotations `yaml:"annotations"`
	// Resource is the id of the server in questions. "" is the audience of the token.
	Resource string `yaml:"resource"`
	// SubjectOverride lets declared mappings name another subject than the token does.
	// The PDP then sees subject_unverified.
	SubjectOverride bool `yaml:"allow_subject_override"`
	// CurrentOnly ignores the older dialects.
	CurrentOnly bool `yaml:"current_dialect_only"`
	// Extra are methods that the binding denies and about which the gateway asks, see
	// [Extras]. Nil means all of them, and none in ProfileCOAZ.
	Extra []string `yaml:"extra_methods"`
	// Actor configures the subject of the tool.invoke profile.
	Actor Actor `yaml:"actor"`
	// Tools are the operator's settings of tools, by name.
	Tools map[string]Tool `yaml:"tools"`
}

// A Tool has the operator's settings of a tool.
type Tool struct {
	// Labels are properties of the resource, except in ProfileCOAZ.
	Labels map[string]string `yaml:"labels"`
	// Mapping is a mapping of the current draft, as JSON. It replaces all others.
	Mapping string `yaml:"mapping"`
}

// An Actor names the claims with which the tool.invoke profile describes subjects.
type Actor struct {
	Type       string `yaml:"type"`       // of every subject; "" is agent
	TypeClaim  string `yaml:"type_claim"` // has the type, where the token has it
	Roles      string `yaml:"roles_claim"`
	Department string `yaml:"department_claim"`
}

const maxCache = 1024 // definitions

// upstream is a compiled Upstream.
type upstream struct {
	Upstream
	*compiler
	pinned map[string]*mapping // the operator's mappings, by tool

	mu    sync.Mutex
	known map[definedTool]func() (*mapping, error)
}

func newUpstream(c *compiler, config Upstream) (*upstream, error) {
	u := &upstream{Upstream: config, compiler: c, pinned: make(map[string]*mapping)}
	u.Trust, u.Profile, u.Annotations = cmp.Or(u.Trust, DeclaredTighten), cmp.Or(u.Profile, ProfileMCP), cmp.Or(u.Annotations, AnnotationsIgnored)
	if u.Extra == nil && u.Profile != ProfileCOAZ {
		u.Extra = Extras()
	}
	var errs []error
	fault := func(reason string, path ...string) {
		errs = append(errs, &yamldoc.SettingError{Path: path, Reason: reason})
	}
	if !slices.Contains([]Trust{DeclaredTighten, Declared, DefaultOnly}, u.Trust) {
		fault(fmt.Sprintf("must be %s, %s or %s, not %q", DeclaredTighten, Declared, DefaultOnly, u.Trust), "mapping_trust")
	}
	if !slices.Contains([]Profile{ProfileMCP, ProfileCOAZ, ProfileToolInvoke}, u.Profile) {
		fault(fmt.Sprintf("must be %s, %s or %s, not %q", ProfileMCP, ProfileToolInvoke, ProfileCOAZ, u.Profile), "mapping_profile")
	}
	if !slices.Contains([]Annotations{AnnotationsIgnored, AnnotationsTrusted}, u.Annotations) {
		fault(fmt.Sprintf("must be %s or %s, not %q", AnnotationsIgnored, AnnotationsTrusted, u.Annotations), "annotations")
	}
	for i, method := range u.Extra {
		if _, ok := extras[method]; !ok {
			fault(fmt.Sprintf("must be one of %s, not %q", strings.Join(Extras(), ", "), method), "extra_methods", strconv.Itoa(i))
		}
	}
	for name, tool := range u.Tools {
		if tool.Mapping == "" {
			continue
		}
		m, err := u.finish(Operator, []byte(tool.Mapping), c.enveloped)
		if err != nil {
			fault(strings.TrimPrefix(err.Error(), "mapping: "), "tools", name, "mapping")
		}
		u.pinned[name] = m
	}
	return u, errors.Join(errs...)
}

// finish compiles a mapping of the operator or of a server.
func (u *upstream) finish(d Dialect, text jsontext.Value, compile func(jsontext.Value) (*mapping, error)) (*mapping, error) {
	m, err := compile(text)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(text)
	m.dialect, m.digest = d, "sha256:"+hex.EncodeToString(digest[:])
	m.anchor()
	return m, nil
}

// A definedTool is the key of what a definition declares.
type definedTool struct {
	name       string
	definition [sha256.Size]byte
}

// compiled returns the mapping that the definition of a tool declares, or nil. It
// caches compiled mappings, up to a limit.
func (u *upstream) compiled(name string, definition jsontext.Value) (*mapping, error) {
	key := definedTool{name, sha256.Sum256(definition)}
	u.mu.Lock()
	compile, ok := u.known[key]
	if !ok {
		if u.known == nil || len(u.known) >= maxCache {
			u.known = make(map[definedTool]func() (*mapping, error))
		}
		definition = definition.Clone()
		compile = sync.OnceValues(func() (*mapping, error) { return u.declaration(name, definition) })
		u.known[key] = compile
	}
	u.mu.Unlock()
	return compile()
}

// declaration compiles the mapping that the definition of a tool declares in any
// dialect, or returns nil.
func (u *upstream) declaration(name string, definition jsontext.Value) (*mapping, error) {
	d, err := declared(definition)
	if err == nil && d.tool != name {
		return nil, unmapped("the definition is not that of the tool")
	}
	if err != nil || d.dialect == Default || u.CurrentOnly && d.dialect.Older() {
		return nil, err
	}
	compile := map[Dialect]func(jsontext.Value) (*mapping, error){
		Authzen: u.enveloped, Bare: u.bare, Sep: d.objects(u.compiler), Arrays: d.arrays(u.compiler),
	}
	if u.CurrentOnly {
		d.dialect = Authzen
	}
	m, err := u.finish(d.dialect, d.mapping, compile[d.dialect])
	if err != nil {
		m = &mapping{dialect: d.dialect} // the caller is answered in it all the same
	}
	return m, err
}

// A declaration is a mapping in the definition of a tool.
type declaration struct {
	tool    string
	dialect Dialect
	mapping jsontext.Value
}

// declared returns the dialect of a tool's definition. The current one has precedence;
// x-coaz-mapping counts only with coaz: true.
func declared(definition jsontext.Value) (declaration, error) {
	var tool struct {
		Name        string         `json:"name"`
		COAZ        jsontext.Value `json:"coaz"`
		InputSchema jsontext.Value `json:"inputSchema"`
	}
	if err := json.Unmarshal(definition, &tool); err != nil {
		return declaration{}, &MappingError{"the definition of the tool cannot be read", err}
	}
	out := declaration{tool: tool.Name, dialect: Default}
	schema := members{}
	if tool.InputSchema.Kind() == '{' {
		var err error
		if schema, err = readMembers(tool.InputSchema); err != nil {
			return out, &MappingError{"the input schema of the tool cannot be read", err}
		}
	}
	current, has := schema["x-authzen-mapping"]
	older := schema["x-coaz-mapping"]
	switch {
	case has:
		out.dialect, out.mapping = Authzen, current
		if isBare(current) {
			out.dialect = Bare
		}
	case string(tool.COAZ) == "true":
		out.dialect, out.mapping = Sep, older
		if isArrays(older) {
			out.dialect = Arrays
		}
	}
	return out, nil
}
