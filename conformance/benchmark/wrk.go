//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// wrkThreads are as many as the load generator can use beside a server on two
// processors.
const wrkThreads = 2

// mostNotOK is the share of answers that may have a status other than 2xx. On a
// busy machine policy-service answers 503 to a request that has waited too long,
// before it reads the body: such answers cost little and are not counted.
const mostNotOK = 0.2

//go:embed wrk.lua
var wrkScript string

// errWorthless is wrapped by the error of a load that broke.
var errWorthless = errors.New("the sample is worth nothing")

// errNoWrk says how to get the load generator.
var errNoWrk = errors.New("wrk is not installed: apt-get install -y wrk (Debian package wrk)")

// A generator is wrk with its script.
type generator struct {
	program string
	script  string // file
}

// findWrk returns the installed load generator, which needs a script in a file.
func findWrk(script string) (*generator, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return nil, errNoWrk
	}
	if err := writeFiles(map[string]string{script: wrkScript}); err != nil {
		return nil, err
	}
	return &generator{program, script}, nil
}

// A sample is what wrk measured of a server in one slice.
type sample struct {
	Requests   int64 `json:"requests"`
	DurationUS int64 `json:"duration_us"`
	P50US      int64 `json:"p50_us"`
	P99US      int64 `json:"p99_us"`
	NotOK      int64 `json:"not_2xx"`
	Broken     int64 `json:"broken"`
	Timeouts   int64 `json:"timeouts"`
}

// answered is how many answers have a status of 2xx.
func (s sample) answered() float64 { return float64(s.Requests - s.NotOK) }

// run sends the bodies of a file to a URL for a whole number of seconds. A
// connection that breaks, a timeout, or too many answers other than 2xx make the
// sample worthless and are errWorthless.
func (g *generator) run(ctx context.Context, url, path, bodies string, clients int, slice time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, slice+30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, g.program,
		"-t", strconv.Itoa(wrkThreads), "-c", strconv.Itoa(clients), "-d", fmt.Sprintf("%ds", int(slice.Seconds())), "--timeout", "10s",
		"--latency", "-s", g.script, url, "--", bodies, path).CombinedOutput()
	if err != nil {
		return sample{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return parseSample(out)
}

func parseSample(out []byte) (s sample, err error) {
	last := bytes.TrimSpace(out)
	last = last[bytes.LastIndexByte(last, '\n')+1:]
	if err := json.Unmarshal(last, &s); err != nil {
		return sample{}, fmt.Errorf("wrk did not print its figures: %w\n%s", err, out)
	}
	if s.Broken > 0 || s.Timeouts > 0 || float64(s.NotOK) > mostNotOK*float64(s.Requests) || s.Requests == 0 {
		return sample{}, fmt.Errorf("%w: wrk had %d answers, %d of them other than 2xx, %d broken connections, %d timeouts", errWorthless, s.Requests, s.NotOK, s.Broken, s.Timeouts)
	}
	return s, nil
}
