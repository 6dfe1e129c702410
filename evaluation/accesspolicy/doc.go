// Package accesspolicy reads access documents and compiles them to Cedar.
//
// An access document says in JSON which participants may call the tools of one MCP server, as
// ADR-003 of MCPx defines it:
//
//	{"server": "files", "policy": {"mode": "allowlist", "default": "deny", "rules": [
//	  {"agent": "agent:agent-a", "tools": ["read_file"], "expires": "2026-12-02T00:00:00Z"},
//	  {"agent": "user:user-1", "tools": "*", "requires_approval": true}]}}
//
// [Parse] reads a document. [Document.Compile] returns a Cedar policy for each rule, with the id
// FILE#RULE. The policies are ordinary ones: Cedar decides, and everything that names policies names
// these.
//
// # Invariant
//
// No mistake in a document permits a call. A document with a fault has no policies, and the store that
// has it does not load. So everything unknown is a fault: a member, a mode, an effect, a type, a
// letter in the wrong case, a member that is named twice, text behind the document. A rule that would
// have no effect is a fault as well, because its author expects one.
//
// # What the policies read
//
// The service states which tool a request is about in context.called_tool, as SERVER:TOOL. Requests
// cannot state it. Policies do not read how the request names the tool, so a document applies under
// every mapping of calls to requests.
package accesspolicy
