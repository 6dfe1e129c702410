package union

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// separator is between the name of a server and the name that the server gives.
const separator = "__"

// MaxName is how long names of tools may be: models' APIs take no longer ones.
const MaxName = 64

// hashLength is the number of hexadecimal digits at the end of a shortened name.
const hashLength = 8

// MaxServerName is the longest name of a server whose tools can be shortened.
const MaxServerName = MaxName - len(separator) - hashLength - 2

// CheckName says why a server of this name may not be one of several at an
// endpoint, or "".
func CheckName(server string) string {
	switch {
	case strings.Contains(server, separator) || strings.HasSuffix(server, "_"):
		return "must not contain __ or end with _: the tools of the server are called SERVER__NAME"
	case len(server) > MaxServerName:
		return "is too long for names of tools, SERVER__NAME"
	}
	return ""
}

// outerName returns the name of a server's prompt or task at the union.
func outerName(server, name string) string { return server + separator + name }

// outerTool returns the name of a server's tool at the union. A name that is too
// long is cut, and ends with a part of its hash.
func outerTool(server, name string) string {
	whole := outerName(server, name)
	if len(whole) <= MaxName {
		return whole
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(whole[:MaxName-hashLength-1], "") + "_" + hex.EncodeToString(sum[:])[:hashLength]
}

// split returns the server that a name begins with, and the server's own name.
func split(name string) (server, inner string, ok bool) { return strings.Cut(name, separator) }

// scheme begins the URIs of resources at the union.
const scheme = "mcp-server://"

// outerURI returns the URI, or the template of URIs, of a server's resource at the
// union. The server's own is its end, so that a client can expand a template.
func outerURI(server, uri string) string { return scheme + server + "/" + uri }

// splitURI returns the server that a URI names, and the server's own URI.
func splitURI(uri string) (server, inner string, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// outerID returns the id of a server's request at the union.
func outerID(server string, id jsontext.Value) jsontext.Value {
	text, err := jsontext.AppendQuote(nil, server+":"+string(id))
	if err != nil {
		return jsontext.Value("null") // it was read as valid UTF-8
	}
	return text
}

// splitID returns the server that an id names, and the server's own id.
func splitID(id jsontext.Value) (server string, inner jsontext.Value, ok bool) {
	if id.Kind() != '"' {
		return "", nil, false
	}
	text, err := jsontext.AppendUnquote(nil, id)
	if err != nil {
		return "", nil, false
	}
	server, rest, ok := strings.Cut(string(text), ":")
	inner = jsontext.Value(rest)
	return server, inner, ok && inner.IsValid() && (inner.Kind() == '"' || inner.Kind() == '0')
}
