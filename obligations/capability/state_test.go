package capability_test

import (
	"errors"
	"testing"
	"time"

	"github.com/policy-service/policy-service/obligations/capability"
)

// The complete state machine: every event in every state, before and after the state's end.
func TestStates(t *testing.T) {
	in := func(state capability.State) capability.Capability {
		c := capability.Capability{
			State: state, Terms: uses(2), DecideBy: morning.Add(time.Hour), Created: morning,
		}
		if state != capability.Pending && state != capability.Refused {
			c.Issued, c.Constraints.ValidUntil = morning, morning.Add(time.Hour)
		}
		return c
	}
	wants := map[string]capability.State{
		"pending issue": capability.Active, "pending refuse": capability.Refused, "pending revoke": capability.Refused,
		"active revoke": capability.Revoked, "active exhaust": capability.Exhausted,
		"pending expire late": capability.Expired, "active expire late": capability.Expired,
	}
	for _, state := range capability.States {
		for _, kind := range []string{"request", "issue", "refuse", "revoke", "exhaust", "expire"} {
			for _, late := range []string{"", " late"} {
				now := morning.Add(time.Minute)
				if late != "" {
					now = morning.Add(time.Hour)
				}
				name := string(state) + " " + kind + late
				before := in(state)
				after, err := capability.Next(before, kind, capability.Grant{}, 2, now)
				want, allowed := wants[name]
				switch {
				case !allowed && !errors.Is(err, capability.ErrState):
					t.Errorf("%s: %v, state %s", name, err, after.State)
				case allowed && (err != nil || after.State != want):
					t.Errorf("%s: %v, state %s, want %s", name, err, after.State, want)
				case allowed && want != capability.Active && !after.Ended.Equal(now):
					t.Errorf("%s: it ended at %s", name, after.Ended)
				}
			}
		}
	}
}

func TestOnlyAUsedUpCapabilityIsExhausted(t *testing.T) {
	c := capability.Capability{State: capability.Active, Terms: uses(2), Issued: morning}
	c.Constraints.ValidUntil = morning.Add(time.Hour)
	if _, err := capability.Next(c, "exhaust", capability.Grant{}, 1, morning); !errors.Is(err, capability.ErrState) {
		t.Errorf("one of two uses: %v", err)
	}
	c.Constraints.MaxUses = 0
	if _, err := capability.Next(c, "exhaust", capability.Grant{}, 1000, morning); !errors.Is(err, capability.ErrState) {
		t.Errorf("uses are not counted: %v", err)
	}
}

// The time of a capability begins when it is issued, and ends at the earliest of all limits.
func TestValidityBeginsWithTheIssue(t *testing.T) {
	now := morning.Add(30 * time.Minute)
	for _, test := range []struct {
		name        string
		change      func(*capability.Terms)
		grant       capability.Grant
		from, until time.Time // zero for an error
	}{
		{"a duration", func(t *capability.Terms) { t.Duration = lasting(time.Hour) }, capability.Grant{}, now, now.Add(time.Hour)},
		{"an end", func(t *capability.Terms) { t.Duration, t.Constraints.ValidUntil = lasting(0), now.Add(time.Minute) }, capability.Grant{}, now, now.Add(time.Minute)},
		{"both", func(t *capability.Terms) { t.Constraints.ValidUntil = now.Add(time.Minute) }, capability.Grant{}, now, now.Add(time.Minute)},
		{"a limit of the grant", nil, capability.Grant{Until: now.Add(time.Second)}, now, now.Add(time.Second)},
		{"a later beginning", func(t *capability.Terms) { t.Constraints.ValidFrom = now.Add(time.Hour) }, capability.Grant{}, now.Add(time.Hour), now.Add(2 * time.Hour)},
		{"an earlier beginning", func(t *capability.Terms) { t.Constraints.ValidFrom = morning }, capability.Grant{}, now, now.Add(time.Hour)},
		{"an end that has passed", func(t *capability.Terms) { t.Constraints.ValidUntil = now }, capability.Grant{}, time.Time{}, time.Time{}},
		{"a limit that has passed", nil, capability.Grant{Until: now}, time.Time{}, time.Time{}},
	} {
		c := capability.Capability{State: capability.Pending, Terms: terms(test.change, "files:*"), DecideBy: morning.Add(time.Hour)}
		after, err := capability.Next(c, "issue", test.grant, 0, now)
		if test.until.IsZero() {
			if !errors.Is(err, capability.ErrState) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if err != nil || !after.Constraints.ValidFrom.Equal(test.from) || !after.Constraints.ValidUntil.Equal(test.until) {
			t.Errorf("%s: %v, %s to %s", test.name, err, after.Constraints.ValidFrom, after.Constraints.ValidUntil)
		}
	}
}
