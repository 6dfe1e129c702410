package conformance_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
)

// A person of the todo application and of the gateways before it.
type person struct {
	name  string
	token string // the subject of their ID token
	email string
	roles []string
}

func (p person) has(roles ...string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(p.roles, role) })
}

var (
	rick   = person{"rick", "CiRmZDA2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "rick@the-citadel.com", []string{"admin", "evil_genius"}}
	morty  = person{"morty", "CiRmZDE2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "morty@the-citadel.com", []string{"editor"}}
	summer = person{"summer", "CiRmZDI2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "summer@the-smiths.com", []string{"editor"}}
	beth   = person{"beth", "CiRmZDM2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "beth@the-smiths.com", []string{"viewer"}}
	jerry  = person{"jerry", "CiRmZDQ2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "jerry@the-smiths.com", []string{"viewer"}}

	people = []person{rick, morty, summer, beth, jerry}
)

// encode returns a request body. Maps, unlike the types of this module, can
// hold what AuthZEN does not know.
func encode(t *testing.T, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// decision is the whole body of a plain decision.
func decision(permit bool) string {
	if permit {
		return `{"decision":true}`
	}
	return `{"decision":false}`
}
