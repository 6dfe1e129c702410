package capability_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

func TestTermsOutOfBounds(t *testing.T) {
	s := open(t)
	for _, test := range []struct {
		name, path string
		change     func(*capability.Terms)
	}{
		{"no holder", "/subject", func(t *capability.Terms) { t.Holder.ID = "" }},
		{"no tool", "/tools", func(t *capability.Terms) { t.Tools = nil }},
		{"65 tools", "/tools", func(t *capability.Terms) { t.Tools = slices.Repeat([]string{"a:b"}, 65) }},
		{"every tool", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"*"} }},
		{"no server", "/tools/1", func(t *capability.Terms) { t.Tools = []string{"a:b", "read_file"} }},
		{"an empty server", "/tools/0", func(t *capability.Terms) { t.Tools = []string{":read_file"} }},
		{"an empty tool", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"files:"} }},
		{"every server", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"*:read_file"} }},
		{"a prefix", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"files:read_*"} }},
		{"a space", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"files:read file"} }},
		{"a control character", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"files:read\u202e"} }},
		{"a long tool", "/tools/0", func(t *capability.Terms) { t.Tools = []string{"files:" + strings.Repeat("a", 256)} }},
		{"no end", "/duration", func(t *capability.Terms) { t.Duration = lasting(0) }},
		{"a negative duration", "/duration", func(t *capability.Terms) { t.Duration = lasting(-time.Second) }},
		{"half a second", "/duration", func(t *capability.Terms) { t.Duration = lasting(time.Second / 2) }},
		{"two years", "/duration", func(t *capability.Terms) { t.Duration = lasting(2 * 366 * 24 * time.Hour) }},
		{"an end that has passed", "/constraints/validUntil", func(t *capability.Terms) { t.Constraints.ValidUntil = morning }},
		{"an end far ahead", "/constraints/validUntil", func(t *capability.Terms) { t.Constraints.ValidUntil = morning.AddDate(2, 0, 0) }},
		{"a beginning far ahead", "/constraints/validFrom", func(t *capability.Terms) { t.Constraints.ValidFrom = morning.AddDate(2, 0, 0) }},
		{"an end before the beginning", "/constraints/validUntil", func(t *capability.Terms) {
			t.Constraints.ValidFrom, t.Constraints.ValidUntil = morning.Add(time.Hour), morning.Add(time.Minute)
		}},
		{"negative uses", "/constraints/maxUses", func(t *capability.Terms) { t.Constraints.MaxUses = -1 }},
		{"too many uses", "/constraints/maxUses", func(t *capability.Terms) { t.Constraints.MaxUses = 1_000_001 }},
		{"large arguments", "/constraints/arguments", func(t *capability.Terms) {
			t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value(`"` + strings.Repeat("a", 8<<10) + `"`)}
		}},
		{"ambiguous arguments", "/constraints/arguments", func(t *capability.Terms) {
			t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value(`{"b":1,"b":2}`)}
		}},
		{"a large schema", "/constraints/arguments_schema", func(t *capability.Terms) {
			t.Constraints.ArgumentsSchema = jsontext.Value(`{"description":"` + strings.Repeat("a", 8<<10) + `"}`)
		}},
		{"an invalid schema", "/constraints/arguments_schema", func(t *capability.Terms) { t.Constraints.ArgumentsSchema = jsontext.Value(`{"type":"arguments"}`) }},
		{"a schema elsewhere", "/constraints/arguments_schema", func(t *capability.Terms) {
			t.Constraints.ArgumentsSchema = jsontext.Value(`{"$ref":"https://example.com/schema.json"}`)
		}},
		{"a schema in a file", "/constraints/arguments_schema", func(t *capability.Terms) {
			t.Constraints.ArgumentsSchema = jsontext.Value(`{"$ref":"file:///etc/hostname"}`)
		}},
		{"a long reason", "/reason", func(t *capability.Terms) { t.Reason = strings.Repeat("a", 4097) }},
		{"a long session", "/session", func(t *capability.Terms) { t.Session = strings.Repeat("a", 1025) }},
	} {
		_, err := s.Issue(t.Context(), gateway, "", terms(test.change, "files:read_file"), capability.Grant{})
		var invalid *authzen.ValidationError
		if !errors.As(err, &invalid) || invalid.Path != test.path {
			t.Errorf("%s: %v, want a fault at %s", test.name, err, test.path)
		}
	}
	if s.events(t) != "" {
		t.Errorf("the log has %s", s.events(t))
	}
}

// The way of a capability that a person approves, with its records.
func TestARequestedCapability(t *testing.T) {
	s := open(t)
	asked := gateway
	asked.RequestID = "r-1"
	made, err := s.Request(t.Context(), asked, "", terms(func(t *capability.Terms) { t.Reason, t.Session = "maintenance", "secret-session" }, "files:*"), capability.Proposal{
		Task: "arq_1", Template: "tool-owner", DecideBy: morning.Add(time.Hour), EvaluationIDs: []string{"e1"}, Revision: "sha256:1",
	})
	if err != nil || made.State != capability.Pending || !strings.HasPrefix(made.ID, "cap_") || len(made.ID) != 30 {
		t.Fatalf("%+v, %v", made, err)
	}
	if got, err := s.ByTask(t.Context(), "arq_1"); err != nil || got.ID != made.ID {
		t.Errorf("by its task: %v, %v", got, err)
	}
	s.pass(10 * time.Minute)
	active, err := s.Activate(t.Context(), made.ID, capability.Actor{Caller: "gateway-1"}, capability.Grant{
		Issuer: &owner, Approvers: []authzen.Subject{owner}, EvaluationIDs: []string{"e2"}, Revision: "sha256:2",
	})
	if err != nil || active.State != capability.Active || !active.Constraints.ValidUntil.Equal(morning.Add(70*time.Minute)) {
		t.Fatalf("%+v, %v", active, err)
	}
	if _, err := s.Activate(t.Context(), made.ID, admin, capability.Grant{}); !errors.Is(err, capability.ErrState) {
		t.Errorf("issued twice: %v", err)
	}
	revoked, err := s.Revoke(t.Context(), made.ID, admin, "compromised")
	if err != nil || revoked.State != capability.Revoked || revoked.EndReason != "compromised" || revoked.EndedBy.ID != "olga" {
		t.Fatalf("%+v, %v", revoked, err)
	}
	var got []string
	for _, r := range s.records {
		got = append(got, fmt.Sprintf("%s %s %q %q %s", r.Kind, r.Tenant, r.Caller, r.RequestID, strings.ReplaceAll(string(r.Body), made.ID, "cap_1")))
	}
	want := []string{
		`capability acme "gateway-1" "r-1" {"event":"request","capability":"cap_1","status":"pending","holder":{"type":"agent","id":"agent-a"},"tools":["files:*"],"duration":3600,"bound":"session","template":"tool-owner","task":"arq_1","evaluation_ids":["e1"],"revision":"sha256:1","reason":"maintenance"}`,
		`capability acme "gateway-1" "" {"event":"issue","capability":"cap_1","status":"active","holder":{"type":"agent","id":"agent-a"},"tools":["files:*"],"duration":3600,"constraints":{"validFrom":"2026-11-21T08:10:00Z","validUntil":"2026-11-21T09:10:00Z"},"bound":"session","issuer":{"type":"user","id":"olga"},"approvers":[{"type":"user","id":"olga"}],"template":"tool-owner","task":"arq_1","evaluation_ids":["e1","e2"],"revision":"sha256:2","reason":"maintenance"}`,
		`capability acme "admin-token" "" {"event":"revoke","capability":"cap_1","status":"revoked","holder":{"type":"agent","id":"agent-a"},"task":"arq_1","by":{"type":"user","id":"olga"},"reason":"compromised"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	s.noText(t, "secret-session")
}

// noText fails if the file has a text.
func (s *store) noText(t *testing.T, text string) {
	t.Helper()
	s.stored(t, func(bucket string, key, value []byte) {
		if strings.Contains(string(key)+string(value), text) {
			t.Errorf("the bucket %s has %s", bucket, text)
		}
	})
}

// stored yields all that the file has. The service is opened again.
func (s *store) stored(t *testing.T, yield func(bucket string, key, value []byte)) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(s.dir, capability.FileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(key, value []byte) error {
				yield(string(name), key, value)
				return nil
			})
		})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s.open(t)
}

// Nothing covers a request before it is issued, and a revocation has effect with the next question.
func TestIssueAndRevocationHaveEffectAtOnce(t *testing.T) {
	s := open(t)
	c := s.request(t, terms(nil, "files:write"), "task-1")
	found := func() string { return s.found(t, s.call("files:write", "", nil)) }
	if found() != "" {
		t.Error("a pending one covers")
	}
	if _, err := s.Activate(t.Context(), c.ID, admin, capability.Grant{}); err != nil {
		t.Fatal(err)
	}
	if found() != c.ID {
		t.Error("an issued one does not cover")
	}
	if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
		t.Fatal(err)
	}
	if found() != "" {
		t.Error("a revoked one covers")
	}
}

// A use that was found and not taken yet is refused after the revocation.
func TestARevokedCapabilityGivesNoUse(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(5))
	status := s.find(t, s.call("files:read_file", "", claim("", true)))
	if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
		t.Fatal(err)
	}
	if taken, err := status.Consume(); taken || !errors.Is(err, authzen.ErrCapabilityEnded) {
		t.Errorf("%v, %v", taken, err)
	}
}

func TestRevokeHolder(t *testing.T) {
	s := open(t)
	s.issue(t, terms(nil, "files:write"))
	s.request(t, terms(nil, "files:write"), "task-1")
	other := s.issue(t, terms(func(t *capability.Terms) { t.Holder.ID = "agent-b" }, "files:write"))
	elsewhere, err := s.Issue(t.Context(), capability.Caller{Tenant: "other"}, "", terms(nil, "files:write"), capability.Grant{})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := s.RevokeHolder(t.Context(), gateway.Tenant, agent, admin, "compromised")
	if err != nil || len(ended) != 2 {
		t.Fatalf("%d ended, %v", len(ended), err)
	}
	if got, want := s.events(t), "issue/active request/pending issue/active issue/active"; !strings.HasPrefix(got, want+" re") {
		t.Errorf("events %s", got)
	}
	for _, c := range ended {
		if got, err := s.Get(t.Context(), c.ID); err != nil || got.State != c.State || got.State != capability.Revoked && got.State != capability.Refused {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, id := range []string{other.ID, elsewhere.ID} {
		if got, err := s.Get(t.Context(), id); err != nil || got.State != capability.Active {
			t.Errorf("of another holder or tenant: %+v, %v", got, err)
		}
	}
	if ended, err := s.RevokeHolder(t.Context(), gateway.Tenant, agent, admin, ""); err != nil || len(ended) != 0 {
		t.Errorf("again: %d, %v", len(ended), err)
	}
}

func TestBounds(t *testing.T) {
	const active, pending, tenant = 3, 2, 7
	s := openWith(t, func(c *capability.Config) { c.MaxActive, c.MaxPending, c.MaxTenant = active, pending, tenant })
	add := func(state capability.State, holder string) (*capability.Capability, error) {
		of := terms(func(t *capability.Terms) { t.Holder.ID = holder }, "files:write")
		if state == capability.Active {
			return s.Issue(t.Context(), gateway, "", of, capability.Grant{})
		}
		return s.Request(t.Context(), gateway, "", of, capability.Proposal{DecideBy: morning.Add(time.Hour)})
	}
	var waiting *capability.Capability
	for state, most := range map[capability.State]int{capability.Active: active, capability.Pending: pending} {
		for i := range most + 1 {
			made, err := add(state, "a")
			if i < most && err != nil || i == most && !errors.Is(err, capability.ErrTooMany) {
				t.Errorf("%s number %d of a holder: %v", state, i+1, err)
			}
			if state == capability.Pending && i == 0 {
				waiting = made
			}
		}
	}
	if _, err := s.Activate(t.Context(), waiting.ID, admin, capability.Grant{}); !errors.Is(err, capability.ErrTooMany) {
		t.Errorf("a pending one is issued beyond the bound: %v", err)
	}
	for i := active + pending; i <= tenant; i++ {
		if _, err := add(capability.Active, fmt.Sprint("b", i)); i < tenant && err != nil || i == tenant && !errors.Is(err, capability.ErrTooMany) {
			t.Errorf("number %d of the tenant: %v", i+1, err)
		}
	}
	if _, err := s.Issue(t.Context(), capability.Caller{Tenant: "other"}, "", terms(nil, "files:write"), capability.Grant{}); err != nil {
		t.Errorf("of another tenant: %v", err)
	}
	s.reopen(t)
	if _, err := add(capability.Active, "c"); !errors.Is(err, capability.ErrTooMany) {
		t.Errorf("after a restart: %v", err)
	}
	s.pass(2 * time.Hour)
	s.sweep(t)
	if _, err := add(capability.Active, "a"); err != nil {
		t.Errorf("after the end of all: %v", err)
	}
}

// Capabilities that have ended count against the quota until they are deleted.
func TestQuota(t *testing.T) {
	s := openWith(t, func(c *capability.Config) { c.MaxStored, c.MaxStoredAll = 16<<10, 24<<10 })
	n := 0
	for ; ; n++ {
		c, err := s.Issue(t.Context(), gateway, "", terms(nil, "files:write"), capability.Grant{})
		if errors.Is(err, capability.ErrTooManyStored) {
			break
		}
		if err != nil || n > 16 {
			t.Fatalf("number %d: %v", n, err)
		}
		if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
			t.Fatal(err)
		}
	}
	s.reopen(t)
	if _, err := s.Issue(t.Context(), gateway, "", terms(nil, "files:write"), capability.Grant{}); !errors.Is(err, capability.ErrTooManyStored) {
		t.Errorf("after a restart: %v", err)
	}
	for _, tenant := range []string{"b", "c"} {
		for range n {
			_, err := s.Issue(t.Context(), capability.Caller{Tenant: tenant}, "", terms(nil, "files:write"), capability.Grant{})
			if tenant == "b" && err != nil && !errors.Is(err, capability.ErrTooManyStored) {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Issue(t.Context(), capability.Caller{Tenant: "d"}, "", terms(nil, "files:write"), capability.Grant{}); !errors.Is(err, capability.ErrTooManyStored) {
		t.Errorf("of all tenants: %v", err)
	}
	s.pass(26 * time.Hour)
	s.sweep(t)
	if _, err := s.Issue(t.Context(), gateway, "", terms(nil, "files:write"), capability.Grant{}); err != nil {
		t.Errorf("a day after the end: %v", err)
	}
}

// What has ended is kept for a day, and then nothing of it is left.
func TestExpiryAndDeletion(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(2))
	s.decide(t, s.call("files:read_file", "", claim("", true)))
	p := s.request(t, terms(nil, "files:write"), "task-1")
	s.pass(10 * time.Minute)
	s.sweep(t)
	s.pass(50 * time.Minute)
	s.sweep(t)
	for _, id := range []string{c.ID, p.ID} {
		if got, err := s.Get(t.Context(), id); err != nil || got.State != capability.Expired {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, want := s.events(t), "issue/active request/pending expire/expired expire/expired"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	s.pass(24*time.Hour - time.Minute - 50*time.Minute)
	s.sweep(t)
	if _, err := s.Get(t.Context(), p.ID); err != nil {
		t.Errorf("after less than a day: %v", err)
	}
	s.pass(time.Hour)
	s.sweep(t)
	if _, err := s.Get(t.Context(), c.ID); !errors.Is(err, capability.ErrUnknown) {
		t.Errorf("after a day: %v", err)
	}
	s.stored(t, func(bucket string, key, value []byte) {
		if bucket != "log" {
			t.Errorf("the bucket %s has %q", bucket, key)
		}
	})
}

// A transition that the log refuses is seen by nobody until the log has its record, once.
func TestTheLogFails(t *testing.T) {
	s := open(t)
	c := s.issue(t, terms(nil, "files:write"))
	broken := errors.New("the disk is full")
	s.breakLog(broken)
	if _, err := s.Revoke(t.Context(), c.ID, admin, ""); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), s.call("files:write", "", nil)); !errors.Is(err, broken) {
		t.Errorf("a question is answered: %v", err)
	}
	if got, err := s.Get(t.Context(), c.ID); !errors.Is(err, broken) {
		t.Errorf("it is told: %+v, %v", got, err)
	}
	for _, err := range s.List(t.Context(), capability.Query{}) {
		if !errors.Is(err, broken) {
			t.Errorf("it is listed: %v", err)
		}
	}
	for _, restart := range []bool{false, true} {
		if restart {
			s.breakLog(broken)
			if _, err := s.Issue(t.Context(), gateway, "", terms(nil, "mail:send"), capability.Grant{}); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			s.crash(t)
			if _, err := s.Find(t.Context(), s.call("mail:send", "", nil)); !errors.Is(err, broken) {
				t.Errorf("after a crash a question is answered: %v", err)
			}
		}
		s.breakLog(nil)
		if s.found(t, s.call("files:write", "", nil)) != "" {
			t.Error("the revoked one covers")
		}
	}
	if s.found(t, s.call("mail:send", "", nil)) == "" {
		t.Error("the issued one does not cover")
	}
	if got, want := s.events(t), "issue/active revoke/revoked issue/active"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := open(t)
	issue := func(c capability.Caller, key, tool string) (string, error) {
		made, err := s.Issue(t.Context(), c, key, terms(nil, tool), capability.Grant{})
		if err != nil {
			return "", err
		}
		return made.ID, nil
	}
	first, err := issue(gateway, "k1", "files:write")
	if err != nil {
		t.Fatal(err)
	}
	s.reopen(t)
	if again, err := issue(gateway, `"k1"`, "files:write"); err != nil || again != first {
		t.Errorf("the same request again: %s, %v", again, err)
	}
	if known, err := s.Known(t.Context(), gateway, "k1", terms(nil, "files:write")); err != nil || known == nil || known.ID != first {
		t.Errorf("known: %+v, %v", known, err)
	}
	if known, err := s.Known(t.Context(), gateway, "k2", terms(nil, "files:write")); err != nil || known != nil {
		t.Errorf("another key is known: %+v, %v", known, err)
	}
	s.pass(time.Minute)
	ending := terms(func(t *capability.Terms) { t.Constraints.ValidUntil = s.time().Add(time.Second) }, "files:write")
	s.issueWithKey(t, "k3", ending)
	s.pass(time.Hour)
	s.issueWithKey(t, "k3", ending) // a retry after its end
	if _, err := issue(gateway, "k1", "files:read"); !errors.Is(err, capability.ErrDuplicate) {
		t.Errorf("another request: %v", err)
	}
	for _, c := range []capability.Caller{{Tenant: "acme", ID: "gateway-2"}, {Tenant: "other", ID: "gateway-1"}} {
		if other, err := issue(c, "k1", "files:write"); err != nil || other == first {
			t.Errorf("of another caller: %s, %v", other, err)
		}
	}
	if got := s.events(t); got != "issue/active issue/active issue/active issue/active" {
		t.Errorf("events %s", got)
	}
}

func (s *store) issueWithKey(t *testing.T, key string, of capability.Terms) {
	t.Helper()
	if _, err := s.Issue(t.Context(), gateway, key, of, capability.Grant{}); err != nil {
		t.Error(err)
	}
}

func TestOwnAndWait(t *testing.T) {
	s := open(t)
	c := s.request(t, terms(nil, "files:write"), "task-1")
	for _, other := range []capability.Caller{{Tenant: "acme", ID: "gateway-2"}, {Tenant: "other", ID: "gateway-1"}, {}} {
		if _, err := s.Own(t.Context(), other, c.ID); !errors.Is(err, capability.ErrUnknown) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if got, err := s.Wait(t.Context(), gateway, c.ID, time.Millisecond); err != nil || got.State != capability.Pending {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.WaitByTask(t.Context(), "task-1", time.Millisecond); err != nil || got.ID != c.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.WaitByTask(t.Context(), "task-9", time.Minute); !errors.Is(err, capability.ErrUnknown) {
		t.Errorf("an unknown task: %v", err)
	}
	answers := make(chan capability.State)
	go func() {
		got, err := s.Wait(context.Background(), gateway, c.ID, time.Minute)
		if err != nil {
			t.Error(err)
		}
		answers <- got.State
	}()
	s.request(t, terms(nil, "files:write"), "task-2") // wakes it in vain
	if _, err := s.Activate(t.Context(), c.ID, admin, capability.Grant{}); err != nil {
		t.Fatal(err)
	}
	if state := <-answers; state != capability.Active {
		t.Errorf("waited until it was %s", state)
	}
}

// The end of Run ends all calls of Wait.
func TestRunEnds(t *testing.T) {
	s := open(t)
	c := s.request(t, terms(nil, "files:write"), "task-1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	waited := make(chan error)
	go func() {
		_, err := s.Wait(context.Background(), gateway, c.ID, time.Minute)
		waited <- err
	}()
	cancel()
	if err := errors.Join(<-ended, <-waited); err != nil {
		t.Error(err)
	}
}

func TestARequestThatCannotBeStored(t *testing.T) {
	s := open(t)
	late := capability.Proposal{Task: "task-1", DecideBy: morning}
	if _, err := s.Request(t.Context(), gateway, "", terms(nil, "a:b"), late); !errors.Is(err, capability.ErrState) {
		t.Errorf("its task has ended: %v", err)
	}
	s.request(t, terms(nil, "a:b"), "task-1")
	twice := capability.Proposal{Task: "task-1", DecideBy: morning.Add(time.Hour)}
	if _, err := s.Request(t.Context(), gateway, "", terms(nil, "a:b"), twice); !errors.Is(err, capability.ErrState) {
		t.Errorf("its task is taken: %v", err)
	}
	for name, err := range map[string]error{
		"get":    second(s.Get(t.Context(), "cap_x")),
		"task":   second(s.ByTask(t.Context(), "")),
		"issue":  second(s.Activate(t.Context(), "cap_x", admin, capability.Grant{})),
		"refuse": second(s.Refuse(t.Context(), "cap_x", admin, "")),
		"revoke": second(s.Revoke(t.Context(), "cap_x", admin, "")),
	} {
		if !errors.Is(err, capability.ErrUnknown) {
			t.Errorf("%s an unknown one: %v", name, err)
		}
	}
	var invalid *authzen.ValidationError
	if _, err := s.Revoke(t.Context(), "cap_x", admin, strings.Repeat("a", 4097)); !errors.As(err, &invalid) {
		t.Errorf("a long reason: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// A second service on the same directory does not open.
func TestExclusive(t *testing.T) {
	s := open(t)
	if other, err := capability.Open(s.dir, s.config); err == nil {
		t.Error("two services are open", other.Close())
	}
}

func TestOpenFailsIfTheLogCannotBeRead(t *testing.T) {
	broken := errors.New("a segment is missing")
	_, err := capability.Open(t.TempDir(), capability.Config{
		UsesSince: func(context.Context, uint64, func(capability.Use) error) error { return broken },
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

// After a restart everything is as before.
func TestRestart(t *testing.T) {
	s := open(t)
	s.issue(t, terms(func(t *capability.Terms) {
		t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value(`{"b":[1.50,9007199254740993]}`)}
		t.Constraints.ArgumentsSchema = jsontext.Value(`{"required":["a"]}`)
		t.Constraints.MaxUses, t.Reason, t.Session = 3, "ä", "s"
	}, "a:b", "c:*"))
	s.request(t, terms(nil, "a:b"), "task-1")
	before := s.listed(t, capability.Query{})
	s.reopen(t)
	after := s.listed(t, capability.Query{})
	x, errX := json.Marshal(before)
	y, errY := json.Marshal(after)
	if errX != nil || errY != nil || string(x) != string(y) || len(before) != 2 {
		t.Errorf("before\n%s\nafter\n%s", x, y)
	}
}

// Questions, transitions, sweeps and lists at the same time give no use twice, and the race detector
// has nothing to say.
func TestAllAtOnce(t *testing.T) {
	s := open(t)
	const n = 50
	limited := s.issue(t, uses(n))
	var answered atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 100 {
				if s.decide(t, requested(s.call("files:read_file", "", claim(limited.ID, true)), fmt.Sprint(i, "-", j))) {
					answered.Add(1)
				}
			}
		})
		group.Go(func() {
			for range 10 {
				c := s.issue(t, terms(nil, "files:write"))
				if s.find(t, s.call("files:write", "", claim(c.ID, false))).Capability == nil {
					t.Error("an issued one does not cover")
				}
				if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
					t.Error(err)
				}
				if got := s.find(t, s.call("files:write", "", claim(c.ID, false))).Denied; got != authzen.CapabilityRevoked {
					t.Errorf("a revoked one is %q", got)
				}
			}
		})
		group.Go(func() {
			for range 5 {
				s.sweep(t)
				s.listed(t, capability.Query{Holder: &agent})
				if err := s.Snapshot(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if answered.Load() != n {
		t.Errorf("%d calls are answered with %d uses", answered.Load(), n)
	}
	s.crash(t)
	if got, err := s.Get(t.Context(), limited.ID); err != nil || got.Used != n {
		t.Errorf("after a crash %d uses are taken, want %d: %v", got.Used, n, err)
	}
}

// A question of a subject without capabilities costs no allocation.
func TestAHolderOfNoneCostsNothing(t *testing.T) {
	s := open(t)
	s.issue(t, terms(nil, "files:write"))
	q := s.call("files:write", `{"a":1}`, nil)
	q.Request.Subject.ID = "agent-b"
	s.find(t, q)
	if n := testing.AllocsPerRun(100, func() { s.Find(t.Context(), q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFind(b *testing.B) {
	s := open(b)
	s.issue(b, terms(nil, "files:write"))
	s.issue(b, terms(func(t *capability.Terms) {
		t.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(`"staging"`)}
		t.Constraints.MaxUses = 1_000_000
	}, "mail:send"))
	for _, test := range []struct {
		name string
		q    *authzen.CapabilityQuestion
	}{
		{"none", s.call("files:write", "", nil)},
		{"unlimited", s.call("files:write", "", nil)},
		{"limited with arguments", requested(s.call("mail:send", `{"target":"staging","text":"hello"}`, claim("", true)), "r1")},
	} {
		if test.name == "none" {
			test.q.Request.Subject.ID = "agent-b"
		}
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if status, err := s.Find(b.Context(), test.q); err != nil || status.Denied != "" {
					b.Fatal(status, err)
				}
			}
		})
	}
}
