package decisionlog_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

func BenchmarkAppend(b *testing.B) {
	for _, durability := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		for _, callers := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("%v/callers=%d", durability, callers), func(b *testing.B) {
				benchmarkAppend(b, durability, callers)
			})
		}
	}
}

// benchmarkAppend appends from at least callers goroutines on any number of processors.
func benchmarkAppend(b *testing.B, durability decisionlog.Durability, callers int) {
	l, err := decisionlog.Open(b.TempDir(), decisionlog.Config{Durability: durability})
	if err != nil {
		b.Fatal(err)
	}
	procs := runtime.GOMAXPROCS(0)
	if callers == 1 {
		defer runtime.GOMAXPROCS(procs)
		runtime.GOMAXPROCS(1)
		procs = 1
	}
	b.SetParallelism((callers + procs - 1) / procs)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		e := entry(1)
		for pb.Next() {
			if err := l.Append(context.Background(), e); err != nil {
				b.Error(err)
			}
		}
	})
	if err := l.Close(); err != nil { // flushes the rest of a batched log
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkVerifyExport(b *testing.B) {
	l := openLog(b, b.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	const size = 10_000
	fill(b, l, 0, size)
	wait(b, func() bool { return l.Head().Size == size })
	text := export(b, l.Reader)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := decisionlog.VerifyExport(bytes.NewReader(text), l.Head()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkBundle(b *testing.B) {
	l := openLog(b, b.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	const size = 10_000
	fill(b, l, 0, size)
	wait(b, func() bool { return l.Head().Size == size })
	keys, err := l.Keys()
	if err != nil {
		b.Fatal(err)
	}
	var bundle bytes.Buffer
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			bundle.Reset()
			if _, err := l.WriteBundle(context.Background(), &bundle, decisionlog.Filter{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "entries/s")
		b.ReportMetric(float64(bundle.Len())/size, "B/entry")
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := decisionlog.VerifyBundle(bytes.NewReader(bundle.Bytes()), int64(bundle.Len()), keys); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "entries/s")
	})
}

// BenchmarkEncode measures the encoding of an entry without masked values.
func BenchmarkEncode(b *testing.B) {
	l := openLog(b, b.TempDir(), decisionlog.Config{})
	e := entry(1)
	e.RequestID = "4bf92f3577b34da6a3ce929d0e0e4736"
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Encode(e); err != nil {
			b.Fatal(err)
		}
	}
}
