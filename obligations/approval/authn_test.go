package approval_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
)

// A recorded is what the record of a vote says about the approver.
type recorded struct {
	Event   string          `json:"event"`
	Channel string          `json:"channel"`
	Authn   *approval.Authn `json:"authn"`
	Token   string          `json:"id_token"`
}

// lastRecord returns what the last record says about the approver.
func (d *desk) lastRecord(t *testing.T) (r recorded) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := json.Unmarshal(d.records[len(d.records)-1].Body, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The vote and its record say how the approver proved who they are, and by which way the vote came,
// also if it does not count. Only the vote has the token itself.
func TestVoteSaysHowApproverAuthenticated(t *testing.T) {
	authn := &approval.Authn{
		Method: approval.MethodOIDC, Issuer: "https://idp.example.com", Subject: "00u1", ACR: "phr", AMR: []string{"hwk"},
		Time: morning.Add(-time.Minute), Bound: true, Token: "sha256:2c26", Session: "c3f1a0b2",
	}
	signedIn := func(id string) approval.Approver {
		by := approver(id)
		by.Authn, by.Channel, by.IDToken = authn, approval.ChannelConsole, "the token"
		return by
	}
	for _, test := range []struct {
		event    string
		by       string
		decision approval.Decision
		err      error
	}{
		{"approve", "carol", approves, nil},
		{"deny", "carol", denies, nil},
		{"delegate", "carol", approval.Decision{Decision: "delegate", To: &approval.Person{Type: "approver", ID: "dave"}}, nil},
		{"refuse", "agent-7", approves, approval.ErrIneligible}, // the requester
	} {
		d := open(t, plain)
		id := d.submit(t, push).Task.ID
		if _, err := d.Decide(t.Context(), id, signedIn(test.by), test.decision); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", test.event, err)
		}
		want := recorded{Event: test.event, Channel: "console", Authn: authn}
		if diff := cmp.Diff(want, d.lastRecord(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.event, diff)
		}
		r, err := d.Request(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, vote := range r.Items[0].Votes {
			if vote.IDToken != "the token" || !cmp.Equal(vote.Authn, authn) {
				t.Errorf("%s: the vote has %+v", test.event, vote)
			}
		}
	}
}
