// Package admission implements admission control: which requests run when the
// service is overloaded. It has a fair queue by tenant with a concurrency limit
// found by hill climbing, a memory budget for bodies and answers, a token bucket
// for each tenant, and a deadline for decisions. It is independent of HTTP.
package admission
