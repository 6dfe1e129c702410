package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// An argumentMode says what becomes of arguments that do not fit the input schema
// of their tool.
type argumentMode string

const (
	// argumentsTell refuses them by a result of the tool, which a model reads and
	// corrects. It is the default.
	argumentsTell argumentMode = "tell"
	// argumentsEnforce refuses them by an error of the protocol.
	argumentsEnforce argumentMode = "enforce"
	// argumentsPass lets the server judge them. What a mapping reads of them it
	// needs as it is declared all the same.
	argumentsPass argumentMode = "pass"
)

// An argumentPolicy is how the gateway treats the arguments of calls to a server, and
// what its tools declare.
type argumentPolicy struct {
	Mode argumentMode `yaml:"arguments"`
	// Coerce makes numbers and booleans of texts where the schema wants those.
	Coerce bool `yaml:"coerce_arguments"`
	// Send has the PDP get them as context.arguments: of all calls, or of none that
	// presents no capability. Without it, the PDP gets those that a capability limits.
	Send *bool `yaml:"send_arguments"`
	// Authorization says what becomes of what tools declare of their authorization.
	Authorization authorizationMode `yaml:"tool_authorization"`
}

// An authorizationMode says what becomes of what tools declare of their authorization.
type authorizationMode string

const (
	// authorizationEnforce refuses a call to which nobody has agreed whom the tool
	// wants to. It is the default.
	authorizationEnforce authorizationMode = "enforce"
	// authorizationIgnore is as if tools declared nothing.
	authorizationIgnore authorizationMode = "ignore"
)

// check returns what the mode must be, and is not, or "".
func (m authorizationMode) check() string {
	if slices.Contains([]authorizationMode{"", authorizationEnforce, authorizationIgnore}, m) {
		return ""
	}
	return fmt.Sprintf("must be %s or %s, not %q", authorizationEnforce, authorizationIgnore, m)
}

// check returns what the mode must be, and is not, or "".
func (m argumentMode) check() string {
	if slices.Contains([]argumentMode{"", argumentsTell, argumentsEnforce, argumentsPass}, m) {
		return ""
	}
	return fmt.Sprintf("must be %s, %s or %s, not %q", argumentsTell, argumentsEnforce, argumentsPass, m)
}

// sent returns the calls whose arguments the PDP gets.
func (p argumentPolicy) sent() enforce.Arguments {
	switch {
	case p.Send == nil:
		return enforce.ArgumentsNeeded
	case *p.Send:
		return enforce.ArgumentsAlways
	}
	return enforce.ArgumentsNever
}

// argumentPolicies returns the policy of each server, by name.
func (c *Config) argumentPolicies() map[string]argumentPolicy {
	all := make(map[string]argumentPolicy)
	for i := range c.Servers {
		p := c.Servers[i].Arguments
		p.Mode = cmp.Or(p.Mode, c.Catalog.Arguments, argumentsTell)
		all[c.Servers[i].Name] = p
	}
	return all
}

// fit returns the arguments as they go to the server, nil for as they came, or what
// is wrong with them.
func (p argumentPolicy) fit(tool *catalog.Tool, arguments jsontext.Value) (jsontext.Value, error) {
	if !p.Coerce {
		if p.Mode == argumentsPass {
			return nil, nil
		}
		return nil, tool.Check(arguments)
	}
	coerced, err := tool.Coerce(arguments)
	if err != nil && p.Mode == argumentsPass {
		return nil, nil
	}
	if err != nil || bytes.Equal(coerced, arguments) {
		return nil, err
	}
	return coerced, nil
}

// invalidArguments refuses arguments, and says what to correct.
func invalidArguments(err error) error {
	refused := &enforce.Refusal{Code: wire.CodeParams, Message: err.Error(), Data: enforce.Data{Reason: enforce.ReasonArguments}}
	var invalid *catalog.ArgumentsError
	if errors.As(err, &invalid) && len(invalid.Faults) > 1 {
		refused.Advice = "All faults:\n- " + strings.Join(invalid.Faults, "\n- ") + "\n"
	}
	refused.Advice += "Correct the arguments, and call the tool again."
	return refused
}
