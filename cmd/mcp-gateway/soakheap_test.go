package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// heapAddress is the variable with the address at which a measured gateway says what
// is in its memory.
const heapAddress = "SOAK_HEAP_LISTEN"

// A heap is what is in the memory of a gateway after a garbage collection.
type heap struct {
	Live       int64 // bytes of objects
	Stacks     int64 // bytes
	Goroutines int

	minute   float64
	resident int // bytes of the process
}

// measured is the gateway, with a listener for the test that measures it.
func measured() {
	runtime.MemProfileRate = 16 << 10
	routes := http.NewServeMux()
	routes.HandleFunc("/heap", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC() // moves what is in a sync.Pool aside
		runtime.GC() // and frees it
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		_ = json.MarshalWrite(w, heap{Live: int64(s.HeapAlloc), Stacks: int64(s.StackInuse), Goroutines: runtime.NumGoroutine()})
	})
	routes.HandleFunc("/profile", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		_ = pprof.Lookup("heap").WriteTo(w, 0)
	})
	go func() { log.Fatal(http.ListenAndServe(os.Getenv(heapAddress), routes)) }()
	main()
}

// heap returns what is in the memory of the gateway. It fails while the gateway is
// killed.
func (s *soak) heap() (h heap, err error) {
	h.minute = time.Since(s.begun).Minutes()
	response, err := http.Get("http://" + s.heapAt + "/heap")
	if err != nil {
		return h, err
	}
	defer response.Body.Close()
	if err := json.UnmarshalRead(response.Body, &h); err != nil {
		return h, err
	}
	h.resident, err = residentOf(s.running().Process.Pid)
	return h, err
}

// saveProfile writes a profile of the heap, if there is a directory for it.
func (s *soak) saveProfile(name string) {
	if *unionHeap == "" {
		return
	}
	response, err := http.Get("http://" + s.heapAt + "/profile")
	if err != nil {
		s.t.Log(err)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, os.WriteFile(filepath.Join(*unionHeap, name), text, 0o600)); err != nil {
		s.t.Log(err)
	}
}

// sample measures the memory of the gateway while it is called, until ctx ends.
func (s *soak) sample(ctx context.Context) (all []heap) {
	minute := 0
	for tick := time.Tick(max(*unionSoak/240, time.Second)); ; {
		select {
		case <-tick:
		case <-ctx.Done():
			return all
		}
		h, err := s.heap()
		if err != nil {
			continue // it has been killed
		}
		all = append(all, h)
		if int(h.minute) == minute {
			continue
		}
		minute = int(h.minute)
		s.t.Logf("minute %d: %s", minute, h)
		s.saveProfile(fmt.Sprintf("minute%02d.pb.gz", minute))
	}
}

func (h heap) String() string {
	return fmt.Sprintf("%.1f MiB live, %.1f MiB of stacks, %d goroutines, %.1f MiB resident", mebibytes(h.Live), mebibytes(h.Stacks), h.Goroutines, mebibytes(int64(h.resident)))
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// slope returns by how many bytes a minute something grows, by least squares over
// the last half.
func slope(all []heap, of func(heap) int64) float64 {
	var n, sumX, sumY, sumXX, sumXY float64
	for _, h := range all[len(all)/2:] {
		x, y := h.minute, float64(of(h))
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}

// What a line shows, and what swings, the slope of the first does and that of the
// second does not.
func TestSlope(t *testing.T) {
	var all []heap
	for i := range 100 {
		all = append(all, heap{minute: float64(i) / 4, Live: int64(1000 * i), Stacks: int64(i % 2 * 1000)})
	}
	if got := slope(all, func(h heap) int64 { return h.Live }); got < 3999 || got > 4001 {
		t.Errorf("the slope of a line of 4000 a minute is %f", got)
	}
	if got := slope(all, func(h heap) int64 { return h.Stacks }); got < -20 || got > 20 {
		t.Errorf("the slope of what swings is %f", got)
	}
}
