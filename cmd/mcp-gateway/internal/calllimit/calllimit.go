// Package calllimit limits the tool calls of each caller in a period.
//
// The law it keeps: in any period of a limit, no caller makes more calls than the
// limit allows. The period slides, so a limit of five an hour is never ten around
// the full hour.
package calllimit

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxCalls is the largest [Limit.Calls]. The limiter keeps the time of each call.
const MaxCalls = 10_000

// A Limit bounds the calls of each caller to the tools that it names, all counted
// together.
type Limit struct {
	Calls   int           `yaml:"calls"`
	Per     time.Duration `yaml:"per"`
	Servers []string      `yaml:"servers"` // nil is all
	Tools   []string      `yaml:"tools"`   // patterns of [path.Match] in which / is no separator; nil is all
}

// A Call is a call of a tool by a caller.
type Call struct {
	Server, Tool string
	Caller       Caller
}

// A Caller is a subject of a tenant.
type Caller struct{ Tenant, Type, ID string }

// applies reports whether a call counts for the limit.
func (l *Limit) applies(c Call) bool {
	matches := func(pattern string) bool {
		return matches(pattern, c.Tool) || matches(withoutSlashes(pattern), withoutSlashes(c.Tool))
	}
	return (l.Servers == nil || slices.Contains(l.Servers, c.Server)) && (l.Tools == nil || slices.ContainsFunc(l.Tools, matches))
}

// matches reports whether a pattern matches a name. A broken one does: it must not lift
// the limit.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok || err != nil
}

// withoutSlashes replaces slashes, which * does not match otherwise. Names of tools are no
// paths.
func withoutSlashes(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

// An ExceededError means that a call would exceed a limit.
type ExceededError struct {
	Limit Limit
	After time.Duration // until the limit allows a call
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("the limit is %d calls in %s", e.Limit.Calls, plainPeriod(e.Limit.Per))
}

// plainPeriod is the period without the zeros of [time.Duration.String]: 1h in place
// of 1h0m0s.
func plainPeriod(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// A Limiter applies limits. It is safe for concurrent use.
type Limiter struct {
	limits []Limit
	now    func() time.Time

	mu    sync.Mutex
	calls map[key][]time.Time // times of calls, oldest first
	sweep time.Time           // when to forget callers that make no calls
}

// A key is what a limit counts together.
type key struct {
	limit  int
	caller Caller
}

// New returns a Limiter. Nil for now is time.Now.
func New(limits []Limit, now func() time.Time) *Limiter {
	if now == nil {
		now = time.Now
	}
	return &Limiter{limits: limits, now: now, calls: make(map[key][]time.Time), sweep: now().Add(sweepInterval)}
}

// Longest returns the longest period, and 0 without limits.
func (l *Limiter) Longest() (longest time.Duration) {
	for _, limit := range l.limits {
		longest = max(longest, limit.Per)
	}
	return longest
}

// Take counts a call. The caller releases it if the call is not made after all.
// The error is an [ExceededError]; then nothing is counted.
func (l *Limiter) Take(c Call) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.forget(now)
	var exceeded *ExceededError
	for i, limit := range l.limits {
		if !limit.applies(c) {
			continue
		}
		k := key{i, c.Caller}
		l.calls[k] = since(l.calls[k], now.Add(-limit.Per))
		if after := wait(l.calls[k], limit, now); after > 0 && (exceeded == nil || after > exceeded.After) {
			exceeded = &ExceededError{limit, after}
		}
	}
	if exceeded != nil {
		return nil, exceeded
	}
	l.count(c, now)
	return func() { l.release(c, now) }, nil
}

// Count counts a call that no limit refuses, or that was made before. Calls are
// counted in the order of their times.
func (l *Limiter) Count(c Call, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(c, at)
}

func (l *Limiter) count(c Call, at time.Time) {
	for i, limit := range l.limits {
		if limit.applies(c) {
			k := key{i, c.Caller}
			l.calls[k] = append(since(l.calls[k], at.Add(-limit.Per)), at)
		}
	}
}

func (l *Limiter) release(c Call, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, limit := range l.limits {
		k := key{i, c.Caller}
		if n := slices.Index(l.calls[k], at); limit.applies(c) && n >= 0 {
			l.calls[k] = slices.Delete(l.calls[k], n, n+1)
		}
	}
}

// since removes the times that are not after start.
func since(times []time.Time, start time.Time) []time.Time {
	old, _ := slices.BinarySearchFunc(times, start, func(t, start time.Time) int {
		if t.After(start) {
			return 1
		}
		return -1
	})
	return slices.Delete(times, 0, old)
}

// wait returns the time until a limit allows a call, and 0 if it does now.
func wait(times []time.Time, limit Limit, now time.Time) time.Duration {
	if len(times) < limit.Calls {
		return 0
	}
	return times[len(times)-limit.Calls].Add(limit.Per).Sub(now)
}

const sweepInterval = time.Minute

// forget removes callers without calls in the period.
func (l *Limiter) forget(now time.Time) {
	if now.Before(l.sweep) {
		return
	}
	l.sweep = now.Add(sweepInterval)
	for k, times := range l.calls {
		l.calls[k] = since(times, now.Add(-l.limits[k.limit].Per))
		if len(l.calls[k]) == 0 {
			delete(l.calls, k)
		}
	}
}
