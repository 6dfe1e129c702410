// Package rates counts the decisions of the last hour, minute by minute, in memory of a fixed size.
//
// A count costs a few atomic additions and no allocation, so that every decision can afford it. All
// counts are lost when the process ends; the decision log has the decisions.
package rates

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Minutes is the number of points that a Ring keeps.
const Minutes = 60

// A Point has the counts of one minute.
type Point struct {
	Time         time.Time `json:"time"`          // start of the minute
	Allowed      int64     `json:"allowed"`       // decisions that permit
	Denied       int64     `json:"denied"`        // decisions that deny
	Errors       int64     `json:"errors"`        // requests without a decision because of a failure of the service
	PolicyErrors int64     `json:"policy_errors"` // policies whose evaluation failed
	P99          int64     `json:"p99_us"`        // 99th percentile of the time to decide and record, in microseconds; 0 without a decision
}

// Counts are the results of one answer.
type Counts struct {
	Allowed, Denied, PolicyErrors int64
}

// A Ring counts decisions. Its zero value is ready to use. Its methods are safe for concurrent use.
type Ring struct {
	turning sync.Mutex // held to give a slot to another minute
	slots   [Minutes + 1]slot
	answers atomic.Int64
}

// A slot has the counts of a minute.
type slot struct {
	minute                                atomic.Int64 // since 1970
	allowed, denied, errors, policyErrors atomic.Int64
	took                                  [buckets]atomic.Uint32
}

// Decided counts an answer with decisions at a time. took is the time to decide and record it.
func (r *Ring) Decided(at time.Time, took time.Duration, c Counts) {
	r.answers.Add(1)
	s := r.slot(at)
	if s == nil {
		return
	}
	add(&s.allowed, c.Allowed)
	add(&s.denied, c.Denied)
	add(&s.policyErrors, c.PolicyErrors)
	s.took[bucketOf(took.Microseconds())].Add(1)
}

func add(to *atomic.Int64, n int64) {
	if n != 0 {
		to.Add(n)
	}
}

// Failed counts a request without a decision.
func (r *Ring) Failed(at time.Time) {
	if s := r.slot(at); s != nil {
		s.errors.Add(1)
	}
}

// Answers returns the number of answers since the process began.
func (r *Ring) Answers() int64 { return r.answers.Load() }

// slot returns the slot of a time, or nil for a time that is no longer kept.
func (r *Ring) slot(at time.Time) *slot {
	minute := at.Unix() / 60
	s := &r.slots[uint64(minute)%uint64(len(r.slots))]
	if s.minute.Load() == minute {
		return s
	}
	r.turning.Lock()
	defer r.turning.Unlock()
	switch has := s.minute.Load(); {
	case has > minute:
		return nil
	case has < minute:
		s.clear()
		s.minute.Store(minute)
	}
	return s
}

func (s *slot) clear() {
	for _, n := range []*atomic.Int64{&s.allowed, &s.denied, &s.errors, &s.policyErrors} {
		n.Store(0)
	}
	for i := range s.took {
		s.took[i].Store(0)
	}
}

// Points returns the points of the hour that ends with the minute of now, the oldest first. The last
// point is not complete.
func (r *Ring) Points(now time.Time) []Point {
	out := make([]Point, Minutes)
	last := now.Unix() / 60
	for i := range out {
		minute := last - int64(Minutes-1-i)
		out[i] = r.slots[uint64(minute)%uint64(len(r.slots))].point(minute)
	}
	return out
}

// point returns the counts of a minute, which are zero if the slot has those of another.
func (s *slot) point(minute int64) Point {
	p := Point{Time: time.Unix(minute*60, 0).UTC()}
	if s.minute.Load() != minute {
		return p
	}
	p.Allowed, p.Denied, p.Errors, p.PolicyErrors = s.allowed.Load(), s.denied.Load(), s.errors.Load(), s.policyErrors.Load()
	p.P99 = s.percentile(99)
	return p
}

// percentile returns the upper end of the bucket with the percentile, in microseconds.
func (s *slot) percentile(p int64) int64 {
	var counts [buckets]int64
	var all, seen int64
	for i := range counts {
		counts[i] = int64(s.took[i].Load())
		all += counts[i]
	}
	for i, n := range counts {
		if seen += n; n > 0 && seen*100 >= all*p {
			return upperEnd(i)
		}
	}
	return 0
}

// Durations are counted in eight buckets for each power of two, so that a percentile is at most an
// eighth too high. Durations of more than 2^32 µs share the last bucket.
const (
	perOctave = 8
	octaves   = 30
	buckets   = octaves * perOctave
)

// bucketOf returns the bucket of a duration in microseconds.
func bucketOf(us int64) int {
	if us < perOctave {
		return int(max(us, 0))
	}
	octave := bits.Len64(uint64(us)) - 3 // 1 for 8 to 15
	return min(octave*perOctave+int(us>>(octave-1))-perOctave, buckets-1)
}

// upperEnd returns the largest duration of a bucket in microseconds.
func upperEnd(bucket int) int64 {
	if bucket < perOctave {
		return int64(bucket)
	}
	octave, part := bucket/perOctave, bucket%perOctave
	return int64(perOctave+part+1)<<(octave-1) - 1
}
