package main

import (
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/environment"
)

// variablePrefix begins the names of the environment variables that are ours.
const variablePrefix = "POLICY_SERVICE_"

// checkEnvironment reports every variable with our prefix that names nothing.
func checkEnvironment(app *kong.Application, variables []string) error {
	return environment.Check(app, variablePrefix, []string{apiKeyVariable}, variables)
}

// notInSet is what kong says of a value that is none of a flag's.
var notInSet = regexp.MustCompile(`must be one of (.+) but got "(.*)"`)

// enumHint says which value of a closed set was meant, or "".
func enumHint(err error) string {
	found := notInSet.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	var known []string
	for value := range strings.SplitSeq(found[1], ",") {
		if value = strings.Trim(value, `" `); value != "" {
			known = append(known, value)
		}
	}
	return environment.Meant(found[2], known)
}
