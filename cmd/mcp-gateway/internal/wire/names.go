package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// names are the members that the schemas of MCP 2025-03-26 to 2026-07-28 and the
// tasks extension (SEP-2663) define.
var names = strings.Fields(`
	_meta action additionalProperties annotations anyOf argument arguments audience blob cacheScope call cancel
	capabilities clientInfo code completion completions const content contents context costPriority create
	createMessage createdAt cursor data default description destructiveHint elicitation elicitationId
	elicitations enum enumNames error execution experimental extensions form format hasMore hints icons id
	idempotentHint includeContext input inputRequests inputResponses inputSchema instructions
	intelligencePriority isError items jsonrpc lastModified lastUpdatedAt level list listChanged logger logging
	maxItems maxLength maxTokens maximum message messages metadata method mimeType minItems minLength minimum
	mode model modelPreferences name nextCursor notifications oneOf openWorldHint outputSchema params
	pollInterval pollIntervalMs priority progress progressToken prompts promptsListChanged properties
	protocolVersion readOnlyHint reason ref requestId requestState requested requestedSchema requests required
	requiredCapabilities resource resourceSubscriptions resourceTemplates resources resourcesListChanged result
	resultType role roots sampling serverInfo size sizes speedPriority src status statusMessage stopReason
	stopSequences structuredContent subscribe supported supportedVersions systemPrompt task taskId taskSupport
	tasks temperature text theme title toolChoice toolUseId tools toolsListChanged total ttl ttlMs type uri
	uriTemplate url value values version websiteUrl`)

// properNames maps the folded form of each name to the name.
var properNames = func() map[string]string {
	all := make(map[string]string, len(names))
	for _, name := range names {
		all[fold(name)] = name
	}
	return all
}()

// opaque members have values that the protocol does not define: the content of tools,
// prompts and resources, JSON Schemas, and data for programs.
var opaque = []string{
	"_meta", "arguments", "blob", "content", "contents", "experimental", "extensions", "input", "inputSchema", "metadata",
	"messages", "outputSchema", "requestedSchema", "structuredContent", "data",
}

// misnamed returns a name of v, outside of content, that differs from a name of the
// protocol in letter case only, or "". Parsers that ignore case take one for the other
// (Go's encoding/json, .NET's web defaults), so a server could send a client what the
// gateway does not see.
func misnamed(v jsontext.Value) string { return misnamedIn(v, false) }

// misnamedIn is misnamed; inData means that data is not content.
func misnamedIn(v jsontext.Value, inData bool) string {
	inData = inData || IsPageError(v)
	for _, value := range Elements(v) {
		if found := misnamedIn(value, inData); found != "" {
			return found
		}
	}
	for name, value := range Members(v) {
		if proper := properNames[fold(name)]; proper != "" && proper != name {
			return name
		}
		found := ""
		switch {
		case name == "data" && inData:
			found = misnamedIn(value, inData)
		case slices.Contains(opaque, name):
		case name == "inputRequests":
			found = misnamedRequest(value)
		default:
			found = misnamedIn(value, inData)
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// misnamedRequest is misnamed for requests whose names the server has chosen.
func misnamedRequest(requests jsontext.Value) string {
	for _, request := range Members(requests) {
		if found := misnamed(request); found != "" {
			return found
		}
	}
	return ""
}

// IsPageError reports whether v is an error that leads people to pages. Its data are
// defined by the protocol (MCP 2025-11-25, "URL Elicitation Required").
func IsPageError(v jsontext.Value) bool {
	for name, code := range Members(v) {
		if name == "code" {
			number, err := strconv.ParseFloat(string(code), 64) // -32042.0 is the same to a client
			return err == nil && number == CodePage
		}
	}
	return false
}

// params has the members of a client's params by method (MCP 2025-03-26 to 2026-07-28,
// SEP-2663, [ExtensionAccess]), without _meta, which all have.
var params = map[string][]string{
	MethodInitialize:                   {"protocolVersion", "capabilities", "clientInfo"},
	MethodDiscover:                     nil,
	"ping":                             nil,
	MethodToolsList:                    {"cursor"},
	MethodToolsCall:                    {"name", "arguments", "task", "inputResponses", "requestState"},
	"resources/list":                   {"cursor"},
	"resources/templates/list":         {"cursor"},
	MethodResourceRead:                 {"uri", "inputResponses", "requestState"},
	"resources/subscribe":              {"uri"},
	"resources/unsubscribe":            {"uri"},
	"prompts/list":                     {"cursor"},
	MethodPromptsGet:                   {"name", "arguments", "inputResponses", "requestState"},
	"completion/complete":              {"ref", "argument", "context"},
	"logging/setLevel":                 {"level"},
	"subscriptions/listen":             {"notifications"},
	"tasks/get":                        {"taskId"},
	"tasks/result":                     {"taskId"},
	"tasks/cancel":                     {"taskId"},
	"tasks/update":                     {"taskId", "inputResponses"},
	"tasks/list":                       {"cursor"},
	MethodCapabilitiesRequest:          {"tools", "duration", "reason", "constraints", "bind"},
	MethodCapabilitiesList:             nil,
	MethodCapabilitiesRevoke:           {"id", "reason"},
	MethodToolsRequest:                 {"name", "arguments", "reason", "inputResponses", "requestState"},
	MethodToolsRequests:                nil,
	MethodToolsWithdraw:                {"requestId", "reason"},
	MethodInitialized:                  nil,
	MethodCancelled:                    {"requestId", "reason"},
	MethodProgress:                     {"progressToken", "progress", "total", "message"},
	"notifications/roots/list_changed": nil,
	"notifications/tasks/status": {
		"taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval",
	},
}

// IsDefined reports whether the protocol defines a method of that name for
// clients.
func IsDefined(method string) bool {
	_, known := params[method]
	return known
}

// IsNotification reports whether the protocol defines a notification of that
// name for clients.
func IsNotification(method string) bool {
	return IsDefined(method) && strings.HasPrefix(method, "notifications/")
}

// UndefinedParam returns the path of a member of the params that the protocol does not
// define for the method, or "". It returns "" for methods that the protocol does not
// define.
func (m *Message) UndefinedParam() string {
	defined, known := params[m.Method]
	if !known {
		return ""
	}
	for name, value := range Members(m.Params) {
		if name != "_meta" && !slices.Contains(defined, name) {
			return name
		}
		if name != "task" {
			continue
		}
		for of := range Members(value) {
			if of != "ttl" {
				return "task/" + of
			}
		}
	}
	return ""
}
