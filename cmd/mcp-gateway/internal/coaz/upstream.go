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

// A Trust says what the mappings that an upstream's tools declare are good for.
type Trust string

const (
	// DeclaredTighten asks by the default mapping and by the declared one: both
	// must be permitted. It is the default: a server can ask for more, and
	// cannot turn its tool into something harmless.
	DeclaredTighten Trust = "declared_tighten"
	// Declared asks by the declared mapping in place of the default one, as the
	// binding has it.
	Declared Trust = "declared"
	// DefaultOnly does not read declared mappings.
	DefaultOnly Trust = "default_only"
)

// A Profile says what a tools/call asks by default.
type Profile string

const (
	// ProfileMCP asks by the binding's default mappings, of resources whose ids
	// begin with the name of the server: tools/call on tool::SERVER:NAME. It is
	// the default: a policy about a tool is never about another server's tool of
	// the same name.
	ProfileMCP Profile = "mcp"
	// ProfileCOAZ asks by the binding's default mappings as they are, which do not
	// name the server: tools/call on tool::NAME.
	ProfileCOAZ Profile = "coaz"
	// ProfileToolInvoke is ProfileMCP, but that a call of a tool is tool.invoke,
	// with purpose and param_summary, and that the subject of every question is
	// described by its claims.
	ProfileToolInvoke Profile = "tool.invoke"
)

// Annotations say what the annotations of an upstream's tools are good for.
type Annotations string

const (
	// AnnotationsIgnored does not read them: a server may claim anything of its
	// tools. It is the default.
	AnnotationsIgnored Annotations = "ignored"
	// AnnotationsTrusted makes them the label impact of tools for which the
	// operator has none.
	AnnotationsTrusted Annotations = "trusted"
)

// An Upstream says how calls to a server are mapped. The zero Upstream is one
// that is not trusted much.
type Upstream struct {
	Trust   Trust   `yaml:"mapping_trust"`
	Profile Profile `yaml:"mapping_profile"`
	// Annotations says what readOnlyHint and destructiveHint are good for.
	Annotations Annotations `yaml:"annotations"`
	// Resource is what the server itself is called in questions. "" is the
	// audience of the token.
	Resource string `yaml:"resource"`
	// SubjectOverride lets declared mappings name another subject than the
	// token does, which the PDP then sees marked subject_unverified.
	SubjectOverride bool `yaml:"allow_subject_override"`
	// CurrentOnly does not read the older dialects.
	CurrentOnly bool `yaml:"current_dialect_only"`
	// Extra are methods to ask about that the binding denies, see [Extras]. Nil is
	// all of them, and in ProfileCOAZ none.
	Extra []string `yaml:"extra_methods"`
	// Actor is how the tool.invoke profile describes who acts.
	Actor Actor `yaml:"actor"`
	// Tools is what the operator says of tools, by their names.
	Tools map[string]Tool `yaml:"tools"`
}

// A Tool is what the operator says of one.
type Tool struct {
	// Labels are the properties of the resource, but in ProfileCOAZ.
	Labels map[string]string `yaml:"labels"`
	// Mapping, JSON of the current draft, is asked by in place of all others.
	Mapping string `yaml:"mapping"`
}

// An Actor names the claims that the tool.invoke profile describes subjects by.
type Actor struct {
	Type       string `yaml:"type"`       // of every subject; "" is agent
	TypeClaim  string `yaml:"type_claim"` // has the type, where the token has it
	Roles      string `yaml:"roles_claim"`
	Department string `yaml:"department_claim"`
}

const maxCache = 1024 // definitions

// upstream is one that is compiled.
type upstream struct {
	Upstream
	*compiler
	pinned map[string]*mapping // the operator's mappings, by tool

	mu    sync.Mutex
	known map[[sha256.Size]byte]func() (*mapping, error) // by definition
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

// finish compiles a mapping that is not the gateway's own.
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

// compiled returns the mapping that a definition declares, or nil. A definition
// is compiled once, as long as there are not too many.
func (u *upstream) compiled(definition jsontext.Value) (*mapping, error) {
	key := sha256.Sum256(definition)
	u.mu.Lock()
	compile, ok := u.known[key]
	if !ok {
		if u.known == nil || len(u.known) >= maxCache {
			u.known = make(map[[sha256.Size]byte]func() (*mapping, error))
		}
		definition = definition.Clone()
		compile = sync.OnceValues(func() (*mapping, error) { return u.declaration(definition) })
		u.known[key] = compile
	}
	u.mu.Unlock()
	return compile()
}

// declaration compiles the mapping that a definition declares, in whatever
// dialect. It is nil if there is none.
func (u *upstream) declaration(definition jsontext.Value) (*mapping, error) {
	d, err := declared(definition)
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

// A declaration is the mapping in the definition of a tool.
type declaration struct {
	tool    string
	dialect Dialect
	mapping jsontext.Value
}

// declared finds out the dialect of a tool's definition. The current one goes
// before the older; x-coaz-mapping counts only beside coaz: true.
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
