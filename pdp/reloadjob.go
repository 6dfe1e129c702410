package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// A ReloadReport answers a request to read policies and settings. While Reading is set, the reload
// is in progress and the status is 202.
type ReloadReport struct {
	ID       int64             `json:"id"`               // id of the reload
	Reading  string            `json:"reading,omitzero"` // policies, shadow policies or settings; "" after the end
	Seconds  float64           `json:"seconds"`          // duration so far, in seconds
	Loaded   bool              `json:"loaded"`           // the policies were loaded
	Status   evaluation.Status `json:"status"`
	Faults   faults.List       `json:"faults,omitempty"`
	Shadow   evaluation.Status `json:"shadow,omitzero"` // status of the shadow policies
	Settings SettingsReport    `json:"settings,omitzero"`
}

// Limits of reloads: how long a request waits for the end of one, which is well below the write
// deadline of an answer, and how many finished reloads stay available.
const (
	reloadWait     = 5 * time.Second
	maxReloadWait  = 10 * time.Second
	reloadsKept    = 16
	asyncPreferred = "respond-async" // RFC 7240, section 4.1
)

// errNoReload means that the reload is unknown or no longer available.
var errNoReload = errors.New("unknown reload: the service was restarted, or many reloads came after it")

// A reloadJob is a reload in progress. It continues if no request waits for it.
type reloadJob struct {
	id    int64
	began time.Time
	done  chan struct{} // closed at the end of the reload

	mu       sync.Mutex
	reading  string
	took     time.Duration
	settings SettingsReport
	err      error
}

// reloadJobs are the most recent reloads, the newest last.
type reloadJobs struct {
	mu    sync.Mutex
	last  int64 // id of the newest
	kept  []*reloadJob
	goes  sync.WaitGroup
	ended bool
}

// drain waits until ctx has ended and all reloads are finished.
func (j *reloadJobs) drain(ctx context.Context) error {
	<-ctx.Done()
	j.mu.Lock()
	j.ended = true
	j.mu.Unlock()
	j.goes.Wait()
	return nil
}

// find returns the reload with an id, or the newest for 0, or nil.
func (j *reloadJobs) find(id int64) *reloadJob {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range slices.Backward(j.kept) {
		if id == 0 || job.id == id {
			return job
		}
	}
	return nil
}

// start begins a reload of the current files. It returns a waiting reload that has not begun to
// read, if there is one, so that concurrent requests share it.
func (r *reloader) start(ctx context.Context) (*reloadJob, error) {
	j := &r.jobs
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return nil, errOverload // the service is shutting down
	}
	var before *reloadJob
	if n := len(j.kept); n > 0 {
		before = j.kept[n-1]
		if before.waits() {
			return before, nil
		}
	}
	j.last++
	job := &reloadJob{id: j.last, began: time.Now(), reading: waiting, done: make(chan struct{})}
	j.kept = append(j.kept, job)
	j.kept = slices.Clone(j.kept[max(0, len(j.kept)-reloadsKept):])
	j.goes.Go(func() {
		if before != nil {
			<-before.done
		}
		job.run(context.WithoutCancel(ctx), r)
	})
	return job, nil
}

// waiting is the progress of a reload that waits for the one before.
const waiting = "nothing yet"

func (j *reloadJob) waits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reading == waiting
}

func (j *reloadJob) run(ctx context.Context, r *reloader) {
	defer close(j.done)
	settings, err := r.reloadTelling(ctx, func(what string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.reading = what
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reading, j.took, j.settings, j.err = "", time.Since(j.began), settings, err
}

// report returns the report of a reload and the status of the answer.
func (j *reloadJob) report(engine *evaluation.Engine) (int, ReloadReport) {
	j.mu.Lock()
	defer j.mu.Unlock()
	report := ReloadReport{ID: j.id, Reading: j.reading, Seconds: time.Since(j.began).Seconds(), Status: engine.Status(), Shadow: engine.ShadowStatus()}
	if j.reading != "" {
		return http.StatusAccepted, report
	}
	report.Loaded, report.Seconds, report.Settings = j.err == nil, j.took.Seconds(), j.settings
	if j.err != nil && !errors.As(j.err, &report.Faults) {
		report.Faults = faults.List{{File: ".", Message: j.err.Error()}}
	}
	if j.err != nil || j.settings.Problem != "" {
		return http.StatusUnprocessableEntity, report
	}
	return http.StatusOK, report
}

// serveReload reads policies and settings. It answers with the result, or, if the reload takes
// longer than an answer may, with the URL of the result.
func serveReload(engine *evaluation.Engine, reloads *reloader) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := decodeNothing(c); err != nil {
			return err
		}
		job, err := reloads.start(c.Request().Context())
		if err != nil {
			return err
		}
		return job.answer(c, engine)
	}
}

// serveReloaded answers with the report of the reload ?id=, or of the newest.
func serveReloaded(engine *evaluation.Engine, reloads *reloader) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := knownQuery(c, "id"); err != nil {
			return err
		}
		id, err := indexParam(c, "id", 0)
		if err != nil {
			return err
		}
		job := reloads.jobs.find(id)
		if job == nil {
			return errNoReload
		}
		return job.answer(c, engine)
	}
}

// answer waits for the end of a reload, for a limited time, and writes its report.
func (j *reloadJob) answer(c echo.Context, engine *evaluation.Engine) error {
	timer := time.NewTimer(waitFor(c.Request().Header.Values(headerPrefer)))
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
	case <-c.Request().Context().Done():
	}
	code, report := j.report(engine)
	if code == http.StatusAccepted {
		c.Response().Header().Set(echo.HeaderLocation, fmt.Sprintf("%s?id=%d", PathReload, j.id))
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
	}
	return writeJSON(c, code, report)
}

// waitFor returns how long an answer waits for the end of a reload.
func waitFor(preferences []string) time.Duration {
	if slices.ContainsFunc(preferences, func(p string) bool { return strings.Contains(strings.ToLower(p), asyncPreferred) }) {
		return 0
	}
	return min(cmp.Or(preferredWait(preferences), reloadWait), maxReloadWait)
}
