package callers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Claims are the claims of a token. Numbers are jsontext.Values with the original text.
type Claims map[string]any

const (
	// leeway is the tolerated difference between clocks.
	leeway = time.Minute
	// lastSecond is the end of the year 9999, the last time that RFC 3339 can express.
	lastSecond = 253402300799
)

// registered lists the claims that verifiers read by name.
var registered = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "cnf", "act"}

// readClaims parses a payload strictly. It refuses duplicate names, and names that differ from a
// registered one only in letter case: some readers accept them for it.
func readClaims(payload []byte) (Claims, error) {
	var claims map[string]any
	err := json.Unmarshal(payload, &claims, json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
		if dec.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		raw, err := dec.ReadValue()
		*v = raw.Clone()
		return err
	})))
	if err == nil && claims == nil {
		err = errors.New("must be an object")
	}
	for name := range claims {
		for _, known := range registered {
			if name != known && strings.EqualFold(name, known) {
				return nil, fmt.Errorf("there is %q, which others read as %s", name, known)
			}
		}
	}
	return claims, err
}

// Text returns a claim that must be a string, not empty and without control characters.
func (c Claims) Text(name string) (string, error) {
	text, ok := c[name].(string)
	switch {
	case !ok || text == "":
		return "", fmt.Errorf("the token has no %s", name)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("%s of the token has a control character", name)
	}
	return text, nil
}

// ID returns a claim that identifies the bearer. It refuses an email address that the issuer has
// not verified, because anyone may have entered it.
func (c Claims) ID(name string) (string, error) {
	id, err := c.Text(name)
	if err == nil && name == "email" && c["email_verified"] != true {
		return "", errors.New("email_verified of the token is not true, so that its email says nothing")
	}
	return id, err
}

// listed reports whether a claim is that text or a list that contains it.
func (c Claims) listed(name, text string) bool {
	texts, err := c.texts(name)
	return err == nil && slices.Contains(texts, text)
}

// texts returns a claim that is a string or a list of strings.
func (c Claims) texts(name string) (texts []string, err error) {
	list, ok := c[name].([]any)
	if !ok {
		list = []any{c[name]}
	}
	for _, element := range list {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("%s of the token is neither a text nor a list of them", name)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// time returns a claim that is a NumericDate (RFC 7519, section 2), or nil.
func (c Claims) time(name string) (*time.Time, error) {
	claim, there := c[name]
	if !there {
		return nil, nil
	}
	number, ok := claim.(jsontext.Value)
	seconds, err := strconv.ParseFloat(string(number), 64)
	if !ok || err != nil || seconds < 0 || seconds > lastSecond {
		return nil, fmt.Errorf("%s of the token is not a time", name)
	}
	at := time.Unix(int64(seconds), 0)
	return &at, nil
}

// check refuses a token that is not valid now. It also refuses a token bound to a key that the
// caller has not proved to hold (RFC 9449, section 7.1; RFC 8705, section 3).
func (c Claims) check(now time.Time, held Held) error {
	until, errUntil := c.time("exp")
	since, errSince := c.time("nbf")
	_, errIssued := c.time("iat")
	switch err := errors.Join(errUntil, errSince, errIssued); {
	case err != nil:
		return err
	case until == nil:
		return errors.New("the token has no exp")
	case !now.Before(*until):
		return errors.New("the token has expired")
	case since != nil && since.After(now.Add(leeway)):
		return errors.New("the token is not valid yet")
	}
	confirmation, there := c["cnf"]
	if !there {
		return nil
	}
	methods, ok := confirmation.(map[string]any)
	if !ok || !held.confirms(methods) {
		return errors.New("the token is bound to a key that the caller has not proved to hold")
	}
	return nil
}

// Proof returns how the subject of a verified token proved who it is. A claim that is not of its
// standard type is left out: it says nothing.
func (c Claims) Proof(issuer, subject string) Proof {
	p := Proof{Method: MethodJWT, Issuer: issuer, Subject: subject}
	p.ACR, _ = c["acr"].(string)
	if c["amr"] != nil {
		p.AMR, _ = c.texts("amr")
	}
	if at, err := c.time("auth_time"); err == nil && at != nil {
		p.Time = at.UTC()
	}
	return p
}
