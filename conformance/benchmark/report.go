//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A report is what was measured, for people and for programs.
type report struct {
	Machine    machine      `json:"machine"`
	Rounds     int          `json:"rounds"`
	Slice      string       `json:"slice"`
	CommitMS   latencies    `json:"commit_ms"` // of a write and an fdatasync, alone
	Rows       []result     `json:"rows"`
	Limits     []limit      `json:"limits"`
	Comparison []comparison `json:"comparison,omitempty"`
}

// A machine is where it was measured.
type machine struct {
	Processors int    `json:"processors"`
	Model      string `json:"model"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"` // of the decision logs
	Go         string `json:"go"`
}

type latencies struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// A result is a row after all rounds. Ratios are to the baseline with as many
// clients.
type result struct {
	Server         string  `json:"server"`
	Clients        int     `json:"clients"`
	ProcessorUS    summary `json:"processor_us"` // a request
	ProcessorRatio summary `json:"processor_ratio"`
	Requests       summary `json:"requests_per_s"`
	RequestsRatio  summary `json:"requests_ratio"`
	P50MS          summary `json:"p50_ms"`
	P99MS          summary `json:"p99_ms"`
	Mallocs        summary `json:"mallocs"` // a request; 0 where the server does not tell
	NotOK          int64   `json:"not_2xx"` // answers of all rounds
	ResidentMiB    float64 `json:"resident_mib"`
	ColdStartMS    float64 `json:"cold_start_ms"` // to the first answer
}

// figure returns a figure of every round of a row.
func (r *row) figure(of func(measured) float64) []float64 {
	var all []float64
	for _, m := range r.rounds {
		all = append(all, of(m))
	}
	return all
}

// The figures of a row in one round.
func processorUS(m measured) float64  { return float64(m.processor.Microseconds()) / m.answered() }
func requestsPerS(m measured) float64 { return m.answered() * 1e6 / float64(m.DurationUS) }
func mallocs(m measured) float64      { return m.mallocs / m.answered() }
func p50MS(m measured) float64        { return float64(m.P50US) / 1000 }
func p99MS(m measured) float64        { return float64(m.P99US) / 1000 }

func (b *bench) report() (*report, error) {
	where, err := describeMachine(b.dir)
	if err != nil {
		return nil, err
	}
	r := &report{Machine: where, Rounds: b.Rounds, Slice: b.Slice.String(), CommitMS: commitLatencies(b.commits)}
	for _, row := range b.rows {
		r.Rows = append(r.Rows, b.result(row))
	}
	r.Limits, r.Comparison = checkLimits(r.Rows), b.compare()
	return r, nil
}

func (b *bench) result(r *row) result {
	floor := b.find(baseline, r.Clients)
	var notOK int64
	for _, m := range r.rounds {
		notOK += m.NotOK
	}
	i := slices.IndexFunc(b.engines, func(e *engine) bool { return e.server == r.server })
	return result{
		Server: r.Name, Clients: r.Clients,
		ProcessorUS:    summarize(r.figure(processorUS)),
		ProcessorRatio: summarize(ratios(r.figure(processorUS), floor.figure(processorUS))),
		Requests:       summarize(r.figure(requestsPerS)),
		RequestsRatio:  summarize(ratios(r.figure(requestsPerS), floor.figure(requestsPerS))),
		P50MS:          summarize(r.figure(p50MS)), P99MS: summarize(r.figure(p99MS)), Mallocs: summarize(r.figure(mallocs)),
		NotOK:       notOK,
		ResidentMiB: r.rounds[len(r.rounds)-1].resident,
		ColdStartMS: float64(b.engines[i].coldStart.Microseconds()) / 1000,
	}
}

// find returns a row, or nil.
func (b *bench) find(name string, clients int) *row {
	for _, r := range b.rows {
		if r.Name == name && r.Clients == clients {
			return r
		}
	}
	return nil
}

func commitLatencies(took []time.Duration) latencies {
	var all []float64
	for _, d := range took {
		all = append(all, float64(d.Microseconds())/1000)
	}
	slices.Sort(all)
	return latencies{quantile(all, 0.5), quantile(all, 0.99)}
}

// fileSystems are names of statfs(2) magic numbers.
var fileSystems = map[int64]string{
	0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x2FC12FC1: "zfs", 0x794C7630: "overlay",
	0x01021994: "tmpfs (in memory: strict costs nothing here; name a directory on a disk with -dir)",
}

func describeMachine(dir string) (machine, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return machine{}, err
	}
	name, ok := fileSystems[int64(fs.Type)]
	if !ok {
		name = fmt.Sprintf("%#x", fs.Type)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return machine{}, err
	}
	cpus, err := os.ReadFile("/proc/cpuinfo")
	return machine{runtime.NumCPU(), modelName(string(cpus)), strings.TrimSpace(string(kernel)), name, runtime.Version()}, err
}

// modelName is that of the first processor; not every architecture has one.
func modelName(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

// text is the report in Markdown.
func (r *report) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d processors (%s), Linux %s, %s, logs on %s; %d rounds of %s.\n", r.Machine.Processors, r.Machine.Model, r.Machine.Kernel,
		r.Machine.Go, r.Machine.FileSystem, r.Rounds, r.Slice)
	fmt.Fprintf(&out, "A write and an fdatasync, alone: p50 %.2f ms, p99 %.2f ms.\n\n", r.CommitMS.P50, r.CommitMS.P99)
	out.WriteString("| server | clients | processor µs a request | ratio | requests/s | ratio | p50 ms | p99 ms | not 2xx | allocations | RSS MiB | cold start ms |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&out, "| %s | %d | %s | %.2f | %s | %.2f | %.2f | %.2f | %d | %s | %.0f | %.0f |\n", row.Server, row.Clients, row.ProcessorUS, row.ProcessorRatio.Median,
			row.Requests, row.RequestsRatio.Median, row.P50MS.Median, row.P99MS.Median, row.NotOK, row.allocations(), row.ResidentMiB, row.ColdStartMS)
	}
	if len(r.Limits) > 0 {
		out.WriteString("\n| limit | measured | at most | |\n|---|--:|--:|---|\n")
	}
	for _, l := range r.Limits {
		fmt.Fprintf(&out, "| %s | %.2f | %.2f | %s |\n", l.What, l.Measured, l.Most, l.verdict())
	}
	if len(r.Comparison) > 0 {
		out.WriteString("\n| after to before | clients | figure | ratio | 95 % of it | |\n|---|--:|---|--:|--:|---|\n")
	}
	for _, c := range r.Comparison {
		fmt.Fprintf(&out, "| %s | %d | %s | %.3f | %.3f to %.3f | %s |\n", c.Server, c.Clients, c.Figure, c.Ratio.Median, c.Ratio.Low, c.Ratio.High, c.Verdict)
	}
	return out.String()
}

func (r result) allocations() string {
	if r.Mallocs.Median == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", r.Mallocs.Median)
}

// write writes the report as JSON, to no file if it is not named.
func (r *report) write(file string) error {
	if file == "" {
		return nil
	}
	return writeFiles(map[string]string{filepath.Clean(file): encode(r) + "\n"})
}

// fault is every limit that does not hold, and every figure that is worse than
// before.
func (r *report) fault() error {
	var faults []error
	for _, l := range r.Limits {
		if !l.OK {
			faults = append(faults, fmt.Errorf("%s is %.2f: at most %.2f is allowed", l.What, l.Measured, l.Most))
		}
	}
	for _, c := range r.Comparison {
		if c.Verdict == worse {
			faults = append(faults, fmt.Errorf("%s, %d clients: %s is %.3f times that of before: at most %.2f is allowed", c.Server, c.Clients, c.Figure, c.Ratio.Median, c.Most))
		}
	}
	return errors.Join(faults...)
}
