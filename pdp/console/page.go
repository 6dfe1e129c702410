package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/callers"
)

//go:embed pages
var pageFiles embed.FS

// frameFile is the template around every page; icons.html has the pictures.
const frameFile = "frame.html"

// pages are the templates by name. Each is the frame with the blocks of one file, pages/NAME.html,
// which defines "main" and may define "head".
type pages map[string]*template.Template

func (c *Console) loadPages() (pages, error) {
	frame, err := template.New(frameFile).Funcs(c.functions()).ParseFS(pageFiles, "pages/"+frameFile, "pages/icons.html", "pages/names.html", "pages/entries.html", "pages/reasons.html", "pages/author.html")
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	all := make(pages)
	for _, file := range files {
		one, err := template.Must(frame.Clone()).ParseFS(pageFiles, file)
		if err != nil {
			return nil, fmt.Errorf("read pages: %w", err)
		}
		all[strings.TrimSuffix(path.Base(file), ".html")] = one
	}
	return all, nil
}

// functions are those that templates call. A text that somebody else wrote goes through plain.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"asset":  c.assets.url,
		"plain":  plain.Text,
		"lines":  plain.Lines,
		"utc":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"age":    func(t time.Time) string { return duration(c.config.Now().Sub(t)) },
		"left":   func(t time.Time) string { return duration(t.Sub(c.config.Now())) },
		"span":   plainDuration,
		"marked": parts,
		"quoted": quotedParts,
		"simple": plain.IsSimple,
		"pair":   func(page *requestPage, of []leaf) valuesView { return valuesView{page, of} },
		"one":    plain.Count[int],
		"runs":   isToolCall,

		"sentence": func(text string) string {
			first, size := utf8.DecodeRuneInString(text)
			return string(unicode.ToUpper(first)) + text[size:]
		},

		"short":   shortRevision,
		"ms":      milliseconds,
		"effect":  effectWords,
		"whole":   whole,
		"compact": compact,
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
		"tabs":    textWithTabs,
		"example": func(id string) string { return id[max(0, len(id)-8):] },
	}
}

// duration returns a length of time in its largest unit: 52 min.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// A frame is what the templates get.
type frame struct {
	Title string
	Who   *Identity // nil before signing in
	Menu  []menuItem
	Watch string // path at which the page asks whether it is up to date; "" for a page that does not
	Tag   string // entity tag of what it shows
	Page  any
}

// A menuItem is a page in the menu.
type menuItem struct {
	Title, Path string
	Here        bool
	Key         string // that leads to the page after g, see keys.mjs

	scopes []callers.Scope
	below  []string // paths of further pages that are part of it
}

// menu lists the pages that the menu offers to people with one of the scopes.
var menu = []menuItem{
	{Title: "Overview", Path: "/", Key: "o", scopes: []callers.Scope{scopeAdmin}},
	{Title: "Approvals", Path: "/requests", Key: "a", scopes: []callers.Scope{scopeApprove}},
	{Title: "Decisions", Path: "/decisions", Key: "d", scopes: []callers.Scope{scopeAudit}, below: []string{"/live", "/tasks"}},
	{Title: "Policies", Path: "/policies", Key: "p", scopes: []callers.Scope{scopeAdmin}, below: []string{"/tests", "/shadow", "/replays"}},
	{Title: "Try", Path: "/try", Key: "t", scopes: []callers.Scope{scopeAdmin}},
}

// menuFor returns the menu for the person.
func (v *visit) menuFor() (items []menuItem) {
	for _, item := range menu {
		if v.may(item.scopes...) {
			item.Here = v.isAt(item.Path) || slices.ContainsFunc(item.below, v.isAt)
			items = append(items, item)
		}
	}
	return items
}

// isAt reports whether the visit is at a path or below it.
func (v *visit) isAt(path string) bool {
	return v.r.URL.Path == path || path != "/" && strings.HasPrefix(v.r.URL.Path, path+"/")
}

// show answers with a page. Nothing is sent of a page that fails on its way.
func (v *visit) show(status int, name, title string, page any) error {
	f := frame{Title: title, Menu: v.menuFor(), Watch: v.watch, Tag: v.tag, Page: page}
	if v.session != nil {
		f.Who = &v.session.identity
	}
	var text bytes.Buffer
	if err := v.pages[name].ExecuteTemplate(&text, frameFile, f); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.tag != "" {
		v.w.Header().Set(headerTag, v.tag)
	}
	v.w.WriteHeader(status)
	_, _ = text.WriteTo(v.w) // the browser may have gone
	return nil
}

// showError answers with a page that says what is wrong.
func (v *visit) showError(status int, message string) {
	page := errorPage{status, http.StatusText(status), message}
	if err := v.show(status, "error", page.Name, page); err != nil {
		http.Error(v.w, message, status)
	}
}

type errorPage struct {
	Status  int
	Name    string
	Message string
}
