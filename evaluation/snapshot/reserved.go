package snapshot

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json/jsontext"
)

// Reserved members of a request's context. Policies never see the values that the request sends.
const (
	ContextSupport    = "supported_obligations" // the obligations that the PEP declares it can meet
	ContextApproval   = "approval"              // a claim; only the service can confirm it
	ContextCapability = "capability"            // a claim, too
	ContextAction     = "action"                // where policies read the action's properties

	ContextJustification = "justification" // the value "approved" is a claim as well
)

// ContextArguments is the context member with the arguments of a tool call. They differ from tool to
// tool. A schema that declares it as {} says that no policy reads them.
const ContextArguments = "arguments"

// actionType is the type of the actions without a namespace.
const actionType = "Action"

// TypeAccessRequest is the type of the resource that approvers decide on. The service supplies all
// its attributes. A schema declares the ones that policies read.
const TypeAccessRequest cedar.EntityType = "access_request"

// TypeCapability is the type of the resource of those who issue and revoke capabilities. The service
// supplies its attributes as it does those of an Access Request.
const TypeCapability cedar.EntityType = "capability"

// isSupplied reports whether the service supplies the attributes of a resource.
func isSupplied(t cedar.EntityType) bool { return t == TypeAccessRequest || t == TypeCapability }

// serviceMembers lists the context members that the service sets or removes.
var serviceMembers = []string{ContextAction, ContextApproval, ContextCapability, ContextSupport, ContextJustification}

// isReserved reports whether a name is an escape in Cedar's JSON form. Readers that ignore case would
// accept the other spellings, too.
func isReserved(name string) bool {
	return strings.HasPrefix(name, "__") && slices.Contains([]string{"__entity", "__extn", "__expr"}, strings.ToLower(name))
}

// below returns the JSON Pointer of a member of the object at path.
func below(path, member string) string {
	return string(jsontext.Pointer(path).AppendToken(member))
}

// IsClaim reports whether a member of a request's context is a statement to the service, which policies
// never see.
func IsClaim(name string) bool {
	return name == ContextSupport || name == ContextApproval || name == ContextCapability
}
