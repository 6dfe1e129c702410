package pdp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
// running, or Faults or Problem says why they cannot run. With it, Faults and Problem are about tenants
// whose tests are left out.
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

	revisions map[string]string // of the tested policies, by tenant; set when done
	report    TestReport        // set when done
}

// testedFiles are the files that a run depends on: those of a policy store that its caller may see.
type testedFiles struct {
	view
	archive snapshot.Archive
	faults  faults.List // in folders of tenants
	refused error       // why the store cannot be read, or nil
	tests   *policytest.Files
}

// read returns the files of a policy store that the caller may see. A fault in the folder of a tenant
// concerns this tenant alone.
func (v view) read(store fs.FS) *testedFiles {
	archive, err := policystore.Read(store)
	found, listed := errors.AsType[faults.List](err)
	f := &testedFiles{view: v, archive: snapshot.Archive{}, tests: policytest.ReadFiles(store).Only(v.file)}
	if err != nil && (!listed || archive == nil || slices.ContainsFunc(found, inRoot)) {
		f.refused = err
	}
	for _, fault := range found {
		if v.file(fault.File) {
			f.faults = append(f.faults, fault)
		}
	}
	for name, text := range archive {
		if v.file(name) {
			f.archive[name] = text
		}
	}
	return f
}

func inRoot(fault faults.Fault) bool { return snapshot.TenantAt(fault.File) == "" }

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
	report.InForce = report.Report != nil && len(report.Faults) == 0 && report.Problem == "" && h.areInForce(run)
	return report
}

// areInForce reports whether the tested policies are in force, and are all that the caller may see.
func (h *testsHandler) areInForce(run *testRun) bool {
	all := h.engine.Snapshots()
	if all == nil || run.tenants == nil && all.HasTenants() && len(all.Tenants()) != len(run.revisions) {
		return false
	}
	for tenant, revision := range run.revisions {
		if now, err := all.For(tenant); err != nil || now.Revision() != revision {
			return false
		}
	}
	return true
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
	files := v.read(store)
	key, err := files.key()
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
		run.report, run.revisions = h.test(files)
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

// key returns a hash of everything that a report depends on.
func (f *testedFiles) key() ([sha256.Size]byte, error) {
	revision, err := snapshot.RevisionOf(f.archive)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(fmt.Appendf(nil, "%s %x %q %q %q", revision, f.tests.Digest(), fmt.Sprint(f.refused), f.faults, f.tenants)), nil
}

// test runs the tests. It returns the report and the revisions of the tested policies by tenant.
func (h *testsHandler) test(f *testedFiles) (report TestReport, revisions map[string]string) {
	defer func() {
		if fault := recover(); fault != nil {
			report = TestReport{Problem: fmt.Sprintf("the tests failed: %v", fault)}
		}
	}()
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	s, err := h.compile(ctx, f)
	f.explain(err, &report)
	if s != nil {
		f.run(ctx, s, &report)
		revisions = revisionsOf(s)
	}
	report.Faults, report.Seconds = report.Faults.Unique(), time.Since(start).Seconds()
	return report, revisions
}

// revisionsOf returns the revisions of the snapshots of a policy store by tenant, "" for a store without.
func revisionsOf(s *snapshot.Snapshots) map[string]string {
	names := s.Tenants()
	if !s.HasTenants() {
		names = []string{""}
	}
	revisions := map[string]string{}
	for _, tenant := range names {
		if one, err := s.For(tenant); err == nil {
			revisions[tenant] = one.Revision()
		}
	}
	return revisions
}

// compile returns the policies: those in force, if the files are theirs. Tenants whose files do not
// compile are left out, and named by the error.
func (h *testsHandler) compile(ctx context.Context, f *testedFiles) (*snapshot.Snapshots, error) {
	if f.refused != nil {
		return nil, f.refused
	}
	revision, err := snapshot.RevisionOf(f.archive)
	if err != nil {
		return nil, err
	}
	if all := h.engine.Snapshots(); all != nil && len(f.faults) == 0 && all.Revision() == revision {
		return all, nil
	}
	s, _, err := snapshot.NewCompiler(0, nil).Compile(ctx, snapshot.Upgrade{Archive: f.archive, TenantFaults: f.faults, MayShrink: true})
	return s, err
}

// run runs the tests of the root and of tenants whose test files have no fault.
func (f *testedFiles) run(ctx context.Context, s *snapshot.Snapshots, report *TestReport) {
	if f.tenants == nil || !s.HasTenants() {
		report.Revision = s.Revision() // with tenants, it changes with any of them
	}
	_, wrong := f.tests.Tests()
	f.explain(wrong, report)
	broken := brokenIn(wrong)
	if broken[""] {
		return
	}
	tests, err := f.tests.Only(func(file string) bool { return !broken[snapshot.TenantAt(file)] }).Tests()
	if err == nil {
		tenants := slices.DeleteFunc(s.Tenants(), func(tenant string) bool { return broken[tenant] })
		report.Report, err = policytest.RunTenants(ctx, s, tests, tenants)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errLongTests
	}
	f.explain(err, report)
}

// brokenIn returns the tenants with a fault, "" for the root.
func brokenIn(err error) map[string]bool {
	found, _ := errors.AsType[faults.List](err)
	broken := map[string]bool{}
	for _, fault := range found {
		broken[snapshot.TenantAt(fault.File)] = true
	}
	return broken
}

// explain adds to a report why tests cannot run, as far as the caller may see it.
func (v view) explain(err error, report *TestReport) {
	if part, is := errors.AsType[*snapshot.PartError](err); is {
		for _, tenant := range slices.Sorted(maps.Keys(part.Tenants)) {
			v.explain(part.Tenants[tenant], report)
		}
		return
	}
	if err == nil {
		return
	}
	if found, is := errors.AsType[faults.List](err); is {
		own := v.faults(found)
		if report.Faults = append(report.Faults, own...); len(own) == 0 && v.tenants != nil {
			report.Problem = "The policy store has faults that you may not see."
		}
		return
	}
	report.Problem = err.Error()
	if v.namesOthers(report.Problem) {
		report.Problem = "The tests cannot run."
	}
}
