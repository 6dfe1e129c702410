package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
)

// requestPath returns the path of a request, or of a part of it, in the admin API and in the console.
func requestPath(task, part string) string { return "/requests/" + url.PathEscape(task) + part }

const adminPrefix = "/admin/v1"

// mostForm is the maximum size of a form in bytes.
const mostForm = 1 << 20

// showRequest shows a request to whoever may decide on it.
func (v *visit) showRequest() error {
	task := v.r.PathValue("task")
	if v.polls {
		answer, err := v.read(adminPrefix + requestPath(task, ""))
		if err != nil {
			return err
		}
		if v.tag = answer.header.Get(headerTag); v.isCurrent() {
			return nil
		}
	}
	page, err := v.requestPage(task)
	if err != nil {
		return err
	}
	return v.showRequestPage(http.StatusOK, page)
}

// mostTitle limits the action in the title of a page, in characters.
const mostTitle = 60

func (v *visit) showRequestPage(status int, page *requestPage) error {
	return v.show(status, "request", requestTitle(page.Sheet.Items[0].Action.Name, page.State.Open()), page)
}

// requestTitle returns the title of the page of a request for an action, which somebody else named.
func requestTitle(action string, open bool) string {
	title := plain.Cut(plain.Name(action), mostTitle)
	if open {
		return "Decide: " + title
	}
	return title
}

// requestPage returns the page of a request. The sheet is read first: if the request changed afterwards, a
// decision on the page is refused.
func (v *visit) requestPage(task string) (*requestPage, error) {
	var text []byte
	if err := v.ask(http.MethodGet, adminPrefix+requestPath(task, "/sheet"), nil, &text); err != nil {
		return nil, err
	}
	s, err := readSheet(text)
	if err != nil {
		return nil, err
	}
	var r request
	tag, err := v.tagged(adminPrefix+requestPath(task, ""), &r)
	if err != nil {
		return nil, err
	}
	v.keepUp(requestPath(task, ""), tag)
	page := newRequestPage(s, &r, &v.session.identity)
	page.Ticket = v.forms.issue(v.session.forms, s.Task)
	page.Notified = v.config.Notifies
	page.Decided = slices.ContainsFunc(page.Votes, func(vote voteView) bool { return vote.Mine }) && !page.State.Open()
	if page.Decided {
		if page.Next, err = v.nextRequest(task); err != nil {
			return nil, err
		}
	}
	if r.StepUp() && !v.canStepUp() {
		page.NeedsProvider = page.State.Approve
		page.State.Approve, page.State.Delegate = false, false
	}
	page.SignsInAgain = page.State.Approve && v.stepsUp(&r)
	if page.Audits {
		for i := range page.Votes {
			page.Votes[i].Index = v.indexOf(page.Votes[i].Entry)
		}
	}
	return page, nil
}

// nextRequest returns the id of the first request that waits for the person and is not this one, or "".
func (v *visit) nextRequest(task string) (string, error) {
	var list requestsPage
	if err := v.ask(http.MethodGet, views[0].path+"&limit=2", nil, &list); err != nil {
		return "", err
	}
	for _, r := range list.Requests {
		if r.ID != task {
			return r.ID, nil
		}
	}
	return "", nil
}

// indexOf returns the index of an entry of the log, or -1 if it is not known.
func (v *visit) indexOf(entry string) int64 {
	var line struct {
		Index int64 `json:"index"`
	}
	if entry == "" || v.ask(http.MethodGet, apiLogEntries+url.PathEscape(entry), nil, &line) != nil {
		return -1
	}
	return line.Index
}

// A verdict is a decision that a person has sent, before the person's identity provider has confirmed it.
type verdict struct {
	Task   string
	Ticket string // taken when the verdict came
	Vote   vote
	Act    string // reveal or revoke, which is no vote; otherwise ""
}

// A vote is the body of a decision for the admin API.
type vote struct {
	Decision   string                    `json:"decision"` // approve, deny or delegate
	Sheet      string                    `json:"sheet"`
	Policies   string                    `json:"policies,omitzero"`
	Comment    string                    `json:"comment,omitzero"`
	Items      []int                     `json:"items,omitempty"`
	Until      time.Time                 `json:"approved_until,omitzero"`
	To         *person                   `json:"to,omitempty"`
	Arguments  map[string]jsontext.Value `json:"arguments,omitempty"`
	Capability *grant                    `json:"capability,omitempty"`
}

type person struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type grant struct {
	Duration int64 `json:"duration"` // seconds
}

// errVerdict means that a form is filled in wrongly.
type errVerdict struct{ message string }

func (e errVerdict) Error() string { return e.message }

// postDecision takes a decision. The ticket of its form is good for one that is recorded.
func (v *visit) postDecision() error {
	task := v.r.PathValue("task")
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostForm)
	if err := v.r.ParseForm(); err != nil {
		return &apiError{http.StatusBadRequest, "The form is too long or broken. Nothing was decided."}
	}
	decision, err := v.verdict(task)
	if err == nil {
		err = v.forms.take(v.session.forms, task, decision.Ticket)
	}
	if err != nil {
		return v.refused(decision, err)
	}
	return v.submit(decision)
}

// verdict reads the form of a decision.
func (v *visit) verdict(task string) (d verdict, err error) {
	form := v.r.PostForm
	d = verdict{Task: task, Ticket: form.Get("ticket"), Vote: vote{
		Decision: form.Get("decision"), Sheet: form.Get("sheet"), Policies: form.Get("policies"), Comment: strings.TrimSpace(strings.ReplaceAll(form.Get("comment"), "\r\n", "\n")),
	}}
	if d.Vote.Sheet == "" {
		return d, errVerdict{"The form has no sheet."}
	}
	if len(form["decision"]) != 1 {
		return d, errVerdict{"The form has more than one decision, or none."}
	}
	if form.Get("bulk") != "" && len(form["item"]) == 0 {
		return d, errVerdict{"Choose at least one call."}
	}
	for _, text := range form["item"] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return d, errVerdict{"The form names a call that is none."}
		}
		d.Vote.Items = append(d.Vote.Items, n)
	}
	switch d.Vote.Decision {
	case "delegate":
		if form.Get("to") == "" {
			return d, errVerdict{"Write the name of the person who decides from now on."}
		}
		d.Vote.To = &person{v.session.identity.Type, form.Get("to")}
	case "approve":
		err = v.terms(&d.Vote, form)
	}
	return d, err
}

// terms reads what an approval may have beside the decision: an earlier end, changed arguments and a
// capability.
func (v *visit) terms(d *vote, form url.Values) error {
	if text := form.Get("minutes"); text != "" {
		minutes, err := strconv.Atoi(text)
		if err != nil || minutes < 1 || minutes > 365*24*60 {
			return errVerdict{"The number of minutes is not a number from 1."}
		}
		d.Until = v.config.Now().Add(time.Duration(minutes) * time.Minute).UTC().Truncate(time.Second)
	}
	if text := form.Get("grant"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 1 {
			return errVerdict{"The time for further calls is not a number."}
		}
		d.Capability = &grant{seconds}
	}
	for name := range form {
		argument, is := strings.CutPrefix(name, "argument.")
		if !is || form.Get(name) == form.Get("was."+argument) {
			continue
		}
		value := jsontext.Value(form.Get(name))
		if !value.IsValid() {
			return errVerdict{"The changed value of " + argument + " is not JSON. A text needs quotes."}
		}
		if d.Arguments == nil {
			d.Arguments = make(map[string]jsontext.Value)
		}
		d.Arguments[argument] = value
	}
	return nil
}

// decide sends a verdict in the name of a person, and leads to the page that shows what became of it. The
// identity says how the person proved who they are for this verdict.
func (v *visit) decide(d verdict, who Identity) error {
	err := v.Console.ask(v.r.Context(), who, http.MethodPost, adminPrefix+requestPath(d.Task, "/decision"), d.Vote, nil)
	if err != nil {
		if !isRefusal(err) || isInvalid(err) {
			v.forms.release(d.Ticket)
		}
		return v.refused(d, err)
	}
	v.redirect(requestPath(d.Task, ""))
	return nil
}

// counted reports whether a vote is that of the verdict: nobody votes twice on an item.
func (d verdict) counted(of voteView) bool {
	return of.Mine && (len(d.Vote.Items) == 0 || slices.Contains(d.Vote.Items, of.Item))
}

// isRefusal reports whether the service has answered that a decision does not count.
func isRefusal(err error) bool {
	var problem *apiError
	return errors.As(err, &problem) && problem.Status < http.StatusInternalServerError
}

// isInvalid reports whether the service did not understand a decision, which can be mended and sent again.
func isInvalid(err error) bool {
	var problem *apiError
	return errors.As(err, &problem) && problem.Status == http.StatusBadRequest
}

// A message says what became of what the person has just tried.
type message struct {
	Kind string // stale, lost, refused, conflict, invalid or form
	Text string // of the service
	Act  string // delegate, reveal or revoke; otherwise the person decided
}

// refused shows the request as it is now, and why the decision does not count. What the person has typed
// stays.
func (v *visit) refused(d verdict, err error) error {
	status, m := v.messageOf(err)
	page, errPage := v.requestPage(d.Task)
	if errPage != nil {
		return errPage
	}
	if m.Act = d.Act; d.Vote.Decision == "delegate" {
		m.Act = d.Vote.Decision
	}
	if m.Kind == "lost" && d.Act == "" && slices.ContainsFunc(page.Votes, d.counted) {
		v.redirect(requestPath(d.Task, ""))
		return nil
	}
	page.Message, page.Comment = &m, d.Vote.Comment
	if d.Ticket != "" && (m.Kind == "lost" || m.Kind == "invalid") {
		page.Ticket = d.Ticket
	}
	return v.showRequestPage(status, page)
}

// messageOf returns the status and the message for an error.
func (v *visit) messageOf(err error) (int, message) {
	var problem *apiError
	var form errVerdict
	switch {
	case errors.Is(err, errForm):
		return http.StatusConflict, message{Kind: "form"}
	case errors.As(err, &form):
		return http.StatusBadRequest, message{Kind: "invalid", Text: form.message}
	case !errors.As(err, &problem) || problem.Status >= http.StatusInternalServerError:
		v.config.Log.ErrorContext(v.r.Context(), "console", "path", v.r.URL.Path, "error", err)
		return http.StatusServiceUnavailable, message{Kind: "lost"}
	case problem.Status == http.StatusConflict && problem.Message == staleMessage:
		return problem.Status, message{Kind: "stale"}
	case problem.Status == http.StatusConflict && problem.Message == policiesMessage:
		return problem.Status, message{Kind: "policies"}
	case problem.Status == http.StatusConflict:
		return problem.Status, message{Kind: "conflict", Text: problem.Message}
	case problem.Status == http.StatusForbidden:
		return problem.Status, message{Kind: "refused", Text: problem.Message}
	}
	return problem.Status, message{Kind: "invalid", Text: problem.Message}
}

// policiesMessage is what the admin API says of an approval that was shown under other policies.
const policiesMessage = "the policies have changed since the request was shown"

// staleMessage is what the admin API says of a decision on another sheet.
const staleMessage = "the request is not the one that was shown"

// revealValue shows a page with one masked value.
func (v *visit) revealValue() error {
	task, path := v.r.PathValue("task"), jsontext.Pointer(v.r.PostFormValue("path"))
	var out struct {
		Value jsontext.Value `json:"value"`
	}
	if err := v.ask(http.MethodPost, adminPrefix+requestPath(task, "/reveal"), map[string]any{"path": path}, &out); err != nil {
		return v.refused(verdict{Task: task, Act: "reveal"}, err)
	}
	page, err := v.requestPage(task)
	if err != nil {
		return err
	}
	l := newLeaf(path, path.LastToken(), out.Value)
	page.Revealed = &l
	return v.showRequestPage(http.StatusOK, page)
}

// revoke ends an approval.
func (v *visit) revoke() error {
	var out request
	body := map[string]string{"reason": v.r.PostFormValue("reason")}
	if err := v.ask(http.MethodPost, "/admin/v1/approvals/"+url.PathEscape(v.r.PathValue("approval"))+"/revoke", body, &out); err != nil {
		if task := v.r.PostFormValue("task"); isRefusal(err) && task != "" {
			return v.refused(verdict{Task: task, Act: "revoke"}, err)
		}
		return err
	}
	v.redirect(requestPath(out.ID, ""))
	return nil
}
