package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A request is an Access Request as the admin API shows it.
type request struct {
	Status   authzen.TaskStatus `json:"status"`
	Summary  string             `json:"summary"`
	Policies string             `json:"policies"` // revision that is in force
	approval.Request

	May    []string `json:"may"`
	WhyNot string   `json:"why_not"`

	Earlier []approval.Earlier `json:"earlier"` // of each item
	Asking  [][]askingPolicy   `json:"asking"`  // of each of the first items

	LookAlikes []lookAlike `json:"look_alikes"`
}

// A lookAlike is an id of the request that is easily taken for a known one.
type lookAlike struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	Known string `json:"known"`
}

// An askingPolicy is a policy because of which a person is asked.
type askingPolicy struct {
	Policy string `json:"policy"`
	Reason string `json:"reason"` // for users
}

// Actor returns the name of whoever wants to act: the nearest actor, or the subject itself.
func (r *request) Actor() string {
	if len(r.Actors) > 0 {
		return r.Actors[0].ID
	}
	return r.Subject.ID
}

// toolCalls are the actions that the sentence about a request calls running a tool.
var toolCalls = []string{"tool.invoke", "tools/call", "call", "execute", "invoke", "run"}

// isToolCall reports whether an action on a resource of a type is the call of a tool.
func isToolCall(resource, action string) bool {
	return resource == "tool" && slices.Contains(toolCalls, action)
}

// Told returns the arguments in the summary, which is "action type::"id" (arguments)", or "". Nothing in the id ends
// its quotation marks.
func (r *request) Told() string {
	_, rest, _ := strings.Cut(r.Summary, `::"`)
	for escaped := false; rest != ""; rest = rest[1:] {
		if rest[0] == '"' && !escaped {
			break
		}
		escaped = rest[0] == '\\' && !escaped
	}
	arguments, _ := strings.CutPrefix(rest, `" (`)
	if arguments == rest {
		return ""
	}
	return strings.TrimSuffix(arguments, ")")
}

// Need returns the number of approvals that the request needs, and Given the number that it has.
func (r *request) Need() int  { return max(r.Items[0].Terms.Quorum, 1) }
func (r *request) Given() int { return len(r.Items[0].Votes) }

// StepUp reports whether a template requires that approvers sign in again.
func (r *request) StepUp() bool {
	return slices.ContainsFunc(r.Items, func(i approval.Item) bool { return i.Terms.StepUp })
}

// Last returns the last vote, or nil.
func (r *request) Last() (last *approval.Vote) {
	for i := range r.Items {
		for n := range r.Items[i].Votes {
			if vote := &r.Items[i].Votes[n]; last == nil || !vote.Time.Before(last.Time) {
				last = vote
			}
		}
	}
	return last
}

// A view is one of the lists.
type view struct {
	Name, Title, Empty string

	path string // of the list in the admin API
}

// views are the lists, in the order of their tabs.
var views = []view{
	{"mine", "For you", "Nothing waits for you.", "/admin/v1/requests?for=me"},
	{"others", "For others", "Nothing waits for others.", "/admin/v1/requests?for=others"},
	{"decided", "Decided", "Nothing was decided yet. A request is kept for a day after its result can matter.", "/admin/v1/requests?status=decided"},
	{"standing", "In use", "No approval can be used now.", "/admin/v1/approvals?standing=true"},
}

// A requestsPage is one page of a list.
type requestsPage struct {
	View      view
	Views     []view
	Tenant    string
	Tenants   []string
	Requests  []request     `json:"requests"`
	Approvals []standing    `json:"approvals"`
	Page      *authzen.Page `json:"page"`
	First     bool          // the page is the first of its list
}

// A standing is an approval that can still be used.
type standing struct {
	ID        string          `json:"id"`
	Task      string          `json:"task"`
	Tenant    string          `json:"tenant"`
	Summary   string          `json:"summary"`
	Subject   authzen.Subject `json:"subject"`
	Scope     string          `json:"scope"`
	At        time.Time       `json:"at"`
	Until     time.Time       `json:"until"`
	UsesLeft  int             `json:"uses_left"`
	Approvers []person        `json:"approvers"`
}

// Nothing reports whether the page has no row.
func (p *requestsPage) Nothing() bool { return len(p.Requests) == 0 && len(p.Approvals) == 0 }

// Next returns the query of the next page.
func (p *requestsPage) Next() string {
	query := url.Values{"view": {p.View.Name}, "token": {p.Page.NextToken}}
	if p.Tenant != "" {
		query.Set("tenant", p.Tenant)
	}
	return "?" + query.Encode()
}

// requests shows a list of Access Requests or of approvals.
func (v *visit) requests() error {
	page := requestsPage{View: views[0], Views: views, Tenants: v.session.identity.Tenants}
	query := v.r.URL.Query()
	for _, other := range views {
		if other.Name == query.Get("view") {
			page.View = other
		}
	}
	page.Tenant = query.Get("tenant")
	asked := url.Values{"limit": {"50"}}
	for name, value := range map[string]string{"token": query.Get("token"), "tenant": page.Tenant} {
		if value != "" {
			asked.Set(name, value)
		}
	}
	answer, err := v.read(page.View.path + "&" + asked.Encode())
	if err != nil {
		return err
	}
	if v.tag = answer.header.Get(headerTag); v.isCurrent() {
		return nil
	}
	if err := answer.decode(&page); err != nil {
		return err
	}
	if page.First = !asked.Has("token"); page.First {
		v.watch = v.r.URL.RequestURI()
	}
	return v.show(http.StatusOK, "requests", "Approvals", &page)
}
