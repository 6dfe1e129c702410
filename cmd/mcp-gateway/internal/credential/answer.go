package credential

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"github.com/policy-service/policy-service/obligations/plain"
)

// Errors of a token endpoint.
var (
	errUnanswered = errors.New("the token endpoint did not answer")
	errKey        = errors.New("the key of the client cannot be used")
	errAnswer     = errors.New("the answer of the token endpoint is incomplete or not understood")
)

// maxDescription bounds the description of an error of a token endpoint, in runes.
const maxDescription = 200

// endpointError returns an error of the oauth2 package without what may hold a token:
// the body of the answer, and a description that repeats the token of the request.
func endpointError(err error, sent ...string) error {
	var refused *oauth2.RetrieveError
	var network net.Error
	switch {
	case errors.Is(err, errKey):
		return err
	case errors.As(err, &refused) && refused.ErrorCode != "":
		said := refused.ErrorCode + " " + refused.ErrorDescription
		if slices.ContainsFunc(sent, func(secret string) bool { return secret != "" && strings.Contains(said, secret) }) {
			said = "an error that repeats the token"
		}
		said = plain.Cut(plain.Text(strings.TrimSpace(said)), maxDescription)
		return fmt.Errorf("the token endpoint answered %d: %s", refused.Response.StatusCode, said)
	case errors.As(err, &refused):
		return fmt.Errorf("the token endpoint answered %d", refused.Response.StatusCode)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%w in time", errUnanswered)
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return errUnanswered
	}
	return errAnswer
}

// checkIssued refuses a token that a server could not get as a bearer token (RFC
// 6749, section 5.1; RFC 8693, section 2.2.1).
func checkIssued(issued *oauth2.Token, exchanged bool) error {
	if !strings.EqualFold(issued.TokenType, "bearer") {
		return fmt.Errorf("the token endpoint issued a token of the type %q, not Bearer", plain.Cut(plain.Text(issued.TokenType), maxDescription))
	}
	if strings.IndexFunc(issued.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return errAnswer
	}
	kind, _ := issued.Extra("issued_token_type").(string)
	switch strings.TrimPrefix(kind, tokenTypePrefix) {
	case "access_token", "jwt":
		return nil
	case "":
		if !exchanged {
			return nil
		}
	}
	if !exchanged {
		return nil
	}
	return fmt.Errorf("the token endpoint issued a token with issued_token_type %q, not an access token", plain.Cut(plain.Text(kind), maxDescription))
}
