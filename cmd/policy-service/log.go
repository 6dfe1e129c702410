package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type logCmd struct {
	Export     logExportCmd     `cmd:"" help:"Write entries as JSON, CSV, OCSF events or a bundle that can be verified."`
	Query      logQueryCmd      `cmd:"" help:"Print entries in a table."`
	Tail       logTailCmd       `cmd:"" help:"Print new entries."`
	Explain    logExplainCmd    `cmd:"" help:"Explain a logged decision."`
	Evidence   logEvidenceCmd   `cmd:"" help:"Write a ZIP file about an entry, with its policies and a program, that verifies offline."`
	Stream     logStreamCmd     `cmd:"" help:"Deliver new entries, at least once, to a file, a URL or a collector."`
	Replay     logReplayCmd     `cmd:"" help:"Evaluate logged requests with other policies, and report the differences."`
	Verify     logVerifyCmd     `cmd:"" help:"Prove that no entry was changed, removed or reordered."`
	Prove      logProveCmd      `cmd:"" help:"Create a proof that an entry is in the log, or that the log continues a checkpoint."`
	Checkpoint logCheckpointCmd `cmd:"" help:"Print a signed checkpoint of the log."`
	Keys       logKeysCmd       `cmd:"" help:"Print the public keys of the log, the newest last."`
	RotateKey  logRotateKeyCmd  `cmd:"" help:"Rotate the signing key of the log, also while a server runs."`
}

// A stateFlag names the log.
type stateFlag struct {
	State string `help:"State directory. A server may be running on it. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
}

// filterFlags select entries. They ignore the environment, because a variable for
// another command would remove entries from an audit.
type filterFlags struct {
	From     int64    `env:"-" help:"Index of the first entry." default:"0" placeholder:"INDEX"`
	Until    int64    `env:"-" help:"Index after the last entry. Default: the end of the log." default:"-1" placeholder:"INDEX"`
	Since    moment   `env:"-" help:"Time of the first entry: RFC 3339, a date, now, or an age (12h, 90d)." placeholder:"TIME"`
	Before   moment   `env:"-" help:"Time after the last entry, in the same form." placeholder:"TIME"`
	Tenant   string   `env:"-" help:"Tenant of the request." placeholder:"NAME"`
	Subject  string   `env:"-" help:"Subject of the request: an id, or a type and an id, as in user:alice, user::alice or user::\"alice\"." placeholder:"SUBJECT"`
	Decision string   `env:"-" help:"Decision: allow or deny." enum:"allow,deny," default:"" placeholder:"DECISION"`
	Policy   string   `env:"-" help:"Id of a determining policy." placeholder:"ID"`
	ID       string   `env:"-" name:"id" help:"Decision-ID of the entry." placeholder:"ID"`
	Resource string   `env:"-" help:"Resource of the request, in the forms of --subject." placeholder:"RESOURCE"`
	Action   string   `env:"-" help:"Action of the request." placeholder:"ACTION"`
	Request  string   `env:"-" name:"request-id" help:"Request id that the PEP sent." placeholder:"ID"`
	Trace    string   `env:"-" name:"trace-id" help:"Trace id of the request." placeholder:"ID"`
	Task     string   `env:"-" help:"Access Request: its entries, and the evaluations by its approval." placeholder:"ID"`
	Shadow   string   `env:"-" help:"With differs: decisions that the shadow policies decide otherwise." enum:"differs," default:"" placeholder:"DIFFERS"`
	Errors   bool     `env:"-" help:"Decisions during which a policy could not be evaluated."`
	Kind     kindFlag `env:"-" help:"Kind of the entry: evaluation, evaluations, search, reload, request, approval, capability, admin or pruned; of the audit trail of a gateway: gateway.call, gateway.outcome, gateway.refused or gateway.pending." placeholder:"KIND"`
}

// Validate is called before Run.
func (f *filterFlags) Validate() error {
	if f.From < 0 {
		return fmt.Errorf("--from must not be negative: %d", f.From)
	}
	return nil
}

func (f *filterFlags) filter() decisionlog.Filter {
	out := decisionlog.Filter{
		From: f.From, Until: max(0, f.Until), Since: f.Since.Time, Before: f.Before.Time,
		Tenant: f.Tenant, Subject: f.Subject, Policy: f.Policy, ID: f.ID, Kind: decisionlog.Kind(f.Kind),
		Resource: f.Resource, Action: f.Action, RequestID: f.Request, TraceID: f.Trace, Task: f.Task, Shadow: f.Shadow, Errors: f.Errors,
	}
	if f.Decision != "" {
		allow := f.Decision == "allow"
		out.Decision = &allow
	}
	return out
}

// A kindFlag is an existing kind of entries.
type kindFlag decisionlog.Kind

func (k *kindFlag) UnmarshalText(text []byte) error {
	kind, err := decisionlog.ParseKind(string(text))
	if err != nil {
		return fmt.Errorf("%w%s", err, environment.Meant(string(text), decisionlog.KindNames()))
	}
	*k = kindFlag(kind)
	return nil
}

// A moment is a time in a format for people.
type moment struct{ time.Time }

func (m *moment) UnmarshalText(text []byte) (err error) {
	if string(text) == "now" {
		m.Time = time.Now()
		return nil
	}
	if ago, err := yamldoc.ParseDuration(string(text)); err == nil {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	if m.Time, err = parseTime(string(text)); err != nil {
		return fmt.Errorf("%q is no time: want 2026-11-20T09:00:00Z, 2026-11-20, now, 12h or 90d", text)
	}
	return nil
}

// parseTime reads a time of RFC 3339, or the beginning of a day (UTC).
func parseTime(text string) (at time.Time, err error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, err
}

// A logSource is a log: its files, or the server that has them open.
type logSource interface {
	// export writes the entries that f selects, one per line.
	export(ctx context.Context, w io.Writer, f decisionlog.Filter) error
	bundle(ctx context.Context, w io.Writer, f decisionlog.Filter) error
	// evidence writes the evidence about an entry, by Decision-ID or index.
	evidence(ctx context.Context, w io.Writer, id string) error
	// last writes the last n entries that f selects, one per line. With a look, it reads no more entries
	// than that.
	last(ctx context.Context, w io.Writer, f decisionlog.Filter, n int, look int64) (summary, error)
	checkpoint(ctx context.Context) (*decisionlog.Checkpoint, error)
	proveEntry(ctx context.Context, index int64) (*decisionlog.Proof, error)
	proveSince(ctx context.Context, earlier []byte) (*decisionlog.Proof, error)
	Close() error
}

// A summary describes the result of a query.
type summary struct {
	total  string // as [decisionlog.Last.Total] returns it
	looked string // as [decisionlog.Last.Looked] returns it
	more   bool   // entries before those may match
}

// open opens the files of the log, or connects to the server that has them open.
func (s stateFlag) open() (logSource, error) {
	reader, err := decisionlog.OpenReadOnly(s.State)
	if errors.Is(err, decisionlog.ErrLocked) {
		return logServer(s.State), nil
	}
	if err != nil {
		return nil, explained(err, s.State)
	}
	return logFiles{reader}, nil
}

// explained adds the meaning of a missing file to its error.
func explained(err error, state string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no decision log in %s (serve makes one; name its directory with --state)", state)
	}
	return err
}

// logFiles are the files of a log that no server has open.
type logFiles struct{ *decisionlog.Reader }

func (l logFiles) export(ctx context.Context, w io.Writer, f decisionlog.Filter) error {
	_, err := l.ExportSelected(ctx, w, f)
	return err
}

func (l logFiles) bundle(ctx context.Context, w io.Writer, f decisionlog.Filter) error {
	_, err := l.WriteBundle(ctx, w, f)
	return err
}

func (l logFiles) evidence(ctx context.Context, w io.Writer, id string) error {
	record, err := l.Find(ctx, id)
	if err != nil {
		return err
	}
	return l.WriteEvidence(ctx, w, record.Index)
}

func (l logFiles) last(ctx context.Context, w io.Writer, f decisionlog.Filter, n int, look int64) (summary, error) {
	var last decisionlog.Last
	var err error
	if look > 0 {
		last, err = l.Latest(ctx, f, n, decisionlog.Look{Entries: look, Time: math.MaxInt64})
	} else {
		last, err = l.Last(ctx, f, n, math.MaxInt)
	}
	if err != nil {
		return summary{}, err
	}
	return summary{total: last.Total(), looked: last.Looked(), more: last.More}, l.export(ctx, w, last.Filter)
}

func (l logFiles) checkpoint(context.Context) (*decisionlog.Checkpoint, error) { return l.Sign() }

func (l logFiles) proveEntry(ctx context.Context, index int64) (*decisionlog.Proof, error) {
	return l.ProveEntry(ctx, index)
}

func (l logFiles) proveSince(_ context.Context, earlier []byte) (*decisionlog.Proof, error) {
	return l.ProveSince(earlier)
}

// A logServer is the server that has a state directory open.
type logServer string

func (s logServer) export(ctx context.Context, w io.Writer, f decisionlog.Filter) error {
	return s.copy(ctx, w, pdp.PathLogExport, f.Query())
}

func (s logServer) bundle(ctx context.Context, w io.Writer, f decisionlog.Filter) error {
	query := f.Query()
	query.Set("format", decisionlog.FormatBundle)
	return s.copy(ctx, w, pdp.PathLogExport, query)
}

func (s logServer) evidence(ctx context.Context, w io.Writer, id string) error {
	return s.copy(ctx, w, pdp.PathLogEntries+"/"+url.PathEscape(id)+"/evidence", nil)
}

func (s logServer) last(ctx context.Context, w io.Writer, f decisionlog.Filter, n int, look int64) (summary, error) {
	query := f.Query()
	query.Set("limit", strconv.Itoa(n))
	if look > 0 {
		query.Set("look", strconv.FormatInt(look, 10))
	}
	response, err := heldBy(ctx, string(s), http.MethodGet, pdp.PathLogQuery+"?"+query.Encode())
	if err != nil {
		return summary{}, err
	}
	defer response.Body.Close()
	_, err = io.Copy(w, response.Body)
	header := response.Header
	return summary{header.Get(pdp.HeaderTotal), header.Get(pdp.HeaderLookedAt), header.Get(pdp.HeaderMore) != ""}, err
}

func (s logServer) copy(ctx context.Context, w io.Writer, path string, query url.Values) error {
	body, err := holder(ctx, string(s), http.MethodGet, path+"?"+query.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}

func (s logServer) checkpoint(ctx context.Context) (*decisionlog.Checkpoint, error) {
	return fetch[decisionlog.Checkpoint](ctx, s, http.MethodGet, pdp.PathLogCheckpoint)
}

func (s logServer) proveEntry(ctx context.Context, index int64) (*decisionlog.Proof, error) {
	return fetch[decisionlog.Proof](ctx, s, http.MethodGet, pdp.PathLogProof+"?index="+strconv.FormatInt(index, 10))
}

func (s logServer) proveSince(ctx context.Context, earlier []byte) (*decisionlog.Proof, error) {
	return fetch[decisionlog.Proof](ctx, s, http.MethodGet, pdp.PathLogProof+"?"+url.Values{"earlier": {string(earlier)}}.Encode())
}

func (s logServer) rotateKey(ctx context.Context) (*decisionlog.KeyChange, error) {
	return fetch[decisionlog.KeyChange](ctx, s, http.MethodPost, pdp.PathLogRotateKey)
}

func (logServer) Close() error { return nil }

// fetch reads a JSON answer.
func fetch[T any](ctx context.Context, s logServer, method, path string) (*T, error) {
	body, err := holder(ctx, string(s), method, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	out := new(T)
	if err := json.UnmarshalRead(body, out); err != nil {
		return nil, fmt.Errorf("read the answer of the running server: %w", err)
	}
	return out, nil
}
