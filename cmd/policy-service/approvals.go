package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-isatty"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type approvalsCmd struct {
	List     approvalsListCmd     `cmd:"" help:"List pending access requests, or those of another status."`
	Show     approvalsShowCmd     `cmd:"" help:"Show an access request. The approval of one with the action capability.request issues a capability."`
	Approve  approvalsApproveCmd  `cmd:"" help:"Approve an access request, and with --capability-for also further calls of the tool. If its action is capability.request, the approval itself issues a capability: see capabilities list."`
	Deny     approvalsDenyCmd     `cmd:"" help:"Deny an access request."`
	Delegate approvalsDelegateCmd `cmd:"" help:"Hand the decision on an access request to another person, who then decides alone. Policies must permit the action approval.delegate."`
	Revoke   approvalsRevokeCmd   `cmd:"" help:"Revoke an approval, and the capability that was issued with it."`
	Watch    approvalsWatchCmd    `cmd:"" help:"Print pending access requests, and new ones as they arrive."`
}

// approvalsDesk is the server of the approvals, and the format of the output.
type approvalsDesk struct{ adminFlags }

// An entityID is an entity, written TYPE:ID, TYPE::ID or TYPE::"ID".
type entityID pdp.Approver

// approver returns the entity, or nil if none was named.
func (a entityID) approver() *pdp.Approver {
	if a.ID == "" {
		return nil
	}
	named := pdp.Approver(a)
	return &named
}

// UnmarshalText reads an entity.
func (a *entityID) UnmarshalText(text []byte) error {
	named, ok := authzen.ParseEntityName(string(text))
	if !ok && strings.Contains(string(text), `"`) {
		return fmt.Errorf("%s is not TYPE::%q: the id has a quote or a backslash that is not escaped", text, "ID")
	}
	if !ok {
		return fmt.Errorf("%q is not TYPE:ID", text)
	}
	a.Type, a.ID = named.Type, named.ID
	return nil
}

// A deadline is a future time in a format for people.
type deadline struct{ time.Time }

func (d *deadline) UnmarshalText(text []byte) (err error) {
	if left, err := yamldoc.ParseDuration(string(text)); err == nil {
		d.Time = time.Now().Add(left)
		return nil
	}
	if d.Time, err = parseTime(string(text)); err != nil {
		return fmt.Errorf("%q is no time to come: want 2026-11-20T09:00:00Z, 2026-11-20 or, from now, 12h or 90d", text)
	}
	return nil
}

type approvalsListCmd struct {
	approvalsDesk
	Status string `help:"Status of the access requests: ${enum}." enum:"pending,approved,denied,expired,cancelled,partial,all" default:"pending"`
}

func (c *approvalsListCmd) Run(ctx context.Context) error {
	list, err := c.list(ctx, c.Status)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(list)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if isatty.IsTerminal(os.Stdout.Fd()) && len(list.Requests) > 0 { // programs take the first line for a request
		fmt.Fprintln(out, "TASK\tSTATUS\tSUBMITTED\tTENANT\tTEMPLATE\tSUBJECT\tSUMMARY")
	}
	for _, r := range list.Requests {
		fmt.Fprintln(out, strings.Join(requestRow(&r), "\t"))
	}
	return out.Flush()
}

// requestRow returns the cells of a request's line.
func requestRow(r *pdp.AccessRequest) []string {
	mark := ""
	if marks := marksOf(r); len(marks) > 0 {
		mark = " (" + strings.Join(marks, ", ") + ")"
	}
	return []string{
		plain.Text(r.ID), plain.Text(string(r.Status)) + mark, r.Submitted.Format(time.RFC3339), cmp.Or(plain.Text(r.Tenant), "-"),
		plain.Name(r.Items[0].Template), named(r.Subject), singleLine(r.Summary),
	}
}

// marksOf lists what moves a request up or down in a list.
func marksOf(r *pdp.AccessRequest) (marks []string) {
	if r.Escalated {
		marks = append(marks, "escalated")
	}
	if r.Priority != "" && r.Priority != approval.PriorityNormal {
		marks = append(marks, plain.Text(r.Priority))
	}
	return marks
}

// singleLine returns readable text unchanged.
func singleLine(text string) string {
	return plain.Lines(strings.NewReplacer("\n", " ", "\t", " ").Replace(text))
}

func named(e authzen.Entity) string {
	return fmt.Sprintf("%s::%s", plain.Name(e.Type), plain.Lines(strconv.Quote(e.ID)))
}

type approvalsShowCmd struct {
	approvalsDesk
	ID string   `arg:"" help:"Task of the access request."`
	As entityID `help:"Approver, as policies know them: also show what this approver may do. With an API key, the approver is its holder." placeholder:"TYPE:ID"`
}

func (c *approvalsShowCmd) Run(ctx context.Context) error {
	path := pdp.PathRequests + "/" + url.PathEscape(c.ID)
	if c.As.ID != "" {
		path += "?" + url.Values{"as": {c.As.Type + `::` + strconv.Quote(c.As.ID)}}.Encode()
	}
	return c.print(c.request(ctx, http.MethodGet, path, nil))
}

type approvalsApproveCmd struct {
	approvalsDesk
	ID      string   `arg:"" help:"Task of the access request."`
	As      entityID `help:"Approver, as policies know them. With an API key, the approver is its holder." placeholder:"TYPE:ID"`
	Comment string   `help:"Reason."`
	Item    []int    `help:"Item of a request with several items, from 0. Default: all items." placeholder:"N"`
	Until   deadline `help:"End of the approval, if sooner than the template says: RFC 3339, a date, or a time from now (12h)." placeholder:"TIME"`

	Set []argumentValue `sep:"none" help:"Change an argument of the call that the template lets approvers change. A string is quoted: 'target=\"staging\"'. Repeat the flag for each argument." placeholder:"NAME=JSON"`

	CapabilityFor capabilityDuration `help:"Issue the requester a capability for the same tool that lasts so long, such as 1h. Policies must permit the action capability.issue." placeholder:"DURATION"`
	MaxUses       *int               `help:"Number of calls that the capability covers. Default: no limit." placeholder:"N"`
}

func (c *approvalsApproveCmd) Run(ctx context.Context) error {
	beside, err := c.capability()
	if err != nil {
		return err
	}
	arguments, err := objectOf("--set", c.Set)
	if err != nil {
		return err
	}
	return c.decide(ctx, c.ID, pdp.Vote{
		Approver: c.As.approver(), Capability: beside,
		Decision: approval.Decision{Decision: "approve", Comment: c.Comment, Items: c.Item, Until: c.Until.Time, Arguments: arguments},
	})
}

// capability returns the capability that is issued beside the approval, or nil for none.
func (c *approvalsApproveCmd) capability() (*pdp.VoteCapability, error) {
	switch {
	case c.CapabilityFor == 0 && c.MaxUses != nil:
		return nil, errors.New("--max-uses is for --capability-for")
	case c.CapabilityFor == 0:
		return nil, nil
	}
	uses, err := usesOf(c.MaxUses)
	return &pdp.VoteCapability{Duration: int64(time.Duration(c.CapabilityFor).Seconds()), MaxUses: uses}, err
}

type approvalsDenyCmd struct {
	approvalsDesk
	ID      string   `arg:"" help:"Task of the access request."`
	As      entityID `help:"Approver, as policies know them. With an API key, the approver is its holder." placeholder:"TYPE:ID"`
	Comment string   `help:"Reason."`
	Item    []int    `help:"Item of a request with several items, from 0. Default: all items." placeholder:"N"`
}

func (c *approvalsDenyCmd) Run(ctx context.Context) error {
	return c.decide(ctx, c.ID, pdp.Vote{Approver: c.As.approver(), Decision: approval.Decision{Decision: "deny", Comment: c.Comment, Items: c.Item}})
}

type approvalsDelegateCmd struct {
	approvalsDesk
	ID      string   `arg:"" help:"Task of the access request."`
	To      entityID `required:"" help:"Person who decides from now on. It is not the requester, and nobody who has had the request before." placeholder:"TYPE:ID"`
	As      entityID `help:"Approver, as policies know them. With an API key, the approver is its holder." placeholder:"TYPE:ID"`
	Comment string   `help:"Reason."`
	Item    []int    `help:"Item of a request with several items, from 0. Default: all items." placeholder:"N"`
}

func (c *approvalsDelegateCmd) Run(ctx context.Context) error {
	return c.decide(ctx, c.ID, pdp.Vote{
		Approver: c.As.approver(),
		Decision: approval.Decision{Decision: "delegate", Comment: c.Comment, Items: c.Item, To: &approval.Person{Type: c.To.Type, ID: c.To.ID}},
	})
}

type approvalsRevokeCmd struct {
	approvalsDesk
	ID     string   `arg:"" help:"Id of the approval."`
	As     entityID `help:"Approver, as policies know them. With an API key, the approver is its holder." placeholder:"TYPE:ID"`
	Reason string   `help:"Reason."`
}

func (c *approvalsRevokeCmd) Run(ctx context.Context) error {
	if strings.HasPrefix(c.ID, "arq_") {
		return fmt.Errorf("%q is a request: revoke needs the approval's id (apr_...), see approvals show", c.ID)
	}
	path := pdp.PathApprovals + "/" + url.PathEscape(c.ID) + "/revoke"
	return c.print(c.request(ctx, http.MethodPost, path, pdp.Revocation{Approver: c.As.approver(), Reason: c.Reason}))
}

type approvalsWatchCmd struct {
	approvalsDesk
	Count int           `help:"Number of access requests to print. Default: no limit." placeholder:"N"`
	Every time.Duration `help:"Interval between polls. Default: ${default}." default:"2s" some:""`
}

// Run prints every request once. It goes on while no server answers.
func (c *approvalsWatchCmd) Run(ctx context.Context) error {
	seen := make(map[string]bool)
	for {
		list, err := c.list(ctx, string(authzen.TaskPending))
		if err != nil && len(seen) == 0 {
			return err
		}
		if err == nil {
			for _, r := range list.Requests {
				if seen[r.ID] {
					continue
				}
				seen[r.ID] = true
				if err := c.printRow(&r); err != nil {
					return err
				}
				if len(seen) == c.Count {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

func (c *approvalsDesk) printRow(r *pdp.AccessRequest) error {
	if c.JSON {
		return printJSON(r)
	}
	_, err := fmt.Println(strings.Join(requestRow(r), "  "))
	return err
}

func (c *approvalsDesk) decide(ctx context.Context, id string, vote pdp.Vote) error {
	return c.print(c.request(ctx, http.MethodPost, pdp.PathRequests+"/"+url.PathEscape(id)+"/decision", vote))
}

// print prints a request, or returns the error in its place.
func (c *approvalsDesk) print(r *pdp.AccessRequest, err error) error {
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(r)
	}
	_, err = fmt.Print(describeRequest(r))
	if err == nil && r.Capability != nil {
		_, err = fmt.Print(describeCapability(r.Capability))
	}
	return err
}

// plainJSON returns JSON on one line.
func plainJSON(value jsontext.Value) string {
	value = value.Clone()
	if err := value.Compact(); err != nil { // it was read as JSON
		return plain.Text(string(value))
	}
	return plain.Lines(string(value))
}

// describeRequest describes a request for an approver.
func describeRequest(r *pdp.AccessRequest) string {
	var out strings.Builder
	line := func(name, value string) { fmt.Fprintf(&out, "%-10s %s\n", name, value) }
	raw := func(name string, value jsontext.Value) {
		if value != nil {
			line(name, plainJSON(value))
		}
	}
	line("request", plain.Text(r.ID))
	line("status", plain.Text(string(r.Status)))
	if sheet := approval.ShortSheet(r.Sheet); sheet != "" {
		line("sheet", plain.Text(sheet))
	}
	if may := describeMay(r); may != "" {
		line("you may", may)
	}
	line("summary", singleLine(r.Summary))
	if r.Tenant != "" {
		line("tenant", plain.Text(r.Tenant))
	}
	line("subject", named(r.Subject))
	raw("  with", r.Subject.Properties)
	for _, a := range r.Actors {
		line("actor", describeActor(a))
	}
	if r.Priority != "" {
		line("priority", plain.Text(r.Priority))
	}
	line("decide by", r.DecideBy.Format(time.RFC3339))
	raw("context", r.Context)
	raw("asks for", r.Access)
	for i, item := range r.Items {
		line(fmt.Sprintf("item %d", i), plain.Text(string(item.Status)))
		line("  action", plain.Name(item.Action.Name))
		raw("    with", item.Action.Properties)
		line("  resource", named(item.Resource))
		raw("    with", item.Resource.Properties)
		raw("  asks for", item.Access)
		line("  template", fmt.Sprintf("%s (%d of %d)", plain.Text(item.Template), approvedBy(item.Votes), max(item.Terms.Quorum, 1)))
		line("  denied", plain.Text(item.EvaluationID))
		if item.Status == authzen.TaskPending {
			for _, name := range item.Terms.Edit {
				line("  editable", strings.TrimSpace(plain.Text(name)+" "+inputSchema(r, name)))
			}
		}
		if e := item.Edit; e != nil {
			line("  changed", plain.Text(strings.Join(e.Changed, ", "))+" in "+plainJSON(e.Arguments))
		}
		for _, d := range item.Delegations {
			line("  delegated", strings.TrimSpace(named(d.From)+" to "+named(d.To)+" "+plain.Text(d.Comment)))
		}
		for _, v := range item.Votes {
			line("  "+map[bool]string{true: "approved", false: "denied"}[v.Approve], strings.TrimSpace(named(v.Approver)+" "+plain.Text(v.Comment)))
			if proof := describeProof(&v); proof != "" {
				line("    by", proof)
			}
		}
		if a := item.Approval; a != nil {
			line("  approval", strings.TrimSpace(fmt.Sprintf("%s until %s %s", plain.Text(a.ID), a.Until.Format(time.RFC3339), plain.Text(a.Ended))))
		}
	}
	if words := plain.Mixed(out.String()); len(words) > 0 {
		line("warning", "words with look-alike letters of two alphabets: "+strings.Join(words, ", "))
	}
	return out.String()
}

// describeActor returns the id of an actor, and who issued it.
func describeActor(a approval.Actor) string {
	if a.Issuer == "" {
		return plain.Name(a.ID)
	}
	return plain.Name(a.ID) + " " + plain.Name(a.Issuer)
}

// describeMay returns what the caller can do with a request, or why nothing, or "" if nobody is known.
func describeMay(r *pdp.AccessRequest) string {
	may := strings.Join(r.May, ", ")
	switch {
	case r.WhyNot == "":
		return plain.Text(may)
	case may == "":
		may = "nothing"
	}
	return plain.Text(may + " (" + strings.ReplaceAll(r.WhyNot, "_", " ") + ")")
}

// describeProof returns how a voter proved who they are and what they were shown, or "" if nothing is known.
func describeProof(v *approval.Vote) string {
	var parts []string
	if a := v.Authn; a != nil {
		parts = append(parts, a.Method, a.Issuer, a.Subject, a.ACR)
	}
	if sheet := approval.ShortSheet(v.Sheet); sheet != "" {
		parts = append(parts, "sheet "+sheet)
	}
	return plain.Text(strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " "))
}

// inputSchema returns the JSON Schema of an argument of the call, or "".
func inputSchema(r *pdp.AccessRequest, name string) string {
	var context struct {
		Schema struct {
			Properties map[string]jsontext.Value `json:"properties"`
		} `json:"input_schema"`
	}
	if r.Context == nil || json.Unmarshal(r.Context, &context) != nil || context.Schema.Properties[name] == nil {
		return ""
	}
	return plainJSON(context.Schema.Properties[name])
}

// approvedBy counts the votes that approve.
func approvedBy(votes []approval.Vote) (n int) {
	for _, v := range votes {
		if v.Approve {
			n++
		}
	}
	return n
}

// list returns the whole list of a status, page by page.
func (c *approvalsDesk) list(ctx context.Context, status string) (*pdp.AccessRequests, error) {
	query := make(url.Values)
	if status != "all" {
		query.Set("status", status)
	}
	all := &pdp.AccessRequests{Requests: []pdp.AccessRequest{}}
	for {
		var page pdp.AccessRequests
		if err := c.ask(ctx, http.MethodGet, pdp.PathRequests+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all.Requests = append(all.Requests, page.Requests...)
		if page.Page == nil || page.Page.NextToken == "" {
			return all, nil
		}
		query.Set("token", page.Page.NextToken)
	}
}

func (c *approvalsDesk) request(ctx context.Context, method, path string, body any) (*pdp.AccessRequest, error) {
	r := new(pdp.AccessRequest)
	return r, c.ask(ctx, method, path, body, r)
}
