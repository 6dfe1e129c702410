package conformance

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A row is a check as data: the requests to send, in order, and what is
// demanded of the answers.
type row struct {
	name string
	send requests
	want demand
}

// An api is an endpoint that is asked by POST.
type api struct {
	name     string // in names of modules
	path     string // below the base URL
	metadata string // the member of the metadata with its URL
}

var (
	evaluation  = api{"evaluation", authzen.PathEvaluation, "access_evaluation_endpoint"}
	evaluations = api{"evaluations", authzen.PathEvaluations, "access_evaluations_endpoint"}

	searchSubject  = api{"subject-search", authzen.PathSearchSubject, "search_subject_endpoint"}
	searchResource = api{"resource-search", authzen.PathSearchResource, "search_resource_endpoint"}
	searchAction   = api{"action-search", authzen.PathSearchAction, "search_action_endpoint"}
)

// A request is sent as it stands. An empty header is not sent.
type request struct {
	api           api
	method        string
	contentType   string
	body          string
	id            string // X-Request-ID
	authorization credentials
	follow        follow
}

// follow says whether the pages behind an answer are asked for, too.
type follow int

const (
	alone     follow = iota
	byToken          // with the token alone
	repeating        // with the rest of the page as it was
)

// credentials say what a request has for Authorization.
type credentials int

const (
	theirs credentials = iota // the target's
	none
	bogus
)

type requests []request

// post sends each body as JSON.
func (a api) post(bodies ...string) requests {
	var out requests
	for _, body := range bodies {
		out = append(out, request{api: a, method: http.MethodPost, contentType: "application/json", body: body})
	}
	return out
}

func (r requests) with(change func(*request)) requests {
	out := append(requests{}, r...)
	for i := range out {
		change(&out[i])
	}
	return out
}

// by sends the requests by another method.
func (r requests) by(method string) requests {
	return r.with(func(r *request) { r.method = method })
}

// as sends each of the requests once as each of the content types.
func (r requests) as(contentTypes ...string) requests {
	var out requests
	for _, contentType := range contentTypes {
		out = append(out, r.with(func(r *request) { r.contentType = contentType })...)
	}
	return out
}

// tagged gives each request an X-Request-ID of its own.
func (r requests) tagged() requests {
	out := append(requests{}, r...)
	for i := range out {
		out[i].id = fmt.Sprintf("conformance-%s-%d", out[i].api.name, i)
	}
	return out
}

func (r requests) authorized(c credentials) requests {
	return r.with(func(r *request) { r.authorization = c })
}

// followed asks for all pages of a search, each with what the page before was
// asked for or with the token alone.
func (r requests) followed(repeat bool) requests {
	return r.with(func(r *request) {
		r.follow = byToken
		if repeat {
			r.follow = repeating
		}
	})
}

// times sends the requests over and over.
func (r requests) times(n int) requests {
	var out requests
	for range n {
		out = append(out, r...)
	}
	return out
}

func (r requests) and(more requests) requests { return append(append(requests{}, r...), more...) }

// An answer is what came back.
type answer struct {
	request request
	status  int
	header  http.Header
	body    []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%s %s %q: %d %q", a.request.method, a.request.api.name, a.request.body, a.status, a.body)
}

// A caller asks one target.
type caller struct {
	target Target
	http   *http.Client
}

// A session asks for APIs where it found them.
type session struct {
	*caller
	endpoint func(api) (string, error)
}

// static asks at the paths of the specification.
func (c *caller) static() *session {
	return &session{c, func(a api) (string, error) { return c.target.BaseURL + a.path, nil }}
}

// discovery asks at the URLs of the metadata and, where there is none, at the
// paths of the specification. Without metadata it asks nowhere.
func (c *caller) discovery() *session {
	load := sync.OnceValues(c.metadata)
	return &session{c, func(a api) (string, error) {
		doc, err := load()
		if err != nil {
			return "", err
		}
		url, err := doc.text(a.metadata)
		if err != nil || url == "" {
			return c.target.BaseURL + a.path, err
		}
		if below, ok := strings.CutPrefix(url, c.target.Identifier); ok {
			return c.target.BaseURL + below, nil
		}
		return url, nil
	}}
}

func (s *session) checks(rows []row) []Check {
	checks := make([]Check, len(rows))
	for i, row := range rows {
		checks[i] = Check{row.name, func() error { return s.run(row) }}
	}
	return checks
}

// run sends every request of the row before it looks at the answers.
func (s *session) run(row row) error {
	var answers []answer
	for _, r := range row.send {
		url, err := s.endpoint(r.api)
		if err != nil {
			return err
		}
		for pages := 0; pages < maxPages; pages++ {
			a, err := s.call(url, r)
			if err != nil {
				return err
			}
			answers = append(answers, a)
			token := a.nextToken()
			if r.follow == alone || token == "" {
				break
			}
			if r.body, err = r.next(token); err != nil {
				return err
			}
		}
	}
	if len(answers) == 0 {
		return errors.New("there is nothing to ask")
	}
	return row.want(answers)
}

// maxPages is how many pages of one search are asked for.
const maxPages = 100

// nextToken is the token of the page behind an answer, or "".
func (a answer) nextToken() string {
	var body struct {
		Page struct {
			Token string `json:"next_token"`
		} `json:"page"`
	}
	if json.Unmarshal(a.body, &body) != nil { // what is wrong with it is for the demand to say
		return ""
	}
	return body.Page.Token
}

// next returns the body that asks for the page of a token.
func (r request) next(token string) (string, error) {
	var search, page object
	if err := json.Unmarshal([]byte(r.body), &search); err != nil {
		return "", err
	}
	if r.follow == repeating {
		if err := json.Unmarshal(search["page"], &page); err != nil {
			return "", err
		}
	} else {
		page = object{}
	}
	var err error
	if page["token"], err = json.Marshal(token); err != nil {
		return "", err
	}
	if search["page"], err = json.Marshal(page); err != nil {
		return "", err
	}
	body, err := json.Marshal(search)
	return string(body), err
}

func (c *caller) call(url string, r request) (answer, error) {
	out, err := http.NewRequest(r.method, url, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	for name, value := range map[string]string{
		"Accept": "application/json", "Content-Type": r.contentType,
		"X-Request-ID": r.id, "Authorization": c.authorization(r.authorization),
	} {
		if value != "" {
			out.Header.Set(name, value)
		}
	}
	in, err := c.http.Do(out)
	if err != nil {
		return answer{}, err
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: read answer: %w", r.method, url, err)
	}
	return answer{r, in.StatusCode, in.Header, body}, nil
}

func (c *caller) authorization(which credentials) string {
	switch which {
	case none:
		return ""
	case bogus:
		return "Bearer invalid-bogus-credential"
	}
	return c.target.Authorization
}
