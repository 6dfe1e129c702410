// Package admission decides what runs when there is more to do than the service
// can do in time: a fair queue for each tenant with a concurrency limit that is
// found by hill climbing, a budget of memory for bodies and answers, a token
// bucket for each tenant, and a deadline for decisions. It knows no HTTP.
package admission
