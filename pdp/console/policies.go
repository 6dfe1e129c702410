package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A revision has the files and policies of a policy store.
type revision struct {
	Revision string         `json:"revision"`
	Files    []storedFile   `json:"files"`
	Policies []storedPolicy `json:"policies"`
}

type storedFile struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Text    string `json:"text"`
	LeftOut bool   `json:"left_out"`
}

type storedPolicy struct {
	ID          string            `json:"id"`
	Effect      string            `json:"effect"`
	Tenant      string            `json:"tenant"`
	File        string            `json:"file"`
	Line        int               `json:"line"`
	Annotations map[string]string `json:"annotations"`
	Text        string            `json:"text"`
}

// Lines returns the text of a policy with colours.
func (p storedPolicy) Lines() []codeLine { return cedarLines(p.Text, p.Line) }

// A reload is an attempt to load policies.
type reload struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Store    string    `json:"store"`
	Cause    string    `json:"cause"`
	Loaded   bool      `json:"loaded"`
	Revision string    `json:"revision"`
	Faults   []string  `json:"faults"`

	Before string // the revision of that store before; "" if it is not known or the same
}

type policiesPage struct {
	Status  serviceStatus
	Reloads []reload
	Next    int64
	Cut     bool // the person may not see what was in force when
	Choices []choice
}

// A choice is a revision that can be compared.
type choice struct {
	Name     string // as in paths
	Revision string
	Loaded   time.Time // zero for what is in force now
	Before   bool      // offered first as the one before
	After    bool      // and as the one after
}

// choices lists what the person can compare: what is in force, the shadow policies, and what was in force
// before. A single one cannot be compared.
func (p *policiesPage) choices() (all []choice) {
	all = append(all, choice{Name: currentRevision, Revision: p.Status.Policies.Revision})
	if shadow := p.Status.Shadow; shadow != nil {
		all = append(all, choice{Name: shadowRevision, Revision: shadow.Revision})
	}
	seen := map[string]bool{p.Status.Policies.Revision: true, "": true}
	for _, r := range p.Reloads {
		if r.Loaded && r.Store != shadowRevision && !seen[r.Revision] {
			seen[r.Revision] = true
			all = append(all, choice{Name: r.Revision, Revision: r.Revision, Loaded: r.Time})
		}
	}
	if len(all) == 1 {
		return nil
	}
	if earlier := slices.IndexFunc(all, func(c choice) bool { return !c.Loaded.IsZero() }); earlier >= 0 {
		all[earlier].Before, all[0].After = true, true
	} else {
		all[0].Before, all[1].After = true, true
	}
	return all
}

// Names of revisions in paths.
const (
	currentRevision = "current"
	shadowRevision  = "shadow"
)

// revisionName matches the names of revisions in paths.
var revisionName = regexp.MustCompile(`^(current|shadow|sha256:[0-9a-f]{64})$`)

// compare leads from the form that chooses two revisions to their differences.
func (v *visit) compare() error {
	query := v.r.URL.Query()
	from, to := query.Get("from"), query.Get("to")
	if !revisionName.MatchString(from) || !revisionName.MatchString(to) {
		return &apiError{http.StatusBadRequest, "Choose two revisions of the list."}
	}
	v.redirect("/policies/" + from + ".." + to)
	return nil
}

// policies shows what is in force, and what was.
func (v *visit) policies() error {
	status, err := v.status()
	if err != nil {
		return err
	}
	page := policiesPage{Status: status}
	query := url.Values{"limit": {"50"}}
	if until := v.r.URL.Query().Get("until"); until != "" {
		query.Set("until", until)
	}
	var answer struct {
		Reloads []reload `json:"reloads"`
		Next    int64    `json:"next"`
	}
	err = v.ask(http.MethodGet, "/admin/v1/revisions?"+query.Encode(), nil, &answer)
	var refused *apiError
	if errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		page.Cut = true
	} else if err != nil {
		return err
	}
	page.Reloads, page.Next = answer.Reloads, answer.Next
	for i := range page.Reloads {
		page.Reloads[i].Before = before(page.Reloads[i], page.Reloads[i+1:])
	}
	page.Choices = page.choices()
	return v.show(http.StatusOK, "policies", "Policies", page)
}

// before returns the revision that a reload replaced.
func before(r reload, earlier []reload) string {
	for _, e := range earlier {
		if e.Store == r.Store {
			if e.Revision == r.Revision {
				return ""
			}
			return e.Revision
		}
	}
	return ""
}

// Limits of what one page shows.
const (
	mostLines = 5000 // of a file
	mostFound = 200  // lines that a search finds
)

// A revisionPage shows one file of a revision, or what a search finds in all files.
type revisionPage struct {
	Name string // as in the path
	revision
	File     *storedFile
	Lines    []codeLine
	From     int // number of the first line
	Next     int // number of the first line after those; 0 at the end
	Here     []storedPolicy
	Query    string
	Found    []foundLine
	More     bool // the search finds more
	Searched bool
}

// A foundLine is a line that a search finds.
type foundLine struct {
	File string
	Line codeLine
}

// showRevision shows a revision, or the differences of two, FROM..TO.
func (v *visit) showRevision() error {
	name := v.r.PathValue("revision")
	if from, to, two := strings.Cut(name, ".."); two {
		return v.showDifference(from, to)
	}
	page := revisionPage{Name: name, Query: v.r.URL.Query().Get("q")}
	if err := v.ask(http.MethodGet, "/admin/v1/policies/"+url.PathEscape(name), nil, &page.revision); err != nil {
		return err
	}
	page.search()
	if !page.Searched {
		page.open(v.r.URL.Query().Get("file"), v.r.URL.Query().Get("from"))
	}
	return v.show(http.StatusOK, "revision", "Policies "+shortRevision(page.Revision), page)
}

// linesOf returns the lines of a file, with colours if it holds policies.
func linesOf(f *storedFile) []codeLine {
	if path.Ext(f.Name) == ".cedar" {
		return cedarLines(f.Text, 1)
	}
	return plainLines(f.Text, 1)
}

// search finds the lines with the text of the query, in any case.
func (p *revisionPage) search() {
	p.Searched = p.Query != ""
	if !p.Searched {
		return
	}
	want := strings.ToLower(p.Query)
	for i := range p.Files {
		for _, line := range linesOf(&p.Files[i]) {
			if !strings.Contains(strings.ToLower(line.text()), want) {
				continue
			}
			if len(p.Found) == mostFound {
				p.More = true
				return
			}
			p.Found = append(p.Found, foundLine{p.Files[i].Name, line})
		}
	}
}

func (l codeLine) text() string {
	var b strings.Builder
	for _, s := range l.Spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

// open selects the file to show: the named one, or the first with policies.
func (p *revisionPage) open(file, from string) {
	for i := range p.Files {
		f := &p.Files[i]
		if f.Name == file || file == "" && (p.File == nil || path.Ext(p.File.Name) != ".cedar") && path.Ext(f.Name) == ".cedar" {
			p.File = f
		}
	}
	if p.File == nil {
		return
	}
	for _, policy := range p.Policies {
		if policy.File == p.File.Name {
			p.Here = append(p.Here, policy)
		}
	}
	lines := linesOf(p.File)
	first, err := strconv.Atoi(cmp.Or(from, "1"))
	if err != nil || first < 1 || first > len(lines) {
		first = 1
	}
	end := min(len(lines), first-1+mostLines)
	if end < len(lines) {
		p.Next = end + 1
	}
	p.From, p.Lines = first, lines[first-1:end]
}

// A difference lists what differs between two revisions.
type difference struct {
	From     string         `json:"from"`
	To       string         `json:"to"`
	Policies []policyChange `json:"policies"`
	Files    []fileChange   `json:"files"`

	FromName, ToName string // as in the path
}

type policyChange struct {
	Change string         `json:"change"`
	ID     string         `json:"id"`
	Before *storedPolicy  `json:"before"`
	After  *storedPolicy  `json:"after"`
	Lines  []comparedLine `json:"lines"`
	Left   int            `json:"lines_left"`
}

// Moved reports whether a changed policy has another effect or place than before.
func (c policyChange) Moved() bool {
	return c.Before.Effect != c.After.Effect || c.Before.File != c.After.File || c.Before.Line != c.After.Line
}

// Code returns the lines that differ, with colours.
func (c policyChange) Code() []diffLine { return diffLines(c.Lines, true) }

// Policy returns the policy as it is afterwards, or as it was.
func (c policyChange) Policy() *storedPolicy {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

type fileChange struct {
	Change string         `json:"change"`
	Name   string         `json:"name"`
	Before int            `json:"before_bytes"`
	After  int            `json:"after_bytes"`
	Lines  []comparedLine `json:"lines"`
	Left   int            `json:"lines_left"`
}

// Code returns the lines that differ.
func (c fileChange) Code() []diffLine { return diffLines(c.Lines, false) }

// showDifference shows the differences of two revisions.
func (v *visit) showDifference(from, to string) error {
	page := difference{FromName: from, ToName: to}
	if err := v.ask(http.MethodGet, "/admin/v1/policies/"+url.PathEscape(from)+"/diff/"+url.PathEscape(to), nil, &page); err != nil {
		return err
	}
	return v.show(http.StatusOK, "difference", "Differences", page)
}
