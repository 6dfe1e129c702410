//go:build linux

package main

import (
	"fmt"
	"strings"
)

// A limit is a bound that a change must not break, on the median over the rounds
// or a quotient of two. It is loose, so that it holds on a busy machine too:
// docs/benchmarks.md has the usual figures.
type limit struct {
	What     string  `json:"what"`
	Measured float64 `json:"measured"`
	Most     float64 `json:"at_most"`
	OK       bool    `json:"ok"`
}

func (l limit) verdict() string {
	if l.OK {
		return "holds"
	}
	return "**broken**"
}

// A bound is a limit before anything is measured: figure of a row, divided by
// that of another row if over names one.
type bound struct {
	server  string
	clients int
	over    string
	figure  string
	of      func(result) float64
	most    float64
}

const (
	figureProcessor = "processor time a request"
	figureMallocs   = "allocations a request"
	figureResident  = "RSS in MiB"
)

func resultProcessor(r result) float64 { return r.ProcessorUS.Median }
func resultMallocs(r result) float64   { return r.Mallocs.Median }
func resultResident(r result) float64  { return r.ResidentMiB }

var bounds = []bound{
	{"strict", 32, baseline, figureProcessor, resultProcessor, 8},
	{"strict", 256, baseline, figureProcessor, resultProcessor, 8},
	{"batched", 32, baseline, figureProcessor, resultProcessor, 8},
	{"batched", 256, baseline, figureProcessor, resultProcessor, 8},
	{"strict", 32, "durability", figureProcessor, resultProcessor, 5},
	{"strict", 256, "cedar-go", figureProcessor, resultProcessor, 0.8},
	{"strict, 10000 policies", 32, "strict, 10 policies", figureProcessor, resultProcessor, 2},
	{"strict, batch of 50", 32, "strict", figureProcessor, resultProcessor, 40},
	{"strict", 256, "opa", figureProcessor, resultProcessor, 1},
	{"strict", 32, "", figureMallocs, resultMallocs, 200},
	{"strict", 256, "", figureResident, resultResident, 400},
}

// checkLimits holds the rows that were measured to their bounds.
func checkLimits(rows []result) (all []limit) {
	for _, b := range bounds {
		if l, ok := b.limit(rows); ok {
			all = append(all, l)
		}
	}
	return all
}

// limit reports false where a row was not measured.
func (b bound) limit(rows []result) (limit, bool) {
	row, ok := findResult(rows, b.server, b.clients)
	if !ok {
		return limit{}, false
	}
	what, measured := fmt.Sprintf("%s, %d clients: %s", b.server, b.clients, b.figure), b.of(row)
	if b.over != "" {
		over, ok := findResult(rows, b.over, b.clients)
		if !ok {
			return limit{}, false
		}
		what, measured = what+", times "+b.over, measured/b.of(over)
	}
	return limit{what, measured, b.most, measured <= b.most}, true // no number is within no bound
}

func findResult(rows []result, server string, clients int) (result, bool) {
	for _, r := range rows {
		if r.Server == server && r.Clients == clients {
			return r, true
		}
	}
	return result{}, false
}

const (
	worse     = "worse"
	notWorse  = "not worse"
	undecided = "undecided: measure more rounds"
)

// A comparison is a figure of the program, divided by that of the program
// before, round by round.
type comparison struct {
	Server  string  `json:"server"`
	Clients int     `json:"clients"`
	Figure  string  `json:"figure"`
	Ratio   summary `json:"ratio"`
	Most    float64 `json:"at_most"` // 0: for information
	Verdict string  `json:"verdict"`
}

// compared are the figures that are compared. Requests a second and latencies
// are what the machine makes of them, and decide nothing.
var compared = []struct {
	figure string
	of     func(measured) float64
	most   float64
}{
	{figureProcessor, processorUS, 1.02},
	{figureMallocs, mallocs, 1.01},
	{"requests/s", requestsPerS, 0},
	{"p99", p99MS, 0},
}

// compare compares each row with that of the program before, if there is one.
func (b *bench) compare() (all []comparison) {
	for _, before := range b.rows {
		name, ok := strings.CutPrefix(before.Name, beforePrefix)
		if !ok {
			continue
		}
		after := b.find(name, before.Clients)
		for _, c := range compared {
			ratio := summarize(ratios(after.figure(c.of), before.figure(c.of)))
			all = append(all, comparison{name, before.Clients, c.figure, ratio, c.most, verdict(ratio, c.most)})
		}
	}
	return all
}

// verdict decides only what the rounds are enough for.
func verdict(ratio summary, most float64) string {
	switch {
	case most == 0:
		return ""
	case ratio.Low > most:
		return worse
	case ratio.High <= most:
		return notWorse
	}
	return undecided
}
