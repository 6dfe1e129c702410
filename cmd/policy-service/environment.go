package main

import (
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/environment"
)

// variablePrefix is the prefix of the environment variables of this program.
const variablePrefix = "POLICY_SERVICE_"

// checkEnvironment reports every variable with our prefix that is not known.
func checkEnvironment(app *kong.Application, variables []string) error {
	return environment.Check(app, variablePrefix, []string{apiKeyVariable}, variables)
}

// notInSet matches kong's error for a value outside of a flag's set.
var notInSet = regexp.MustCompile(`must be one of (.+) but got "(.*)"`)

// enumHint returns a hint with the nearest value of a closed set, or "".
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
