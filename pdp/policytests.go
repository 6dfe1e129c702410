package pdp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A TestReport is the answer about the tests beside the policies. Without Report, the tests are still
// running, or Faults or Problem says why they cannot run.
type TestReport struct {
	Revision string             `json:"revision,omitzero"` // of the tested policies
	InForce  bool               `json:"in_force"`          // the tested policies are those in force
	Running  bool               `json:"running,omitzero"`  // ask again
	Seconds  float64            `json:"seconds,omitzero"`  // duration of the tests
	Faults   faults.List        `json:"faults,omitempty"`  // of the policy store or of its tests
	Problem  string             `json:"problem,omitzero"`
	Report   *policytest.Report `json:"report,omitempty"`
}

const (
	testWait  = 5 * time.Second  // how long an answer waits for the tests
	testTime  = 60 * time.Second // how long tests may run
	testsKept = 4                // number of reports
)

// errLongTests means that tests took longer than testTime.
var errLongTests = fmt.Errorf("the tests take longer than %s: run policy-service test", testTime)

// testsHandler runs the tests of the policy store. It keeps the reports by content, so that the same
// tests of the same policies run once.
type testsHandler struct {
	engine *evaluation.Engine
	open   func() (fs.FS, error)
	wait   time.Duration

	mu   sync.Mutex
	runs []*testRun
}

// A testRun runs tests, or has run them.
type testRun struct {
	key     [sha256.Size]byte
	tenants []string // of the caller; nil means all
	done    chan struct{}

	revision string // of the tested policies; set when done

	report TestReport // set when done
}

// openStore returns the files of the policy store as they are.
func (s *server) openStore() (fs.FS, error) {
	if s.config.PolicyDir == "" {
		return s.config.Policies, nil
	}
	return policystore.Open(s.config.PolicyDir)
}

// run answers with the report of the tests that the caller may see.
func (h *testsHandler) run(c echo.Context) error {
	if err := knownQuery(c, "last"); err != nil {
		return err
	}
	v := view{callerFrom(c.Request().Context()).Tenants}
	switch last := c.QueryParam("last"); last {
	case "":
	case "true":
		return writeJSON(c, http.StatusOK, h.last(v))
	default:
		return authzen.Invalid("", "has a last that is not true: %q", last)
	}
	run, err := h.begin(v)
	if err != nil {
		return err
	}
	timer := time.NewTimer(h.wait)
	defer timer.Stop()
	select {
	case <-run.done:
		return writeJSON(c, http.StatusOK, h.current(run))
	case <-timer.C:
	case <-c.Request().Context().Done():
	}
	c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
	return writeJSON(c, http.StatusAccepted, TestReport{Running: true})
}

// current returns the report of a run that is done.
func (h *testsHandler) current(run *testRun) TestReport {
	report := run.report
	all := h.engine.Snapshots()
	report.InForce = all != nil && all.Revision() == run.revision && report.Report != nil
	return report
}

// last returns the last report for the caller, without a look at the files; the zero report if there is
// none.
func (h *testsHandler) last(v view) TestReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range slices.Backward(h.runs) {
		if !run.isRunning() && slices.Equal(run.tenants, v.tenants) && (run.tenants == nil) == (v.tenants == nil) {
			return h.current(run)
		}
	}
	return TestReport{}
}

// begin returns the run of the tests as they are now, and starts it if there is none.
func (h *testsHandler) begin(v view) (*testRun, error) {
	store, err := h.open()
	if err != nil {
		return nil, err
	}
	if closer, ok := store.(interface{ Close() error }); ok {
		defer closer.Close()
	}
	archive, refused := policystore.Read(store)
	files := policytest.ReadFiles(store)
	key, err := keyOf(archive, refused, files, v)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.runs, func(r *testRun) bool { return r.key == key }); i >= 0 {
		return h.runs[i], nil
	}
	if slices.ContainsFunc(h.runs, (*testRun).isRunning) {
		return nil, errOverload
	}
	run := &testRun{key: key, tenants: v.tenants, done: make(chan struct{})}
	h.runs = append(h.runs[max(0, len(h.runs)-testsKept+1):], run)
	go func() {
		defer close(run.done)
		run.report = h.test(archive, refused, files, v)
		if run.revision = run.report.Revision; v.tenants != nil && h.hasTenants() {
			run.report.Revision = "" // it changes with any tenant
		}
	}()
	return run, nil
}

func (r *testRun) isRunning() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// keyOf returns a hash of everything that a report depends on.
func keyOf(archive snapshot.Archive, refused error, files *policytest.Files, v view) ([sha256.Size]byte, error) {
	s, err := snapshot.RevisionOf(archive)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(fmt.Appendf(nil, "%s %x %q %q", s, files.Digest(), fmt.Sprint(refused), v.tenants)), nil
}

// test runs the tests.
func (h *testsHandler) test(archive snapshot.Archive, refused error, files *policytest.Files, v view) (report TestReport) {
	defer func() {
		if fault := recover(); fault != nil {
			report = TestReport{Problem: fmt.Sprintf("the tests failed: %v", fault)}
		}
	}()
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	s, tests, err := h.prepare(archive, refused, files)
	if err == nil {
		report.Revision = s.Revision()
		report.Report, err = policytest.RunTenants(ctx, s, tests, slices.DeleteFunc(s.Tenants(), func(tenant string) bool { return !v.sees(tenant) }))
	}
	report.Seconds = time.Since(start).Seconds()
	if errors.Is(err, context.DeadlineExceeded) {
		err = errLongTests
	}
	v.explain(err, &report)
	return report
}

func (h *testsHandler) hasTenants() bool {
	all := h.engine.Snapshots()
	return all != nil && all.HasTenants()
}

// explain adds to a report why the tests cannot run, as far as the caller may see it.
func (v view) explain(err error, report *TestReport) {
	if err == nil {
		return
	}
	if found, is := errors.AsType[faults.List](err); is {
		if report.Faults = v.faults(found); len(report.Faults) > 0 || v.tenants == nil {
			return
		}
		report.Problem = "The policy store has faults that you may not see."
		return
	}
	report.Problem = err.Error()
	if v.namesOthers(report.Problem) {
		report.Problem = "The tests cannot run."
	}
}

// prepare returns the policies and the tests: the policies in force, if the files are theirs.
func (h *testsHandler) prepare(archive snapshot.Archive, refused error, files *policytest.Files) (*snapshot.Snapshots, []policytest.Test, error) {
	if refused != nil {
		return nil, nil, refused
	}
	tests, err := files.Tests()
	if err != nil {
		return nil, nil, err
	}
	revision, err := snapshot.RevisionOf(archive)
	if err != nil {
		return nil, nil, err
	}
	if all := h.engine.Snapshots(); all != nil && all.Revision() == revision {
		return all, tests, nil
	}
	s, err := snapshot.CompileStore(archive)
	return s, tests, err
}
