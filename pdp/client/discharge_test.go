package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A worker carries out obligations and records them.
type worker struct {
	mu   sync.Mutex
	done []string
}

func (w *worker) do(_ context.Context, o authzen.Obligation) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, o.ID)
	return nil
}

func decided(decision bool, types ...string) *authzen.Decision {
	d := &authzen.Decision{Decision: decision, Context: &authzen.DecisionContext{}}
	for _, t := range types {
		d.Context.Obligations = append(d.Context.Obligations, authzen.Obligation{ID: t, Type: t, Properties: jsontext.Value(`{}`)})
	}
	return d
}

// A permit requires all obligations, and each that can be met is carried out (OB-40 to OB-45, OB-49
// to OB-53, OB-56 in conformance/testdata/rows.txt).
func TestDischarge(t *testing.T) {
	failed := errors.New("unreachable")
	for _, test := range []struct {
		name     string
		decision bool
		types    []string
		granted  bool
		done     string
		unmet    string
	}{
		{"a plain permit", true, nil, true, "", ""},
		{"a plain denial", false, nil, false, "", ""},
		{"a permit with what can be done", true, []string{"notification", "session_termination"}, true, "notification session_termination", ""},
		{"a permit with what is not known", true, []string{"notification", "telepathy", "session_termination"}, false, "notification session_termination", "telepathy"},
		{"a permit with what fails", true, []string{"step-up", "notification"}, false, "notification", "step-up"},
		{"a permit with what panics", true, []string{"custom", "notification"}, false, "notification", "custom"},
		{"a denial with what can be done", false, []string{"notification"}, false, "notification", ""},
		{"a denial with what fails", false, []string{"step-up", "notification"}, false, "notification", "step-up"},
		{"a type in another case", true, []string{"Notification"}, false, "", "Notification"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &worker{}
			pep := client.Obligations{
				authzen.ObligationNotification:       w.do,
				authzen.ObligationSessionTermination: w.do,
				authzen.ObligationStepUp:             func(context.Context, authzen.Obligation) error { return failed },
				authzen.ObligationCustom:             func(context.Context, authzen.Obligation) error { panic("bug") },
			}
			granted, err := pep.Discharge(t.Context(), decided(test.decision, test.types...))
			slices.Sort(w.done)
			if granted != test.granted || strings.Join(w.done, " ") != test.done {
				t.Errorf("granted %v, done %q", granted, w.done)
			}
			if (err != nil) != (test.unmet != "") || err != nil && (!errors.Is(err, client.ErrObligation) || !strings.Contains(err.Error(), test.unmet)) {
				t.Errorf("OB-62: the error is %v", err)
			}
		})
	}
}

// An obligation that is late is not met (OB-61 in conformance/testdata/rows.txt).
func TestDischargeTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pep := client.Obligations{authzen.ObligationNotification: func(ctx context.Context, _ authzen.Obligation) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	if granted, err := pep.Discharge(ctx, decided(true, authzen.ObligationNotification)); granted || !errors.Is(err, context.Canceled) {
		t.Errorf("granted %v, %v", granted, err)
	}
	w := &worker{}
	pep[authzen.ObligationNotification] = w.do
	if granted, _ := pep.Discharge(ctx, decided(true, authzen.ObligationNotification)); granted || len(w.done) > 0 {
		t.Errorf("after the end granted %v, done %q", granted, w.done)
	}
}

// Of several decisions, only those with a failed obligation are excluded (OB-46 to OB-48 in
// conformance/testdata/rows.txt).
func TestPermitted(t *testing.T) {
	w := &worker{}
	pep := client.Obligations{authzen.ObligationNotification: w.do}
	got, err := pep.Permitted(t.Context(), []authzen.Decision{
		*decided(true), *decided(true, "notification"), *decided(true, "telepathy"), *decided(false), *decided(true, "telepathy", "notification"),
	})
	if diff := cmp.Diff([]bool{true, true, false, false, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !errors.Is(err, client.ErrObligation) || len(w.done) != 2 {
		t.Errorf("done %q, %v", w.done, err)
	}
}

// A PEP declares the types that it supports and the PDP may send (OB-29, OB-54, OB-55 in
// conformance/testdata/rows.txt).
func TestSupported(t *testing.T) {
	w := &worker{}
	pep := client.Obligations{authzen.ObligationNotification: w.do, authzen.ObligationCustom: w.do, "telepathy": w.do}
	pdp := &authzen.Metadata{SupportedObligations: []string{"step-up", "custom", "notification"}}
	if diff := cmp.Diff([]string{"custom", "notification"}, pep.Supported(pdp)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (client.Obligations{}).Supported(pdp); got == nil || len(got) != 0 {
		t.Errorf("a PEP that can do nothing declares %v", got)
	}
}
