package policystore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// A burst of hints is acted upon once, when it is over.
func TestDelayWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := policystore.NewDelay()
		start := time.Now()
		for range 5 {
			d.Hint()
			time.Sleep(policystore.Quiet / 2)
		}
		<-d.C
		if got, want := time.Since(start), 3*policystore.Quiet; got != want {
			t.Errorf("the moment came after %v, not %v", got, want)
		}
		if d.Over() {
			t.Error("there was no need to give up waiting")
		}
		d.Done()
		select {
		case <-d.C:
			t.Error("the moment came twice")
		case <-time.After(time.Hour):
		}
	})
}

// A burst that does not end is acted upon in time.
func TestDelayIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := policystore.NewDelay()
		for range 3 {
			start := time.Now()
			for waiting := true; waiting; {
				d.Hint()
				select {
				case <-d.C:
					waiting = false
				case <-time.After(policystore.Quiet / 2):
				}
			}
			if got := time.Since(start); got != policystore.MaxDelay {
				t.Errorf("the moment came after %v, not %v", got, policystore.MaxDelay)
			}
			if !d.Over() {
				t.Error("the first hint is not too old")
			}
			d.Done()
		}
	})
}
