package approval_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// sheet returns the sheet of a request.
func (d *desk) sheet(t testing.TB, id string) approval.Sheet {
	t.Helper()
	s, _, err := d.Sheet(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replace replaces a text in the stored requests.
func (d *desk) replace(t *testing.T, old, new string) {
	t.Helper()
	d.rewrite(t, func(stored []byte) []byte { return bytes.ReplaceAll(stored, []byte(old), []byte(new)) })
}

// A sheet is canonical, its digest is that of its bytes, and it has everything that an approver is
// shown.
func TestSheet(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Edit = []string{"files"} }))
	id := d.submit(t, push).Task.ID
	sheet := d.sheet(t, id)
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256(sheet.JSON)); sheet.Digest != want {
		t.Errorf("the digest is %s, and that of the bytes %s", sheet.Digest, want)
	}
	canonical := sheet.JSON.Clone()
	if err := canonical.Canonicalize(); err != nil || !bytes.Equal(canonical, sheet.JSON) {
		t.Errorf("not canonical: %s, %v", sheet.JSON, err)
	}
	for _, part := range []string{id, "acme", "gateway-1", "agent-7", "writer", "tool.invoke", "main", "github.push_code", "impact", "workflow_id", "wf-1", "sre", "15m0s", "files", "sha256:1"} {
		if !strings.Contains(string(sheet.JSON), part) {
			t.Errorf("the sheet has no %s: %s", part, sheet.JSON)
		}
	}
	var content approval.SheetContent
	if err := json.Unmarshal(sheet.JSON, &content, json.RejectUnknownMembers(true)); err != nil || content.Task != id || len(content.Items) != 1 {
		t.Errorf("decoded %+v, %v", content, err)
	}
}

// Nothing that happens to a request changes its sheet.
func TestSheetNeverChanges(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum, terms.Escalation = 2, lasting(time.Minute) }))
	id := d.submit(t, push).Task.ID
	first := d.sheet(t, id).Digest
	for _, event := range []struct {
		name   string
		happen func() error
	}{
		{"vote", func() error { _, err := d.Decide(t.Context(), id, approver("ann"), approves); return err }},
		{"escalation", func() error { d.pass(2 * time.Minute); return d.Sweep(t.Context()) }},
		{"restart", func() error { d.reopen(t); return nil }},
	} {
		if err := event.happen(); err != nil {
			t.Fatal(err)
		}
		if got := d.sheet(t, id).Digest; got != first {
			t.Errorf("%s: %s became %s", event.name, first, got)
		}
	}
}

// A vote for a sheet that is not the request's does not count, and nothing records it. The digest of
// the right one is in the vote and in its record.
func TestDecideOnSheet(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	shown := d.sheet(t, id).Digest
	approve := approval.Decision{Decision: "approve", Sheet: shown}
	d.replace(t, `"branch":"main"`, `"branch":"prod"`)
	before := d.events(t)
	if _, err := d.Decide(t.Context(), id, approver("carol"), approve); !errors.Is(err, approval.ErrSheet) {
		t.Errorf("another request than shown: %v", err)
	}
	r, err := d.Request(t.Context(), id)
	if err != nil || len(r.Items[0].Votes) > 0 || d.events(t) != before {
		t.Errorf("after the refusal: %+v, %v, log %s", r, err, d.events(t))
	}
	approve.Sheet = d.sheet(t, id).Digest
	for _, test := range []struct {
		by   string
		want error
	}{{"agent-7", approval.ErrIneligible}, {"carol", nil}} {
		if _, err := d.Decide(t.Context(), id, approver(test.by), approve); !errors.Is(err, test.want) {
			t.Fatalf("%s: %v", test.by, err)
		}
		if last := string(d.records[len(d.records)-1].Body); !strings.Contains(last, fmt.Sprintf(`"sheet":%q`, approve.Sheet)) {
			t.Errorf("the record of the vote of %s: %s", test.by, last)
		}
	}
	if r, err = d.Request(t.Context(), id); err != nil || r.Items[0].Votes[0].Sheet != approve.Sheet {
		t.Errorf("the vote is %+v, %v", r.Items[0].Votes, err)
	}
}

// A decision with what is no digest is malformed.
func TestSheetDigestForm(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	for _, digest := range []string{"x", "sha256:", "sha256:" + strings.Repeat("A", 64), strings.Repeat("0", 64), "sha256:" + strings.Repeat("0", 63), "sha256:" + strings.Repeat("0", 65)} {
		var invalid *authzen.ValidationError
		if _, err := d.Decide(t.Context(), id, approver("carol"), approval.Decision{Decision: "approve", Sheet: digest}); !errors.As(err, &invalid) || invalid.Path != "/sheet" {
			t.Errorf("%q: %v", digest, err)
		}
	}
}

// A sheet has masks in place of secrets. Two requests that differ in a secret alone have different
// sheets.
func TestSheetMasksSecrets(t *testing.T) {
	d := open(t, plain)
	d.config.Mask = func(v jsontext.Value) (jsontext.Value, error) {
		return jsontext.Value(strings.NewReplacer("hunter2", "masked:1", "hunter3", "masked:2").Replace(string(v))), nil
	}
	d.reopen(t)
	id := d.submit(t, edit(t, `"wf-1"`, `"hunter2"`)).Task.ID
	first := d.sheet(t, id)
	if text := string(first.JSON); strings.Contains(text, "hunter2") || !strings.Contains(text, "masked:1") {
		t.Errorf("the sheet is %s", text)
	}
	d.replace(t, "hunter2", "hunter3")
	if d.sheet(t, id).Digest == first.Digest {
		t.Error("another secret, and the same digest")
	}
}
