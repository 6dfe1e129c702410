// Package policies embeds policy stores that are ready to serve. Each folder is one set, with the
// layout of a policy store on disk:
//
//	agent-tools     an AI agent in front of tools; the default of serve, and
//	                what init writes
//	certification   the fixture of the OpenID AuthZEN certification scenario
//	gateways        the AuthZEN interop scenario of API gateways
//	search          the AuthZEN interop scenarios of search and of the IdP
//	todo            the AuthZEN interop scenario of the todo application
//	tool-access     participants of MCP servers: levels say who may call,
//	                capabilities which tools, approvals whether this call
//	tool-owners     tools whose owners say how calls are authorized: always,
//	                after a prompt, selectively, or by a delegate
//
// Every set has a schema, passes strict validation against it, and has tests that show its purpose.
// The interop scenarios use the same names for different people, so the sets are separate stores.
package policies

import (
	"embed"
	"fmt"
	"io/fs"
)

// FS holds the sets, each in the folder of its name.
//
//go:embed */*
var FS embed.FS

// Names returns the names of the sets, sorted.
func Names() []string {
	folders, err := FS.ReadDir(".")
	if err != nil {
		panic(err) // an embedded root always exists
	}
	names := make([]string, len(folders))
	for i, folder := range folders {
		names[i] = folder.Name()
	}
	return names
}

// Set returns the policy store with that name.
func Set(name string) (fs.FS, error) {
	info, err := fs.Stat(FS, name)
	if err != nil || !info.IsDir() || name == "." {
		return nil, fmt.Errorf("policy set %q: not one of %q", name, Names())
	}
	return fs.Sub(FS, name)
}
