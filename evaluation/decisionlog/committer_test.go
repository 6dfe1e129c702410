package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

func TestGroupCommit(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	const callers = 200
	release := l.HoldRecords()
	errs := make(chan error, callers)
	for n := range callers {
		go func() { errs <- l.Append(t.Context(), entry(n)) }()
	}
	wait(t, func() bool { return l.Accepted() == callers })
	release()
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := decisionlog.Records(t, dir); n > 2 {
		t.Errorf("%d records for %d entries that had queued, want 2 at most", n, callers)
	}
}

func TestConcurrentAppend(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	const callers, each = 32, 20
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for n := range each {
				before := l.Head().Size
				e := entry(caller*each + n)
				if err := l.Append(t.Context(), e); err != nil {
					t.Error(err)
				}
				if !written(t, l.Reader, before, e.ID) {
					t.Errorf("%s is not in the log when Append returns", e.ID)
				}
			}
		})
	}
	done.Wait()
	seen := make(map[string]bool)
	for n, got := range lines(t, l.Reader) {
		if got.Index != int64(n) {
			t.Fatalf("line %d has index %d", n, got.Index)
		}
		seen[got.ID] = true
	}
	if len(seen) != callers*each {
		t.Errorf("%d different entries, want %d", len(seen), callers*each)
	}
}

// written reports whether the log has the entry id at index from or later.
func written(t testing.TB, r *decisionlog.Reader, from int64, id string) bool {
	var out bytes.Buffer
	if _, err := r.Export(t.Context(), &out, from, -1); err != nil {
		t.Error(err)
	}
	return strings.Contains(out.String(), `"id":"`+id+`"`)
}

func TestCloseWhileAppending(t *testing.T) {
	for _, durability := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{Durability: durability, Queue: 4})
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan int64)
		for caller := range 16 {
			go func() {
				var n int64
				for l.Append(t.Context(), entry(caller)) == nil {
					n++
				}
				accepted <- n
			}()
		}
		wait(t, func() bool { return l.Head().Size > 20 })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		var sum int64
		for range 16 {
			sum += <-accepted
		}
		if report := verifyLog(t, dir); report.Entries != sum {
			t.Errorf("%v: %d entries, %d accepted", durability, report.Entries, sum)
		}
	}
}

func TestAppendWaits(t *testing.T) {
	cause := errors.New("the client left")
	l := openLog(t, t.TempDir(), decisionlog.Config{Queue: 1})
	release := l.HoldRecords()
	for _, waits := range []string{"for commit", "for room"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error)
		go func() { result <- l.Append(ctx, entry(0)) }()
		wait(t, func() bool { return l.Accepted() == 1 })
		cancel(cause)
		if err := <-result; !errors.Is(err, decisionlog.ErrUnavailable) || !errors.Is(err, cause) {
			t.Errorf("Append that waits %s: %v", waits, err)
		}
	}
	release()
	wait(t, func() bool { return l.Accepted() == 0 })
	mustAppend(t, l, entry(1))
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}

func TestBatchedQueue(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	release := l.Hold(t)
	fill(t, l, 0, 512)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Append(ctx, entry(512)); !errors.Is(err, decisionlog.ErrUnavailable) {
		t.Errorf("entry 513 of a queue for 512: %v, want ErrUnavailable", err)
	}
	release()
	fill(t, l, 512, 600)
	wait(t, func() bool { return l.Head().Size == 600 })
}

func TestFull(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for ; err == nil; size++ {
		err = l.Append(t.Context(), bulky(50_000))
	}
	size--
	if !errors.Is(err, decisionlog.ErrUnavailable) {
		t.Errorf("after %d entries: %v, want ErrUnavailable", size, err)
	}
	if got := l.Head().Size; got > size || size < 10 {
		t.Errorf("head has size %d, %d entries were accepted", got, size)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if report := verifyLog(t, dir); report.Entries != size {
		t.Errorf("%d entries, %d were accepted", report.Entries, size)
	}

	l = openLog(t, dir, decisionlog.Config{})
	mustAppend(t, l, bulky(50_000))
	if got := l.Head().Size; got != size+1 {
		t.Errorf("with room again the head has size %d, want %d", got, size+1)
	}
}

// A log that is closed while full keeps its entries in order, even if some would have fit.
func TestFullInOrder(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{MaxSize: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for l.Append(t.Context(), entry(accepted)) == nil {
			accepted++
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := decisionlog.OpenReadOnly(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := lines(t, r)
		for n, got := range all {
			if want := entry(n).ID; got.ID != want {
				t.Fatalf("%d accepted: in place of %s is %s", accepted, want, got.ID)
			}
		}
		if len(all) != accepted {
			t.Errorf("%d entries, %d were accepted", len(all), accepted)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A full log can be closed although an entry arrives after the last retry.
func TestCloseWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		close(goOn)
		l, err := decisionlog.Open(t.TempDir(), decisionlog.Config{MaxSize: 1 << 16, OnCommit: func(int, time.Duration) { <-goOn }})
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = l.Append(t.Context(), bulky(10_000))
		}
		goOn = make(chan struct{})
		refused, closed := make(chan error, 2), make(chan error, 1)
		for range cap(refused) { // the second waits while the first is refused
			go func() { refused <- l.Append(t.Context(), entry(0)) }()
			synctest.Wait()
		}
		go func() { closed <- l.Close() }()
		synctest.Wait()
		close(goOn)
		for range cap(refused) {
			if err := <-refused; !errors.Is(err, decisionlog.ErrUnavailable) {
				t.Errorf("Append: %v, want ErrUnavailable", err)
			}
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestFullBatched(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched, MaxSize: 1 << 20, Queue: 2})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(0))
	wait(t, func() bool { return l.Head().Size == 1 && l.Accepted() == 0 })
	mustAppend(t, l, bulky(2<<20), bulky(2<<20)) // neither can ever fit
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error)
	go func() { refused <- l.Append(ctx, entry(1)) }()
	cancel()
	if err := <-refused; !errors.Is(err, decisionlog.ErrUnavailable) {
		t.Errorf("Append: %v, want ErrUnavailable", err)
	}
	if err := l.Close(); !errors.Is(err, decisionlog.ErrUnavailable) || !strings.Contains(err.Error(), "2 accepted entries") {
		t.Errorf("Close: %v, want it to tell of 2 entries", err)
	}
	if report := verifyLog(t, dir); report.Entries != 1 {
		t.Errorf("%d entries, want 1", report.Entries)
	}
}

func TestFullBatchedRecovers(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched, MaxSize: 1 << 20})
	mustAppend(t, l, bulky(2<<20), entry(1))
	l.Resize(t, 8<<20)
	wait(t, func() bool { return l.Head().Size == 2 })
}

func TestWroteNothing(t *testing.T) {
	write := func(errno syscall.Errno) error { return &fs.PathError{Op: "write", Path: "x", Err: errno} }
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{write(syscall.ENOSPC), true},
		{write(syscall.EDQUOT), true},
		{write(syscall.EFBIG), true},
		{berrors.ErrMaxSizeReached, true},
		{errors.New("file resize error: truncate x: no space left on device"), true},
		{write(syscall.EIO), false},
		{syscall.EIO, false},
		{syscall.ENOSPC, false}, // error of a flush
		{errors.New("file sync error: no space left on device"), false},
		{berrors.ErrInvalidMapping, false},
	} {
		if got := decisionlog.WroteNothing(tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// An entry that is waited for does not wait for others: a batched log commits it at once.
func TestBatchedCommitsWhatIsWaitedFor(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	fastest := time.Hour
	for n := range 20 {
		e := entry(n)
		e.Result = &decisionlog.Result{Decision: true, Capability: &authzen.VerifiedCapability{ID: "cap_1", Proof: "p"}}
		begun := time.Now()
		mustAppend(t, l, e)
		fastest = min(fastest, time.Since(begun))
	}
	if fastest >= decisionlog.BatchedDelay {
		t.Errorf("the fastest of 20 took %s", fastest)
	}
}
