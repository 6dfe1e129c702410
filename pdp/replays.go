package pdp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// States of a replay.
const (
	replayRunning   = "running"
	replayDone      = "done"
	replayFailed    = "failed"
	replayCancelled = "cancelled"
)

// A ReplayJob is a replay of logged decisions with other policies. A caller of some tenants does not
// get Done and Of, which count entries of all tenants.
type ReplayJob struct {
	ID       string         `json:"id"`
	State    string         `json:"state"`           // running, done, failed or cancelled
	Store    string         `json:"store"`           // upload or shadow
	By       string         `json:"by,omitzero"`     // who began it
	Tenant   string         `json:"tenant,omitzero"` // the decisions of this tenant
	Since    time.Time      `json:"since,omitzero"`  // the decisions from this time on
	Started  time.Time      `json:"started"`
	Seconds  float64        `json:"seconds"`          // duration so far
	Percent  int            `json:"percent"`          // share of the log that was read
	Done     int64          `json:"done,omitzero"`    // entries that were read
	Of       int64          `json:"of,omitzero"`      // entries to read
	Problem  string         `json:"problem,omitzero"` // why it failed
	Faults   faults.List    `json:"faults,omitempty"` // of the policy store
	Report   *replay.Report `json:"report,omitempty"` // of a replay that is done
	visibles []string       // tenants of the caller; nil means all
	memory   int64          // bytes of the uploaded policy store
}

// owner returns who may begin no other replay while this one runs: the callers of the same tenants.
func (j *ReplayJob) owner() string {
	if j.visibles == nil {
		return "all tenants"
	}
	return fmt.Sprintf("%q", slices.Sorted(slices.Values(j.visibles)))
}

var (
	// errReplayRuns rejects a replay while another runs that the caller may see.
	errReplayRuns = errors.New("another replay of yours runs: wait for its end, or cancel it")
	// errReplaysBusy rejects a replay beyond those of all callers. It does not tell whose they are.
	errReplaysBusy = errors.New("the service is busy: try again later")
	// errNoReplay means that a replay is unknown or no longer kept.
	errNoReplay = errors.New("unknown replay: the service was restarted, or other replays came after it")
	// errNoZip rejects an upload that is not declared as a zip archive.
	errNoZip = errors.New("the Content-Type must be application/zip")
)

const (
	mimeZip        = "application/zip"
	replaysAtOnce  = 4                // of all owners
	replaysKept    = 8                // of one owner
	replaysKeptAll = 64               // of all owners
	replayMemory   = 2 * maxUnzipped  // bytes of all uploaded policy stores
	uploadTime     = 30 * time.Second // to receive a policy store
	replayChunk    = 1000             // entries between two notes of the progress
)

// replays runs replays, one at a time for each owner, and keeps the last ones. See [ReplayJob.owner].
type replays struct {
	engine *evaluation.Engine
	log    *decisionlog.Log
	pace   func() *pacer
	out    *slog.Logger
	memory *admission.MemoryBudget // of uploaded policy stores

	compiling sync.Mutex // one uploaded policy store compiles at a time

	mu    sync.Mutex
	kept  []*replayTask   // the newest last
	busy  map[string]bool // owners of a replay that runs or is being uploaded
	ended bool            // the service is shutting down
	goes  sync.WaitGroup
}

func newReplays(engine *evaluation.Engine, log *decisionlog.Log, out *slog.Logger, pace func() *pacer) *replays {
	return &replays{engine: engine, log: log, pace: pace, out: out, memory: admission.NewMemoryBudget(replayMemory), busy: map[string]bool{}}
}

// A replayTask is a replay and its progress.
type replayTask struct {
	mu  sync.Mutex
	job ReplayJob
	end context.CancelFunc
}

func (t *replayTask) change(do func(*ReplayJob)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(&t.job)
}

func (t *replayTask) isRunning() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.job.State == replayRunning
}

// show returns what the caller may see, or false.
func (t *replayTask) show(v view) (job ReplayJob, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	job = t.job
	if job.State == replayRunning {
		job.Seconds = time.Since(job.Started).Seconds()
	}
	if v.tenants == nil {
		return job, true
	}
	job.Done, job.Of = 0, 0
	return job, job.visibles != nil && !slices.ContainsFunc(job.visibles, func(tenant string) bool { return !v.sees(tenant) })
}

// drain waits until ctx has ended, cancels the replays that run, and waits for their end.
func (r *replays) drain(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	r.ended = true
	for _, task := range r.kept {
		task.end()
	}
	r.mu.Unlock()
	r.goes.Wait()
	return nil
}

// post begins a replay: with the policy store of the body, or with ?store=shadow.
func (r *replays) post(c echo.Context) error {
	job, candidate, err := r.read(c)
	if err != nil {
		return err
	}
	if err := r.reserve(job.owner()); err != nil {
		return err
	}
	begun := false
	defer func() {
		if !begun {
			r.release(job)
		}
	}()
	if candidate == nil {
		if candidate, err = r.readUpload(c, job); err != nil {
			return err
		}
	}
	if err := r.record(c, job); err != nil {
		return err
	}
	begun = true
	r.start(job, candidate)
	c.Response().Header().Set(echo.HeaderLocation, PathReplays+"/"+job.ID)
	return writeJSON(c, http.StatusAccepted, r.find(job.ID).visible(callerFrom(c.Request().Context()).Tenants))
}

// visible is show for the caller who began the replay.
func (t *replayTask) visible(tenants []string) ReplayJob {
	job, _ := t.show(view{tenants})
	return job
}

// A candidate returns the policies of a replay.
type candidate func(ctx context.Context) (*snapshot.Snapshots, error)

// read reads the query. The candidate is nil if the policy store is in the body.
func (r *replays) read(c echo.Context) (*ReplayJob, candidate, error) {
	if err := knownQuery(c, "since", "tenant", "store"); err != nil {
		return nil, nil, err
	}
	who, q := callerFrom(c.Request().Context()), c.QueryParams()
	job := &ReplayJob{ID: "rep_" + rand.Text(), State: replayRunning, Store: "upload", By: who.ID, Tenant: q.Get("tenant"), Started: time.Now().UTC(), visibles: who.Tenants}
	if job.Tenant != "" && !(view{who.Tenants}).sees(job.Tenant) {
		return nil, nil, snapshot.ErrUnknownTenant
	}
	f, err := decisionlog.ParseQuery(q, "store")
	if err != nil {
		return nil, nil, authzen.Invalid("", "%v", err)
	}
	job.Since = f.Since
	switch store := q.Get("store"); store {
	case "":
		return job, nil, nil
	case revisionShadow:
		shadow := r.engine.ShadowSnapshots()
		if shadow == nil {
			return nil, nil, authzen.Invalid("", "names the shadow store, and there is none")
		}
		job.Store = revisionShadow
		return job, func(context.Context) (*snapshot.Snapshots, error) { return shadow, nil }, decodeNothing(c)
	default:
		return nil, nil, authzen.Invalid("", "has a store that is not shadow: %q", store)
	}
}

// readUpload reads the policy store in the body. Faults of the store are those of the replay.
func (r *replays) readUpload(c echo.Context, job *ReplayJob) (candidate, error) {
	if media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType)); err != nil || media != mimeZip {
		return nil, errNoZip
	}
	if c.Request().Header.Get(echo.HeaderContentEncoding) != "" {
		return nil, errEncoding
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(uploadTime)) // else the server's
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxZipBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	archive, refused := storeInZip(body)
	var invalid *authzen.ValidationError
	if errors.As(refused, &invalid) {
		return nil, refused
	}
	if err := r.takeMemory(job, archive); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*snapshot.Snapshots, error) {
		if refused != nil {
			return nil, refused
		}
		r.compiling.Lock()
		defer r.compiling.Unlock()
		s, _, err := snapshot.NewCompiler(0, nil).Compile(ctx, snapshot.Upgrade{Archive: archive, MayShrink: true, Grace: snapshot.CompileDeadline})
		return s, err
	}, nil
}

// takeMemory reserves memory for an uploaded policy store until its replay ends.
func (r *replays) takeMemory(job *ReplayJob, archive snapshot.Archive) error {
	var size int64
	for _, text := range archive {
		size += int64(len(text))
	}
	if !r.memory.Reserve(job.owner(), size) {
		return errReplaysBusy
	}
	job.memory = size
	return nil
}

// reserve makes sure that each owner runs one replay at a time, and all owners together a few.
func (r *replays) reserve(owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return errOverload
	case r.busy[owner]:
		return errReplayRuns
	case len(r.busy) == replaysAtOnce:
		return errReplaysBusy
	}
	r.busy[owner] = true
	return nil
}

func (r *replays) release(job *ReplayJob) {
	r.memory.Release(job.owner(), job.memory)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, job.owner())
}

// keep adds a replay, and forgets the oldest beyond the limits. Callers hold r.mu.
func (r *replays) keep(task *replayTask) {
	r.kept = append(r.kept, task)
	owner := task.job.owner()
	r.forget(replaysKept, func(other *replayTask) bool { return other.job.owner() == owner })
	r.forget(replaysKeptAll, func(*replayTask) bool { return true })
}

// forget removes the oldest replays that have ended, of those that are counted, beyond a number.
func (r *replays) forget(most int, counted func(*replayTask) bool) {
	n := 0
	for _, task := range r.kept {
		if counted(task) {
			n++
		}
	}
	r.kept = slices.DeleteFunc(r.kept, func(task *replayTask) bool {
		if n <= most || !counted(task) || task.isRunning() {
			return false
		}
		n--
		return true
	})
}

// A replayRequest is the request of an entry about a replay that somebody began.
type replayRequest struct {
	Action string    `json:"action"` // replay
	By     string    `json:"by"`
	Replay string    `json:"replay"`
	Store  string    `json:"store"`
	Since  time.Time `json:"since,omitzero"`
}

func (r *replays) record(c echo.Context, job *ReplayJob) error {
	entry, err := adminEntry(replayRequest{"replay", job.By, job.ID, job.Store, job.Since})
	if err != nil {
		return err
	}
	entry.Time, entry.Tenant = job.Started, job.Tenant
	entry.Caller, entry.RequestID, entry.TraceID = job.By, requestID(c), traceID(c.Request().Context())
	if err := r.log.Append(c.Request().Context(), entry); err != nil {
		return fmt.Errorf("record replay: %w", err)
	}
	return nil
}

// start runs a replay in the background.
func (r *replays) start(job *ReplayJob, policies candidate) {
	ctx, cancel := context.WithCancel(context.Background())
	task := &replayTask{job: *job, end: cancel}
	r.mu.Lock()
	r.keep(task)
	ended := r.ended
	r.mu.Unlock()
	if ended {
		cancel()
	}
	r.goes.Go(func() {
		defer cancel()
		report, err := r.run(ctx, task, policies)
		r.release(job)
		task.change(func(job *ReplayJob) { job.finish(ctx, report, err) })
	})
}

// finish notes the end of a replay.
func (j *ReplayJob) finish(ctx context.Context, report *replay.Report, err error) {
	j.Seconds = time.Since(j.Started).Seconds()
	switch {
	case err == nil:
		j.State, j.Report, j.Percent = replayDone, report, 100
	case ctx.Err() != nil:
		j.State = replayCancelled
	default:
		j.State = replayFailed
		if !errors.As(err, &j.Faults) {
			j.Problem = err.Error()
		}
	}
}

// run replays the decisions that a job selects. It gives way to decisions of PEPs.
func (r *replays) run(ctx context.Context, task *replayTask, policies candidate) (report *replay.Report, err error) {
	defer survive(r.out, &err)
	s, err := policies(ctx)
	if err != nil {
		return nil, err
	}
	job := task.job // its query does not change
	f := decisionlog.Filter{Tenant: job.Tenant, Tenants: job.visibles, Since: job.Since}
	size, pace := r.log.Head().Size, r.pace()
	repeat := replay.New(s, r.log.ReadArchive)
	for from := int64(0); from < size; from += replayChunk {
		f.From, f.Until = from, min(size, from+replayChunk)
		for line, err := range r.log.Select(ctx, f) {
			if err == nil {
				err = repeat.Add(line)
			}
			if err == nil {
				err = pace.rest(ctx)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := pace.rest(ctx); err != nil {
			return nil, err
		}
		task.change(func(job *ReplayJob) { job.Done, job.Of, job.Percent = f.Until, size, int(f.Until*100/size) })
	}
	return repeat.Report(), nil
}

// find returns a replay, or nil.
func (r *replays) find(id string) *replayTask {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, task := range r.kept {
		if task.job.ID == id {
			return task
		}
	}
	return nil
}

// ReplayJobs lists replays, the newest first.
type ReplayJobs struct {
	Replays []ReplayJob `json:"replays"`
}

// list answers with the replays of the caller, without their reports.
func (r *replays) list(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	v, out := view{callerFrom(c.Request().Context()).Tenants}, ReplayJobs{Replays: []ReplayJob{}}
	r.mu.Lock()
	kept := slices.Clone(r.kept)
	r.mu.Unlock()
	for _, task := range slices.Backward(kept) {
		if job, ok := task.show(v); ok {
			job.Report = nil
			out.Replays = append(out.Replays, job)
		}
	}
	return writeJSON(c, http.StatusOK, out)
}

// get answers with the progress or the report of a replay.
func (r *replays) get(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	job, _, err := r.ofCaller(c)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, job)
}

// delete cancels a replay, which then ends soon, and answers with its last state.
func (r *replays) delete(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	job, task, err := r.ofCaller(c)
	if err != nil {
		return err
	}
	task.end()
	return writeJSON(c, http.StatusOK, job)
}

// ofCaller returns the replay that the path names. To callers who may not see it, it does not exist.
func (r *replays) ofCaller(c echo.Context) (ReplayJob, *replayTask, error) {
	task := r.find(c.Param(paramID))
	if task == nil {
		return ReplayJob{}, nil, errNoReplay
	}
	job, ok := task.show(view{callerFrom(c.Request().Context()).Tenants})
	if !ok {
		return ReplayJob{}, nil, errNoReplay
	}
	return job, task, nil
}
