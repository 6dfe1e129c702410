package console

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A replayJob is a replay of logged decisions with other policies.
type replayJob struct {
	ID      string        `json:"id"`
	State   string        `json:"state"`
	Store   string        `json:"store"`
	By      string        `json:"by"`
	Tenant  string        `json:"tenant"`
	Since   time.Time     `json:"since"`
	Started time.Time     `json:"started"`
	Seconds float64       `json:"seconds"`
	Percent int           `json:"percent"`
	Done    int64         `json:"done"`
	Of      int64         `json:"of"`
	Problem string        `json:"problem"`
	Faults  []fault       `json:"faults"`
	Report  *replayReport `json:"report"`
}

// Bar returns the width of what is done.
func (j replayJob) Bar() string { return number(float64(j.Percent)) + "%" }

// A replayReport says what other policies would have changed.
type replayReport struct {
	Candidate     string `json:"candidate"`
	Decisions     int64  `json:"decisions"`
	Masked        int    `json:"masked"`
	NotReplayable []struct {
		Path   string `json:"path"`
		Policy string `json:"policy"`
		Count  int    `json:"count"`
	} `json:"not_replayable"`
	Unfaithful []struct {
		Index  int64  `json:"index"`
		ID     string `json:"id"`
		Reason string `json:"reason"`
	} `json:"unfaithful"`
	Flips []decisionChange `json:"flips"`
}

// Widening returns the number of decisions that would permit more.
func (r replayReport) Widening() (n int) {
	for _, c := range r.Flips {
		if c.Widens() {
			n += c.Count
		}
	}
	return n
}

// mostShownFlips is the number of changes on one page.
const mostShownFlips = 500

// Shown returns the changes that the page shows.
func (r replayReport) Shown() []decisionChange { return r.Flips[:min(len(r.Flips), mostShownFlips)] }

// Left returns the number of changes that the page leaves out.
func (r replayReport) Left() int { return len(r.Flips) - len(r.Shown()) }

type replaysPage struct {
	Replays []replayJob
	Shadow  bool
	Problem string
}

// replays lists the replays, with the form for a new one.
func (v *visit) replays() error { return v.showReplays(http.StatusOK, "") }

func (v *visit) showReplays(status int, problem string) error {
	state, err := v.status()
	if err != nil {
		return err
	}
	page := replaysPage{Shadow: state.Shadow != nil, Problem: problem}
	var list struct {
		Replays []replayJob `json:"replays"`
	}
	if err := v.ask(http.MethodGet, "/admin/v1/replays", nil, &list); err != nil {
		return err
	}
	page.Replays = list.Replays
	return v.show(status, "replays", "Replays", page)
}

// Limits of the form of a replay, whose policy store may have 4 MiB.
const (
	mostUpload = 4<<20 + 64<<10
	uploadTime = 30 * time.Second
)

// postReplay begins a replay: with an uploaded policy store, or with the shadow policies.
func (v *visit) postReplay() error {
	_ = http.NewResponseController(v.w).SetReadDeadline(v.config.Now().Add(uploadTime)) // else the server's
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostUpload)
	if err := v.r.ParseMultipartForm(mostUpload); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return v.showReplays(http.StatusBadRequest, "The upload is larger than 4 MiB or broken.")
	}
	query, body, err := v.replayForm()
	if err != nil {
		return v.showReplays(http.StatusBadRequest, err.Error())
	}
	var job replayJob
	err = v.send(v.r.Context(), v.session.identity, http.MethodPost, "/admin/v1/replays?"+query.Encode(), "application/zip", body, &job)
	var refused *apiError
	switch {
	case errors.As(err, &refused) && (refused.Status < http.StatusInternalServerError || refused.Status == http.StatusServiceUnavailable):
		return v.showReplays(refused.Status, refused.Message)
	case err != nil:
		return err
	}
	v.redirect("/replays/" + url.PathEscape(job.ID))
	return nil
}

// Sentences of the page about a form that is filled in wrongly.
const (
	noUpload = "Choose a zip archive with a policy store."
	noDay    = "Write the day as 2026-01-31."
)

// replayForm reads the form of a replay.
func (v *visit) replayForm() (query url.Values, body []byte, err error) {
	form := v.r.Form
	query = url.Values{}
	if tenant := form.Get("tenant"); tenant != "" {
		query.Set("tenant", tenant)
	}
	if day := form.Get("since"); day != "" {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			return nil, nil, errVerdict{noDay}
		}
		query.Set("since", at.Format(time.RFC3339))
	}
	if form.Get("store") == "shadow" {
		query.Set("store", "shadow")
		return query, nil, nil
	}
	file, _, err := v.r.FormFile("archive")
	if err != nil {
		return nil, nil, errVerdict{noUpload}
	}
	defer file.Close()
	body, err = io.ReadAll(file)
	if err == nil && len(body) == 0 {
		err = errVerdict{noUpload}
	}
	return query, body, err
}

// showReplay shows the progress of a replay, or what it found.
func (v *visit) showReplay() error {
	var job replayJob
	if err := v.ask(http.MethodGet, "/admin/v1/replays/"+url.PathEscape(v.r.PathValue("id")), nil, &job); err != nil {
		return err
	}
	if job.State == "running" {
		v.w.Header().Set("Refresh", refreshAfter)
	}
	if job.Report != nil {
		v.openExamples(job.Report.Flips)
	}
	return v.show(http.StatusOK, "replay", "Replay", job)
}

// cancelReplay cancels a replay.
func (v *visit) cancelReplay() error {
	path := "/replays/" + url.PathEscape(v.r.PathValue("id"))
	if err := v.ask(http.MethodDelete, "/admin/v1"+path, nil, nil); err != nil {
		return err
	}
	v.redirect(path)
	return nil
}
