package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-isatty"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type capabilitiesCmd struct {
	List   capabilitiesListCmd   `cmd:"" help:"List active capabilities, or those of another status."`
	Show   capabilitiesShowCmd   `cmd:"" help:"Show a capability."`
	Issue  capabilitiesIssueCmd  `cmd:"" help:"Issue a capability that nobody asked for. Policies must permit the action capability.issue."`
	Revoke capabilitiesRevokeCmd `cmd:"" help:"Revoke a capability, or all of a holder, at once. Policies must permit the action capability.revoke."`
}

// capabilitiesFlags are the flags of every command about capabilities.
type capabilitiesFlags struct{ adminFlags }

type capabilitiesListCmd struct {
	capabilitiesFlags
	Status string   `help:"Status of the capabilities: ${enum}." enum:"active,pending,expired,exhausted,revoked,refused,all" default:"active"`
	Holder entityID `help:"Capabilities of this holder only." placeholder:"TYPE:ID"`
	Server string   `help:"Capabilities with a tool of this server only."`
	Tenant string   `help:"Capabilities of this tenant only."`
}

func (c *capabilitiesListCmd) Run(ctx context.Context) error {
	list, err := c.list(ctx, c.query())
	if err != nil {
		return err
	}
	return c.printList(list)
}

// query returns the query of the list, without a page.
func (c *capabilitiesListCmd) query() url.Values {
	query := make(url.Values)
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.Status != "all" {
		set("status", c.Status)
	}
	if c.Holder.ID != "" {
		set("holder", c.Holder.Type+":"+c.Holder.ID)
	}
	set("server", c.Server)
	set("tenant", c.Tenant)
	return query
}

// list returns all capabilities that a query selects, page by page.
func (c *capabilitiesFlags) list(ctx context.Context, query url.Values) (all []authzen.Capability, err error) {
	for {
		var page authzen.CapabilityList
		if err := c.ask(ctx, http.MethodGet, pdp.PathCapabilities+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Capabilities...)
		if page.Page == nil || page.Page.NextToken == "" {
			return all, nil
		}
		query.Set("token", page.Page.NextToken)
	}
}

// printList prints a line for each capability.
func (c *capabilitiesFlags) printList(list []authzen.Capability) error {
	if c.JSON {
		for i := range list {
			if err := printCapabilityJSON(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if isatty.IsTerminal(os.Stdout.Fd()) && len(list) > 0 { // programs take the first line for a capability
		fmt.Fprintln(out, "CAPABILITY\tSTATUS\tEXPIRES\tTENANT\tHOLDER\tISSUER\tUSES LEFT\tTOOLS")
	}
	for i := range list {
		fmt.Fprintln(out, strings.Join(capabilityRow(&list[i]), "\t"))
	}
	return out.Flush()
}

// printCapabilityJSON prints a capability as JSON on one line.
func printCapabilityJSON(c *authzen.Capability) error {
	text, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", text)
	return err
}

// capabilityRow returns the cells of a capability's line.
func capabilityRow(c *authzen.Capability) []string {
	expires, issuer := "-", "-"
	if !c.Expires.IsZero() {
		expires = c.Expires.Format(time.RFC3339)
	}
	if c.Issuer != nil {
		issuer = named(*c.Issuer)
	}
	return []string{
		plain.Text(c.ID), plain.Text(c.Status), expires, cmp.Or(plain.Text(c.Tenant), "-"), named(c.Holder), issuer, usesLeft(c), toolNames(c.Tools),
	}
}

// usesLeft returns the remaining uses, as in "1 of 2", or "-" if uses are not counted.
func usesLeft(c *authzen.Capability) string {
	if c.UsesLeft == nil || c.Constraints == nil {
		return "-"
	}
	return fmt.Sprintf("%d of %d", *c.UsesLeft, c.Constraints.MaxUses)
}

func toolNames(tools []string) string {
	shown := make([]string, len(tools))
	for i, tool := range tools {
		shown[i] = plain.Text(tool)
	}
	return strings.Join(shown, ",")
}

type capabilitiesShowCmd struct {
	capabilitiesFlags
	ID capabilityID `arg:"" help:"Id of the capability (cap_...)."`
}

func (c *capabilitiesShowCmd) Run(ctx context.Context) error {
	return c.print(c.capability(ctx, http.MethodGet, c.ID.path(), nil))
}

// A capabilityID is the id of a capability.
type capabilityID string

// UnmarshalText reads an id. It refuses the ids of requests and approvals, with a hint.
func (id *capabilityID) UnmarshalText(text []byte) error {
	switch *id = capabilityID(text); {
	case strings.HasPrefix(string(text), "cap_"):
		return nil
	case strings.HasPrefix(string(text), "arq_"):
		return fmt.Errorf("%q is an access request: see approvals show, and capabilities list for what came of it", text)
	case strings.HasPrefix(string(text), "apr_"):
		return fmt.Errorf("%q is an approval: see approvals revoke", text)
	}
	return fmt.Errorf("%q is not the id of a capability (cap_...): see capabilities list", text)
}

func (id capabilityID) path() string { return pdp.PathCapabilities + "/" + url.PathEscape(string(id)) }

type capabilitiesIssueCmd struct {
	capabilitiesFlags
	As       entityID           `help:"Issuer, as policies know them. With an API key, the issuer is its holder." placeholder:"TYPE:ID"`
	Holder   entityID           `required:"" help:"Holder: who may use the tools. Nobody issues a capability to themselves." placeholder:"TYPE:ID"`
	Tools    []string           `required:"" help:"Tools: SERVER:TOOL, SERVER:* for all of a server, or * for all." placeholder:"TOOL"`
	For      capabilityDuration `required:"" help:"How long the capability lasts, such as 8h or 90d." placeholder:"DURATION"`
	MaxUses  *int               `help:"Number of calls that it covers. Default: no limit." placeholder:"N"`
	Argument []argumentValue    `sep:"none" help:"Value that an argument of each call must have. A string is quoted: 'target=\"staging\"'. Repeat the flag for each argument." placeholder:"NAME=JSON"`
	Session  string             `help:"Session of the holder that the capability is bound to. Default: any."`
	Key      string             `help:"File with the public key of the holder, a JWK. Each call then needs a proof. - is standard input. Default: none." placeholder:"FILE" env:"POLICY_SERVICE_HOLDER_KEY"`
	Reason   string             `help:"Reason."`
	Tenant   string             `help:"Tenant of the holder."`
}

func (c *capabilitiesIssueCmd) Run(ctx context.Context) error {
	limits, err := c.constraints()
	if err != nil {
		return err
	}
	key, err := c.holderKey()
	if err != nil {
		return err
	}
	return c.print(c.capability(ctx, http.MethodPost, pdp.PathCapabilities, pdp.CapabilityGrant{
		Approver: c.As.approver(), Tenant: c.Tenant,
		CapabilityTerms: authzen.CapabilityTerms{
			Subject: c.Holder.subject(), Tools: c.Tools, Duration: int64(time.Duration(c.For).Seconds()), Constraints: limits,
			Session: c.Session, Reason: c.Reason, HolderKey: key,
		},
	}))
}

// holderKey returns the JWK of --key, or nil without the flag. A private key never leaves this machine.
func (c *capabilitiesIssueCmd) holderKey() (jsontext.Value, error) {
	if c.Key == "" {
		return nil, nil
	}
	text, err := readInput(c.Key)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	key, err := capability.ParseKey(text)
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		return nil, fmt.Errorf("--key: %s %s", c.Key, invalid.Reason)
	}
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	return key.JWK, nil
}

// constraints returns the limits of the flags, or nil for none.
func (c *capabilitiesIssueCmd) constraints() (*authzen.CapabilityConstraints, error) {
	if c.MaxUses == nil && len(c.Argument) == 0 {
		return nil, nil
	}
	uses, err := usesOf(c.MaxUses)
	if err != nil {
		return nil, err
	}
	limits := &authzen.CapabilityConstraints{MaxUses: uses}
	limits.Arguments, err = objectOf("--argument", c.Argument)
	return limits, err
}

// objectOf returns the values of a flag as a JSON object, or nil for none.
func objectOf(flag string, values []argumentValue) (jsontext.Value, error) {
	if len(values) == 0 {
		return nil, nil
	}
	object := make(map[string]jsontext.Value)
	for _, a := range values {
		if _, again := object[a.name]; again {
			return nil, fmt.Errorf("%s: %q is named twice", flag, a.name)
		}
		object[a.name] = a.value
	}
	return json.Marshal(object, json.Deterministic(true))
}

// usesOf returns the value of --max-uses, or 0 for no limit.
func usesOf(flag *int) (authzen.MaxUses, error) {
	switch {
	case flag == nil:
		return 0, nil
	case *flag == 0:
		return 0, errors.New("--max-uses: must be more than 0; without the flag, uses have no limit")
	}
	return authzen.MaxUses(*flag), nil
}

// subject returns the entity as the subject of a request.
func (a entityID) subject() authzen.Subject { return authzen.Subject{Type: a.Type, ID: a.ID} }

// A capabilityDuration is the duration of a capability, in whole seconds.
type capabilityDuration time.Duration

// UnmarshalText reads a duration.
func (d *capabilityDuration) UnmarshalText(text []byte) error {
	lasts, err := yamldoc.ParseDuration(string(text))
	if err != nil {
		return err
	}
	if lasts < time.Second || lasts%time.Second != 0 {
		return fmt.Errorf("must be at least 1s, in whole seconds, not %s", text)
	}
	*d = capabilityDuration(lasts)
	return nil
}

// An argumentValue is a value that an argument of a call must have.
type argumentValue struct {
	name  string
	value jsontext.Value
}

// UnmarshalText reads NAME=JSON.
func (a *argumentValue) UnmarshalText(text []byte) error {
	name, value, found := strings.Cut(string(text), "=")
	if !found || name == "" {
		return fmt.Errorf("%q is not NAME=JSON", text)
	}
	if a.name, a.value = name, jsontext.Value(value); !a.value.IsValid() {
		return fmt.Errorf("%q is not JSON: a string is quoted, as in %s", value, strconv.Quote(value))
	}
	return nil
}

type capabilitiesRevokeCmd struct {
	capabilitiesFlags
	ID     capabilityID `arg:"" optional:"" help:"Id of the capability (cap_...)."`
	Holder entityID     `help:"Revoke all capabilities of this holder." placeholder:"TYPE:ID"`
	Tenant string       `help:"Tenant of --holder."`
	As     entityID     `help:"Person who revokes, as policies know them. With an API key, that is its holder." placeholder:"TYPE:ID"`
	Reason string       `help:"Reason."`
}

// errOneOrHolder means that a revocation names no capability, or two kinds of them.
var errOneOrHolder = errors.New("name either the id of a capability or --holder TYPE:ID")

func (c *capabilitiesRevokeCmd) Run(ctx context.Context) error {
	switch {
	case (c.ID == "") == (c.Holder.ID == ""):
		return errOneOrHolder
	case c.Holder.ID != "":
		return c.revokeHolder(ctx)
	case c.Tenant != "":
		return errors.New("--tenant is for --holder: the id of a capability names its tenant")
	}
	var answer authzen.CapabilityResponse
	err := c.ask(ctx, http.MethodPost, c.ID.path()+"/revoke", pdp.Revocation{Approver: c.As.approver(), Reason: c.Reason}, &answer)
	if err := c.print(&answer.Capability, err); err != nil || c.JSON {
		return err
	}
	for _, id := range answer.RevokedApprovals {
		fmt.Printf("%-10s approval %s\n", "revoked", plain.Text(id))
	}
	return nil
}

// revokeHolder revokes all capabilities of a holder. It fails if there are none, because the name may be
// misspelt.
func (c *capabilitiesRevokeCmd) revokeHolder(ctx context.Context) error {
	var ended authzen.CapabilityList
	err := c.ask(ctx, http.MethodPost, pdp.PathCapabilities+"/revoke", pdp.CapabilityRevocation{
		Approver: c.As.approver(), Tenant: c.Tenant, Holder: c.Holder.subject(), Reason: c.Reason,
	}, &ended)
	if err != nil {
		return err
	}
	if len(ended.Capabilities) == 0 {
		return fmt.Errorf("%s has no active or pending capability%s", named(c.Holder.subject()), inTenant(c.Tenant))
	}
	return c.printList(ended.Capabilities)
}

func inTenant(tenant string) string {
	if tenant == "" {
		return " outside of tenants: --tenant names one"
	}
	return " in tenant " + plain.Text(tenant)
}

func (c *capabilitiesFlags) capability(ctx context.Context, method, path string, body any) (*authzen.Capability, error) {
	var answer authzen.CapabilityResponse
	return &answer.Capability, c.ask(ctx, method, path, body, &answer)
}

// print prints a capability, or returns the error in its place.
func (c *capabilitiesFlags) print(found *authzen.Capability, err error) error {
	if err != nil {
		return err
	}
	if c.JSON {
		return printCapabilityJSON(found)
	}
	_, err = fmt.Print(describeCapability(found))
	return err
}

// describeCapability describes a capability for operators.
func describeCapability(c *authzen.Capability) string {
	var out strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%-10s %s\n", name, value)
		}
	}
	entity := func(name string, e *authzen.Subject) {
		if e != nil {
			line(name, named(*e))
		}
	}
	line("capability", plain.Text(c.ID))
	line("status", plain.Text(c.Status))
	line("tenant", plain.Text(c.Tenant))
	line("holder", named(c.Holder))
	for _, tool := range c.Tools {
		line("tool", plain.Text(tool))
	}
	if !c.Expires.IsZero() {
		line("expires", c.Expires.Format(time.RFC3339))
	}
	describeConstraints(c, line)
	line("bound", plain.Text(c.Bound))
	line("jkt", plain.Text(c.JKT))
	line("parent", plain.Text(c.Parent))
	line("refreshes", plain.Text(c.Refreshes))
	entity("issuer", c.Issuer)
	for i := range c.Approvers {
		entity("approver", &c.Approvers[i])
	}
	line("template", plain.Text(c.Template))
	line("request", plain.Text(c.Task))
	for _, id := range c.ApprovalIDs {
		line("approval", plain.Text(id))
	}
	line("reason", plain.Text(c.Reason))
	entity("ended by", c.EndedBy)
	if words := plain.Mixed(out.String()); len(words) > 0 {
		line("warning", "words with look-alike letters of two alphabets: "+strings.Join(words, ", "))
	}
	return out.String()
}

// describeConstraints describes the limits of a capability, if it has some.
func describeConstraints(c *authzen.Capability, line func(name, value string)) {
	if c.Constraints == nil {
		return
	}
	if from := c.Constraints.ValidFrom; !from.IsZero() {
		line("valid from", from.Format(time.RFC3339))
	}
	if left := usesLeft(c); left != "-" {
		line("uses left", left)
	}
	if values := c.Constraints.Arguments; values != nil {
		line("arguments", plainJSON(values))
	}
	if schema := c.Constraints.ArgumentsSchema; schema != nil {
		line("schema", plainJSON(schema))
	}
}
