package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A tryPage is a request that somebody tries, and what the policies say to it.
type tryPage struct {
	Tenant  string
	By      string // current or shadow
	Request string // JSON as written
	From    string // Decision-ID of the decision that the request comes from
	Masked  []string
	Problem string // why it could not be tried
	Result  *tried
	Shadow  bool // there are shadow policies
	Opens   bool // the person may open entries of the log
	Example bool // the request was made of names in the policy store
}

// A tried is the answer to a try.
type tried struct {
	By struct {
		Store    string    `json:"store"`
		Revision string    `json:"revision"`
		Time     time.Time `json:"time"`
		ID       string    `json:"id"`
	} `json:"by"`
	Explanation explanation `json:"explanation"`
	Shadow      *struct {
		Revision    string       `json:"revision"`
		Effect      string       `json:"effect"`
		Explanation *explanation `json:"explanation"`
		Problem     string       `json:"problem"`
	} `json:"shadow"`
	Test string `json:"test"` // a test file that expects the answer; "" if no test can
}

// Here returns the answer of the policies that were asked.
func (t *tried) Here() reasons { return reasons{Why: &t.Explanation} }

// Beside returns the answer of the shadow policies.
func (t *tried) Beside() reasons { return reasons{Why: t.Shadow.Explanation} }

// reasons are what the template "why" shows.
type reasons struct {
	Why *explanation
	Try string // address of a page that tries the request again; "" for none
}

// try shows the form with a request to begin with: that of a decision, or the last one.
func (v *visit) try() error {
	query := url.Values{}
	for _, name := range []string{"from", "tenant"} {
		if value := v.r.URL.Query().Get(name); value != "" {
			query.Set(name, value)
		}
	}
	var start struct {
		Tenant  string         `json:"tenant"`
		Request jsontext.Value `json:"request"`
		From    string         `json:"from"`
		Masked  []string       `json:"masked"`
		Example bool           `json:"example"`
	}
	if err := v.ask(http.MethodGet, "/admin/v1/try?"+query.Encode(), nil, &start); err != nil {
		return err
	}
	page := tryPage{Tenant: start.Tenant, By: "current", From: start.From, Masked: start.Masked, Example: start.Example}
	page.Request = indented(string(start.Request))
	return v.showTry(http.StatusOK, page)
}

// indented returns JSON over several lines, or a text that is not JSON as it is.
func indented(text string) string {
	value := jsontext.Value(text).Clone()
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		return text
	}
	return string(value)
}

// notJSON says where a text is not JSON, or "".
func notJSON(text string) string {
	value := jsontext.Value(text).Clone()
	err := value.Compact()
	if err == nil {
		return ""
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return "The request is not valid JSON."
	}
	before := text[:min(int(syntax.ByteOffset), len(text))]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("The request is not valid JSON at line %d, column %d.", strings.Count(before, "\n")+1, utf8.RuneCountInString(line)+1)
}

// postTry tries a request.
func (v *visit) postTry() error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, 4*mostForm) // characters of the request may take three bytes each
	if err := v.r.ParseForm(); err != nil {
		return &apiError{http.StatusBadRequest, "The form is too long or broken. Nothing was tried."}
	}
	form := v.r.PostForm
	page := tryPage{Tenant: strings.TrimSpace(form.Get("tenant")), By: form.Get("by"), Request: form.Get("request"), From: form.Get("from")}
	status := http.StatusOK
	if problem := notJSON(page.Request); problem != "" {
		status, page.Problem = http.StatusBadRequest, problem
		return v.showTry(status, page)
	}
	body := map[string]any{"request": jsontext.Value(page.Request), "by": page.By}
	if page.Tenant != "" {
		body["tenant"] = page.Tenant
	}
	var result tried
	err := v.ask(http.MethodPost, "/admin/v1/try", body, &result)
	var refused *apiError
	if errors.As(err, &refused) && refused.Status < http.StatusInternalServerError {
		status, page.Problem = refused.Status, refused.Message
	} else if err != nil {
		return err
	} else {
		page.Result = &result
	}
	return v.showTry(status, page)
}

func (v *visit) showTry(status int, page tryPage) error {
	state, err := v.status()
	if err != nil {
		return err
	}
	page.Shadow, page.Opens = state.Shadow != nil, v.may(scopeAudit)
	return v.show(status, "try", "Try a request", page)
}
