package credential

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// ErrScopes means that there is no token with the scopes and no others.
var ErrScopes = errors.New("no token can be had with these scopes alone")

// isNarrower reports whether scopes are among all. No scopes are all; where all are
// not known, the authorization server decides.
func isNarrower(scopes, all []string) bool {
	return len(all) == 0 || !slices.ContainsFunc(scopes, func(s string) bool { return !slices.Contains(all, s) })
}

// checkNarrowed refuses a token with more than the scopes. A token without a list has
// those that were requested (RFC 6749, section 5.1).
func checkNarrowed(issued *oauth2.Token, scopes []string) error {
	list, _ := issued.Extra("scope").(string)
	if len(scopes) == 0 || list == "" || isNarrower(strings.Fields(list), scopes) {
		return nil
	}
	return ErrScopes
}

// either returns the scopes or, without any, the others.
func either(scopes, others []string) []string {
	if len(scopes) > 0 {
		return scopes
	}
	return others
}

func sorted(scopes []string) []string { return slices.Compact(slices.Sorted(slices.Values(scopes))) }
