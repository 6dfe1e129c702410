// Package results carries out obligations on the responses of servers
// ([result.Rule]).
//
// The law it keeps: a response reaches its client with every obligation carried out
// on all of it, or it does not reach the client. What the package does not
// understand it withholds: text that is not JSON where members are redacted, images,
// embedded resources, members that MCP does not define.
//
// A result of a tool says the same thing twice, as structuredContent and as text.
// Paths therefore apply to both: to structuredContent, and to each text, which must
// be a JSON object or array. A token of a path covers members whose name differs in
// letter case only, because some clients read names without case. A pattern without
// paths applies to every text and every string and number in JSON.
package results
